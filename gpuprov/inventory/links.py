"""Problems with files of variables: links that are broken or circular, and files that belong to another user."""

import os
from collections.abc import Iterable, Iterator

from gpuprov.core import safe_parse
from gpuprov.inventory.sources import PLANTED, is_host_list, show_path
from gpuprov.spec.problem import Origin, Problem

VARIABLES = ("group_vars", "host_vars")


def find_astray(sources: Iterable[str]) -> Iterator[Problem]:
    """Yield a problem for each link that is a loop, or leads back, below the group_vars and host_vars that belong to
    the sources, and for those of another user: for this reason, Ansible's ad-hoc commands read none in the current
    folder (CVE-2018-10874)."""
    paths = [source for source in sources if not is_host_list(source)]
    folders = [path if os.path.isdir(path) else os.path.dirname(path) for path in paths]
    seen: set[str] = set()
    for folder in dict.fromkeys([*folders, os.getcwd()]):
        for name in VARIABLES:
            path = os.path.join(folder, name)
            if safe_parse.is_planted(path):
                fix = "start gpuprov, and keep inventories, where nobody else writes"
                yield Problem(message=f"this is {PLANTED}", origin=Origin(show_path(path)), fix=fix)
            yield from walk_below(path, (), seen)


def walk_below(path: str, above: tuple[str, ...], seen: set[str]) -> Iterator[Problem]:
    if what := safe_parse.explain_refusal(path):
        if what == safe_parse.LOOP:
            yield Problem(message=f"this is {what}", origin=Origin(show_path(path)), fix="remove it")
        return
    if not os.path.isdir(path):
        return
    real = os.path.realpath(path)
    if real in above:
        message = "this link leads back to a folder that it lies in"
        yield Problem(message=message, origin=Origin(show_path(path)), fix="remove it")
    if real in seen:
        return
    seen.add(real)
    try:
        entries = sorted((entry.path, entry.is_symlink() or entry.is_dir()) for entry in os.scandir(path))
    except OSError:
        return  # Ansible says of what it cannot read
    for entry, may_lead in entries:
        if may_lead:
            yield from walk_below(entry, (*above, real), seen)
