"""Changes that the modules of a run made on a host, from their answers: evidence beside the readings before and after.
Pure."""

from collections.abc import Iterable, Iterator, Mapping
from operator import attrgetter

import msgspec

from gpuprov.capabilities.base import Change
from gpuprov.core.safe_parse import TreeView
from gpuprov.plan.model import HOST, Item

HOLDS = {"hold": ("not held", "held"), "release": ("held", "not held")}


def moves(rows: Iterable[str], installed: Mapping[str, str]) -> list[Change]:
    """Return the changes that the rows name, by name of the package: the order in which a package manager lists them
    differs from run to run. A row of prose that names no package is one change of that name. installed: the versions
    before, by name."""
    return sorted(_list_changes(rows, installed), key=attrgetter("kind", "name"))


def _list_changes(rows: Iterable[str], installed: Mapping[str, str]) -> Iterator[Change]:
    for row in rows:
        word, name, *rest = *row.split(), "", ""
        before = installed.get(name.partition(":")[0], "")
        if word in HOLDS:
            yield Change(kind="hold", name=name, before=HOLDS[word][0], after=HOLDS[word][1])
        elif word == "Remv":
            yield Change(kind="package", name=name, before=before, after="removed")
        elif word == "Inst":
            yield Change(kind="package", name=name, before=before, after=rest[0])
        elif word:
            yield Change(kind="package", name=row)


# Limit for each task: a host chooses what it answers.
MOST = 2000
# The rows of `gpuprov_packages` that name a package; others are prose.
MOVED = ("Inst", "Remv", "hold", "release")

# Reboot of the host, which has more effects than a task reports.
REBOOT = Item(capability=HOST, kind="setting", name="reboot", after="rebooted")


def made(capability: str, module: str, result: TreeView) -> list[Item]:
    """Return what a task has changed, as far as its module names it. capability: that of the task; empty for the role
    of all hosts. module: its name, or that of the step of gpuprov_step."""
    rows = result.get("results")
    items: list[Item] = []
    for row in rows if isinstance(rows, list) else (result,):
        if isinstance(row, Mapping) and row.get("changed"):
            items += _list_module_items(capability or HOST, module, row)
    return items[:MOST]


def _list_module_items(capability: str, module: str, answer: TreeView) -> Iterator[Item]:
    if module == "gpuprov_packages":
        rows = (row for row in _list_texts(answer, "changes") if row.split()[:1] and row.split()[0] in MOVED)
        yield from (Item.of(capability, change) for change in moves(rows, {}))
    elif module == "gpuprov_files":
        righted = Item(kind="file", name="", before="differed", after="matches the spec", capability=capability)
        yield from (msgspec.structs.replace(righted, name=path) for path in _list_texts(answer, "paths"))
        yield from (
            msgspec.structs.replace(righted, kind="service", name=unit) for unit in _list_texts(answer, "units")
        )
    elif module == "boot":
        images = (path for path in _list_texts(answer, "renewed") if "/init" in path)
        yield from (Item(capability=capability, kind="initramfs", name=path, after="rebuilt") for path in images)
    elif module == "settings":
        restored = Item(kind="setting", name="", after="put back", capability=capability)
        yield from (msgspec.structs.replace(restored, name=name) for name in _list_texts(answer, "restored"))
    elif module == "reboot":
        yield REBOOT
    elif module == "clients":
        yield from (Item(capability=capability, kind="client", name=unit) for unit in _list_texts(answer, "stopped"))


def _list_texts(answer: TreeView, key: str) -> Iterable[str]:
    value = answer.get(key)
    return [entry for entry in value if isinstance(entry, str)] if isinstance(value, list) else []
