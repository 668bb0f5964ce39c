"""Anything that Ansible reads, as plain hosts: `gpuprov` deep-merged, every value with its place, connection variables.

Nothing here judges the spec. Importing this package does not import Ansible, and a cache hit does not either.
"""

import os
from collections.abc import Callable, Sequence
from typing import Unpack

import msgspec

from gpuprov.core.errors import GpuprovError
from gpuprov.inventory.play import Play, ReadOptions
from gpuprov.inventory.resolved import Resolved
from gpuprov.inventory.sources import find_default_sources, refuse_nowhere
from gpuprov.spec.model import RawHost
from gpuprov.spec.problem import Origin, Problem, SpecError

__all__ = ["Inventory", "Play", "find_default_sources", "load"]


class Inventory(msgspec.Struct, frozen=True):
    """The hosts of the sources, in the order in which they are written there.

    `left_out`: names of the hosts that are not in the `limit`. `extra`: the names that extra variables set. `children`:
    the groups in each group, if `also` was given. Hosts with the same groups and no variables of their own share one
    `values`, `origins`, `connection` and `places`: read only.
    """

    sources: tuple[str, ...]
    hosts: tuple[RawHost, ...]
    warnings: tuple[Problem, ...] = ()
    extra: tuple[str, ...] = ()
    children: dict[str, tuple[str, ...]] = {}
    left_out: tuple[str, ...] = ()


def load(
    sources: Sequence[str],
    *,
    limit: str | None = None,
    cache: bool = True,
    beside: list[Problem] | None = None,
    **options: Unpack[ReadOptions],
) -> Inventory:
    """Return the inventory, narrowed to `limit` (an Ansible host pattern). Raises SpecError with every problem.

    `beside`: receives the problems that leave the hosts readable, so that their specs can be judged, too; without it
    they are raised. `cache` lets a resolved inventory be kept and reused; it is never used for sources with vaults, scripts, plugin
    configurations, templates or secrets (see `gpuprov.inventory.cache`).
    """
    from gpuprov.inventory.limit import select
    from gpuprov.inventory.sources import resolve_sources

    refuse_nowhere()
    paths, missing = resolve_sources(sources)
    if missing:
        raise SpecError(missing)
    resolved = _resolve(paths, cache=cache, **options)
    if resolved.problems and beside is None:
        raise SpecError(resolved.problems)
    if beside is not None:
        beside += resolved.problems
    hosts = resolved.hosts
    if limit is not None:
        hosts, problems = select(hosts, resolved.groups, limit)
        if problems:
            raise SpecError(resolved.problems or problems)
    chosen = {raw.name for raw in hosts}
    return Inventory(
        tuple(sources),
        hosts,
        resolved.warnings,
        resolved.extra,
        children={} if options.get("also") is None else resolved.children,
        left_out=tuple(raw.name for raw in resolved.hosts if raw.name not in chosen),
    )


def _resolve(paths: list[str], *, cache: bool, **options: Unpack[ReadOptions]) -> Resolved:
    import gpuprov.inventory.cache as store

    plain = not any(options.get(name) for name in ("extra_vars", "alone", "play")) and options.get("also") is None
    key = store.compute_key(paths) if cache and plain else None
    resolved = store.read(key) if key else None
    if resolved is None:
        resolved = load_reader()(paths, **options)
        if key and key == store.compute_key(paths):
            store.write(key, resolved)
    return resolved


def describe_unopened(file: str, why: str) -> SpecError:
    named = next((name for name in os.environ if name.startswith("ANSIBLE_") and os.environ[name] == file), "")
    message = f"Ansible cannot use its configuration: {file} cannot be opened: {why}"
    fix = f"{named} names it: name another file, or unset it"
    fix = fix if named else "name another file in ansible.cfg (log_path)"
    return SpecError([Problem(message=message, fix=fix)])


def load_reader() -> Callable[..., Resolved]:
    """Return the reader."""
    # Importing it imports Ansible, which then reads its configuration and may print messages.
    from contextlib import redirect_stderr
    from io import StringIO

    from gpuprov.inventory import home
    from gpuprov.inventory.sources import find_ansible_config, show_path

    find_ansible_config()
    if os.path.exists(log := os.environ.get("ANSIBLE_LOG_PATH", "")) and not os.path.isfile(log):
        raise describe_unopened(log, "it is not a regular file")  # to open a pipe never ends
    try:
        with redirect_stderr(StringIO()), home.set_environment():
            from gpuprov.inventory.enabled import judge_extensions

            if extension := judge_extensions():
                raise SpecError([extension])
            from gpuprov.inventory.reader import read
    except SystemExit as ended:
        why = str(ended.code).removeprefix("ERROR: ")
        raise GpuprovError(f"Ansible does not start: {why}", "begin the command with LC_ALL=C.UTF-8") from ended
    except OSError as error:  # of a file that Ansible opens when it is imported: its log
        raise describe_unopened(str(error.filename), str(error.strerror)) from error
    except Exception as error:
        if not any(kind.__name__ == "AnsibleError" for kind in type(error).__mro__):
            raise
        text = str(error).splitlines()[0].partition(": ")[2] or str(error)
        config = find_ansible_config()
        origin = Origin(show_path(config)) if config else None
        problem = Problem(message=f"Ansible cannot use its configuration: {text.rstrip('.')}", origin=origin)
        raise SpecError([problem]) from error
    return read
