"""The files and packages that a role would change on a host, decided by the same code as in the role."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from gpuprov.capabilities import BY_NAME
from gpuprov.capabilities.base import Capability, Change, Context
from gpuprov.capabilities.generated import desired as resources_of
from gpuprov.capabilities.package_sources import SOURCE
from gpuprov.core.errors import defect
from gpuprov.facts.probes.base import Facts, Probe, ProbeFailed
from gpuprov.facts.probes.host import contents
from gpuprov.host_code import look, repository_key
from gpuprov.host_code.files import ABOVE, PYTHON
from gpuprov.host_code.json_members import Json
from gpuprov.host_code.packages.model import Refused
from gpuprov.host_code.packages.other_driver import Option
from gpuprov.host_code.sources import Source
from gpuprov.play.preflight import judging
from gpuprov.resources import Difference, File, Lines, Packages, differences
from gpuprov.resources.file import ABSENT, ANOTHER_TEXT, PLAIN, set_keys
from gpuprov.spec.model import HostSpec
from gpuprov.spec.overrides import get_package_settings
from gpuprov.verify.evaluate import Result
from gpuprov.verify.unmanaged import Unmanaged, find_unmanaged, prune_values

# The key of each package source, or the reason why there is none.
Keys = dict[bytes, tuple[str, str]]


class Text(msgspec.Struct, frozen=True):
    """A file as it would be."""

    path: str
    text: str
    # Its differences, empty if only the host can determine them.
    before: str


class Foreseen(msgspec.Struct, frozen=True, kw_only=True):
    """The changes to a host, by capability."""

    # Differing files, without their texts.
    files: dict[str, tuple[Difference, ...]] = {}
    # Files whose texts are compared on the host.
    texts: dict[str, tuple[Text, ...]] = {}
    packages: dict[str, tuple[Packages, ...]] = {}
    # Packages and holds named by failed checks of a capability.
    moves: dict[str, frozenset[Change]] = {}
    # Package sources to add.
    sources: dict[str, Source] = {}
    # `driver`, `without`, `settings`: options of gpuprov_packages.
    driver: Option = {}
    without: tuple[str, ...] = ()
    settings: dict[str, int] = {}
    # Parts of a capability that can be decided only when a package source is there.
    waits: dict[str, str] = {}
    # The reason why nothing is predicted for a capability.
    unknown: dict[str, str] = {}
    # What the spec no longer declares.
    unmanaged: tuple[Unmanaged, ...] = ()
    # The role's arguments for removing it.
    prune: dict[str, Any] = {}

    @property
    def differing(self) -> dict[str, str]:
        """Return, by capability, the first difference and the number of further ones. A check judges package
        sources."""
        reasons = dict[str, str]()
        for name, each in self.packages.items():
            moved = [spec for transaction in each for spec in (*transaction.install, *transaction.remove)]
            files = [file.path for file in self.files.get(name, ())]
            files += [text.path for text in self.texts.get(name, ()) if text.before]
            if changed := [*moved, *files]:
                reasons[name] = f"differs: {changed[0]}" + (f" and {len(changed) - 1} more" if changed[1:] else "")
        return reasons

    def pruning(self, spec: HostSpec, facts: Facts, names: Collection[str]) -> Foreseen:
        """Return the same, limited to removals of what these capabilities brought."""
        left = tuple(resource for resource in self.unmanaged if resource.capability in names)
        return msgspec.structs.replace(self, unmanaged=left, prune=prune_values(spec, facts, left, names))

    def only(self, run: Collection[str]) -> Foreseen:
        """Return the same for the capabilities that run."""
        kept = {
            name: {key: value for key, value in getattr(self, name).items() if key in run}
            for name in ("files", "texts", "packages", "moves", "sources", "waits", "unknown")
        }
        comes = "nvidia_driver" in run
        return msgspec.structs.replace(
            self, **kept, driver=self.driver if comes else judging.driver({}), without=self.without if comes else ()
        )


def probes(spec: HostSpec, only: Collection[str] | None = None) -> Iterator[Probe[Any]]:
    """Yield the probes needed beside those of the checks."""
    for name in _list_selected(spec, only):
        if declaration := BY_NAME[name].desired:
            yield from (probe.of(spec) for probe in declaration.probes)
    yield contents.CONTENTS


def foresee(
    spec: HostSpec, facts: Facts, results: Sequence[Result] = (), only: Collection[str] | None = None
) -> Foreseen:
    """Predict what the roles of a host would do, from the same facts as theirs: those after nvidia_driver by the
    version that it installs. only: limit to these capabilities."""
    unknown, values = dict[str, str](), dict[str, dict[str, Any]]()
    files, texts = dict[str, tuple[Difference, ...]](), dict[str, tuple[Text, ...]]()
    selected = _list_selected(spec, only)
    host = spec
    for name in selected:
        capability, context = BY_NAME[name], Context(host, spec.capabilities[name], facts)
        if capability.desired is None:
            continue
        try:
            made = msgspec.to_builtins(capability.desired.make(context))
            files[name], texts[name] = _split_files(capability, context, made)
            values[name] = made
            host = judging.with_driver(spec, made["version"]) if name == judging.DRIVER else host
        except ProbeFailed as error:
            unknown[name] = str(error)
        except Exception as error:
            unknown[name] = "; ".join(defect(f"what {name} brings about", error))
    unmanaged = find_unmanaged(spec, facts, values)
    return Foreseen(
        files=files,
        texts=texts,
        packages={name: tuple(_list_packages(name, made)) for name, made in values.items()},
        moves=moves_of(selected, results),
        sources={name: source for name, made in values.items() if (source := _make_source(name, made))},
        driver=judging.driver(values),
        without=tuple(values.get("nvidia_driver", {}).get("leaving", ())),
        settings=get_package_settings(spec.site),
        waits={name: wait["told"] for name, wait in judging.waiting(values).items()},
        unknown=unknown,
        unmanaged=unmanaged,
        prune=prune_values(spec, facts, unmanaged),
    )


def _make_source(name: str, made: Mapping[str, Any]) -> Source:
    """Return the package source that a role adds: a repository with its key, or Debian's components, whose keys are on
    the host."""
    if block := made.get("repository"):
        return msgspec.convert({**SOURCE, **block}, Source)
    return {"of": name, "files": files} if name == judging.DRIVER and (files := made["components"]) else {}


def _list_selected(spec: HostSpec, only: Collection[str] | None) -> list[str]:
    return [name for name in spec.capabilities if (only is None or name in only) and name in BY_NAME]


def with_keys(foreseen: Foreseen, keys: Keys) -> Foreseen:
    """Return the same with the keys of its package sources, which this machine reads or fetches, or the reason why a
    key is missing. keys: those tried so far, shared by the hosts of a fleet."""
    sources, unknown = dict[str, Source](), dict(foreseen.unknown)
    for name, block in foreseen.sources.items():
        if "files" in block:
            sources[name] = block
            continue
        source = msgspec.json.encode(block)
        if source not in keys:
            try:
                keys[source] = repository_key.fetch_key(block, os.environ, repository_key.fetch_over_https)[0], ""
            except Refused as refused:
                keys[source] = "", str(refused)
        key, problem = keys[source]
        if problem:
            unknown[name] = problem
        else:
            sources[name] = {**block, "key": key}
    return msgspec.structs.replace(foreseen, sources=sources, unknown=unknown)


def request(foreseen: Foreseen) -> look.Request:
    """Return the request to the host for `gpuprov.host_code.look`; empty if nothing is left to find out."""
    transactions = [transaction for each in foreseen.packages.values() for transaction in each]
    paths = [file.path for each in foreseen.texts.values() for file in each]
    if not (transactions or paths or foreseen.sources):
        return {}
    return {
        **question(foreseen),
        "transactions": [
            msgspec.to_builtins(transaction) | {"driver": {} if transaction.is_driver else foreseen.driver}
            for transaction in transactions
        ],
        "sources": list(foreseen.sources.values()),
        "texts": paths,
        "without": list(foreseen.without),
    }


def question(foreseen: Foreseen) -> look.Request:
    """Return an empty request."""
    request: look.Request = {"transactions": [], "sources": [], "texts": [], "without": []}
    for name, seconds in foreseen.settings.items():
        request["lock_timeout" if name == "lock_timeout" else "max_age"] = seconds
    return request


def moves_of(names: Iterable[str], results: Sequence[Result]) -> dict[str, frozenset[Change]]:
    """Return the packages and holds that checks of these capabilities name."""
    return {name: frozenset(_list_check_moves(name, results)) for name in names}


def _list_check_moves(name: str, results: Iterable[Result]) -> Iterator[Change]:
    for result in results:
        if result.capability == name:
            yield from (change for change in result.changes if change.kind in ("package", "hold"))


def _list_packages(name: str, made: Mapping[str, Json]) -> Iterable[Packages]:
    declaration = BY_NAME[name].desired
    for package in declaration.packages(made) if declaration else ():
        if not package.empty:
            yield msgspec.structs.replace(package, of=package.of or name)


def _split_files(
    capability: Capability, context: Context[Any], made: Mapping[str, Any]
) -> tuple[tuple[Difference, ...], tuple[Text, ...]]:
    """Return the differing files of a capability, and separately those with a text, which is compared on the host."""
    texts = [Text(path, text, "") for path, text in made.get("components", {}).items()]
    if capability.resources is None:
        return (), tuple(texts)
    host_contents = context.facts.get(contents.CONTENTS)
    resources = resources_of(capability, context, coming=True)
    differing = {difference.path: difference for difference in differences(resources, host_contents)}
    for resource in resources:
        if isinstance(resource, File | Lines) and resource.path in differing:
            text = _compute_new_text(resource, differing[resource.path], host_contents)
            texts += [Text(resource.path, text, differing[resource.path].before)] if text is not None else []
    compared = {text.path for text in texts}
    return tuple(difference for path, difference in differing.items() if path not in compared), tuple(texts)


def _compute_new_text(resource: File | Lines, difference: Difference, host_contents: contents.Contents) -> str | None:
    """Return the text that apply gives a settings file; None if apply leaves it, and for a program, whose text is not
    shown."""
    path = resource.path
    if isinstance(resource, Lines):
        before = "" if path in host_contents.missing else host_contents.texts.get(path)
        after = before if before is None else set_keys(path, before, resource.keys)
        return None if after == before else after
    is_program = resource.mode != PLAIN or path.startswith(f"{ABOVE}/")
    if is_program or not difference.before.startswith((ABSENT, ANOTHER_TEXT)):
        return None
    return resource.text.replace(PYTHON, next(iter(host_contents.pythons.get(path, ())), "/usr/bin/python3"))
