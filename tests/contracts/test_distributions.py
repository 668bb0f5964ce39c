"""Every table by distribution knows every row of data/distributions.yaml, or the row says why it does not."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gpuprov.catalog import acceptance, fabric, mps, rdma, reader
from gpuprov.catalog.cuda.packages import read_toolkits_file
from gpuprov.catalog.distributions import (
    Distribution,
    DistributionsFile,
    find_distribution,
    list_distributions,
    list_managed,
)
from gpuprov.catalog.drivers.data import read_drivers_file
from gpuprov.catalog.drivers.rules import list_entries
from gpuprov.catalog.drivers.traits import TRAITS
from gpuprov.catalog.packages import list_origins
from gpuprov.catalog.rdma import gpudirect, ofed
from gpuprov.catalog.repositories import read_repositories_file
from gpuprov.host_code import family as host_family
from gpuprov.simulate.distributions import TABLE
from tests.contracts.test_imports import FILES, nodes
from tests.rows import run_each

ROOT = Path(__file__).parents[2]
DATA = "gpuprov/catalog/data"
ROWS = f"{DATA}/distributions.yaml"
LISTS = f"{DATA}/drivers.yaml, whose lists name a distribution by its key or by one of its groups"


def archives(row: Distribution) -> list[str]:
    return [archive.key for archive in list_origins(row.key)]


def find_driver(row: Distribution) -> Iterator[str]:
    if not archives(row):
        yield "archive with a driver (origins)"
    for archive in archives(row):
        yield from (
            f"{part} of {archive}" for part in ("kernel-modules", "user-space") if not list_entries(row, archive, part)
        )


def find_build(row: Distribution) -> Iterator[str]:
    yield from (
        part for part in ("dkms", "kernel-headers") if not list_entries(row, (archives(row) or ["runfile"])[-1], part)
    )


def find_parts(*parts: str) -> Callable[[Distribution], Iterator[str]]:
    return lambda row: (part for part in parts if not fabric.build_rules(row.id, row.version_id, part))


def find_traits(row: Distribution) -> Iterator[str]:
    known = [archive for id_, archive in TRAITS if id_ == row.id]
    yield from (f'("{row.id}", "{archive}")' for archive in archives(row) or ["runfile"] if archive not in known)


def find_libraries(row: Distribution) -> Iterator[str]:
    known = {entry.library for entry in read_toolkits_file().libraries if entry.family == row.family}
    yield from (name for name in ("cudnn", "nccl") if name not in known)


def find_tools(row: Distribution) -> Iterator[str]:
    yield from (tool.key for tool in acceptance.read_acceptance_file().tools if not getattr(tool, row.family))


def find_simulated(row: Distribution) -> Iterator[str]:
    if row.key not in {entry.catalogue for entry in TABLE}:
        yield f"host with {row.id} {row.version_id}"


def find_in_readme(row: Distribution) -> Iterator[str]:
    lines = (ROOT / "README.md").read_text(encoding="utf-8").replace(",", " ").splitlines()
    scope = [line.split() for line in lines[lines.index("## Scope today") :] if line.startswith("|")]
    if not any(set(row.name.split()) <= set(words) for words in scope):
        yield row.name


def unless(known: object, what: str) -> Iterator[str]:
    if not known:
        yield what


TABLES: dict[str, tuple[str, Callable[[Distribution], Iterable[str]]]] = {
    "driver": (LISTS, find_driver),
    "build": (LISTS, find_build),
    "fabric_manager": (LISTS, find_parts("fabric-manager")),
    "imex": (LISTS, find_parts("imex")),
    "switch_libraries": (LISTS, find_parts("nscq", "nvsdm")),
    "traits": ("gpuprov/catalog/drivers/traits.py", find_traits),
    "cuda_repository": (f"{ROWS}, field cuda of the row", lambda row: unless(row.cuda, "NVIDIA's repository")),
    "container_toolkit": (
        f"{DATA}/repositories.yaml",
        lambda row: unless(read_repositories_file().bases.get(f"container_toolkit_{row.family}"), row.family),
    ),
    "cuda_libraries": (f"{DATA}/toolkits.yaml", find_libraries),
    "mps": (f"{DATA}/mps.yaml", lambda row: unless(mps.list_program_packages(row.family, 580), row.family)),
    "doca": (f"{DATA}/rdma_ofed.yaml", lambda row: unless(ofed.list_packages(row.family), row.family)),
    "gdrcopy": (f"{DATA}/gpudirect.yaml", lambda row: unless(gpudirect.find_gdrcopy(row.family), row.family)),
    "rdma": (
        f"{DATA}/rdma.yaml",
        lambda row: rdma.list_unknown(row.family, *(entry.key for entry in rdma.read_rdma_file().packages)),
    ),
    "acceptance": (f"{DATA}/acceptance.yaml", find_tools),
    "host_family": (
        "gpuprov/host_code/family.py",
        lambda row: (name for name in (row.id, *row.likes) if host_family.derive_family(name) != row.family),
    ),
    "simulated_host": ("gpuprov/simulate/distributions.py", find_simulated),
    "readme": ('README.md, "Scope today"', find_in_readme),
}
"""Tables by their names in `without`: the file, and a function that lists what it lacks for a row."""


def find_problems(row: Distribution) -> list[str]:
    """List what is missing for a row, with the file to edit, and the wrong entries of its `without`."""
    lacks = {name: list(find(row)) for name, (_, find) in TABLES.items()}
    return [
        *(
            f"{row.key}: {name} lacks {', '.join(lacks[name])}: add it to {file}; if nobody offers it, "
            f'write why in {ROWS}: without: {{{name}: "..."}}'
            for name, (file, _) in TABLES.items()
            if lacks[name] and name not in row.without
        ),
        *(
            f"{row.key}: without names {name}, which is not a table: {', '.join(TABLES)}"
            for name in {*row.without} - {*TABLES}
        ),
        *(
            f"{row.key}: without names {name}, which knows it: take it out"
            for name in row.without
            if lacks.get(name) == []
        ),
    ]


@run_each("row", list_managed(), ids=lambda row: str(row.key))
def test_every_table_knows_every_distribution(row: Distribution) -> None:
    if problems := find_problems(row):
        pytest.fail("\n".join(problems), pytrace=False)
    assert ("nvidia" in archives(row)) == bool(row.cuda), (
        "its groups and its field cuda disagree about NVIDIA's repository"
    )
    assert row.version_id


def test_os_release_leads_to_the_row() -> None:
    for row in list_distributions():
        assert [find_distribution(name, row.version_id) for name in (row.id, *row.likes)] == [row] * (
            len(row.likes) + 1
        )


def test_simulated_hosts_have_the_codename_of_their_row() -> None:
    assert [host.codename for host in TABLE] == [host.row.codename for host in TABLE]


@pytest.fixture
def add_row(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Distribution]]:
    """Add debian99, a copy of debian13 with the given differences, to the table in memory."""

    def add(**changes: Any) -> Distribution:
        file = reader.load("distributions", DistributionsFile)
        like = next(row for row in file.distributions if row.key == "debian13")
        new = {"key": "debian99", "name": "Debian 99", "version_id": "99", **changes}
        row: Distribution = msgspec.structs.replace(like, **new)
        changed = msgspec.structs.replace(file, distributions=(*file.distributions, row))
        monkeypatch.setitem(reader._loaded, "distributions", changed)
        forget()
        return row

    def forget() -> None:
        read_drivers_file.cache_clear()
        fabric.build_rules.cache_clear()

    yield add
    monkeypatch.undo()
    forget()


ALWAYS = {"simulated_host", "readme"}


@pytest.mark.parametrize(
    ("changes", "tables"),
    [
        ({}, ALWAYS),
        ({"cuda": None}, ALWAYS | {"cuda_repository"}),
        ({"groups": ()}, ALWAYS | {"driver", "build", "fabric_manager", "imex", "switch_libraries", "traits"}),
        ({"groups": ("debian",)}, ALWAYS | {"fabric_manager", "imex", "switch_libraries"}),
        ({"groups": ("apt",)}, ALWAYS | {"driver", "build"}),
        ({"id": "devuan"}, ALWAYS | {"traits", "host_family"}),
        (
            {"id": "suse", "manager": "zypper", "groups": ("suse",)},
            ALWAYS | {"traits", "cuda_libraries", "doca", "gdrcopy", "rdma", "acceptance"},
        ),
        ({"without": {"simulated_host": "for now", "readme": "for now"}}, set()),
    ],
)
def test_a_new_row_is_missed_by_name(
    add_row: Callable[..., Distribution], changes: dict[str, Any], tables: set[str]
) -> None:
    problems = find_problems(add_row(**changes))
    assert {problem.split()[1] for problem in problems} == tables
    for problem in problems:
        file = TABLES[problem.split()[1]][0]
        assert problem.startswith("debian99: ")
        assert f"add it to {file}; if nobody offers it, write why" in problem


def test_what_the_message_says(add_row: Callable[..., Distribution]) -> None:
    row = add_row(groups=("apt",), without={"readme": "for now", "doca": "for now", "dcoa": "for now"})
    excuse = f"; if nobody offers it, write why in {ROWS}: without: "
    assert find_problems(row) == [
        f"debian99: driver lacks kernel-modules of nvidia, user-space of nvidia: add it to {LISTS}{excuse}{{driver: "
        f'"..."}}',
        f'debian99: build lacks dkms, kernel-headers: add it to {LISTS}{excuse}{{build: "..."}}',
        "debian99: simulated_host lacks host with debian 99: add it to gpuprov/simulate/distributions.py"
        f'{excuse}{{simulated_host: "..."}}',
        f"debian99: without names dcoa, which is not a table: {', '.join(TABLES)}",
        "debian99: without names doca, which knows it: take it out",
    ]


def test_no_code_keeps_a_list_of_its_own() -> None:
    keys, lists = {row.key for row in list_distributions()}, []
    for path in FILES:
        for node in nodes(path):
            if isinstance(node, ast.Tuple | ast.List | ast.Set | ast.Dict):
                parts = [*node.keys, *node.values] if isinstance(node, ast.Dict) else node.elts
                named = [part.value for part in parts if isinstance(part, ast.Constant) and part.value in keys]
                lists += [f"{path.relative_to(ROOT)}:{node.lineno}"] if len(named) > 1 else []
    assert [place for place in lists if not place.startswith("gpuprov/simulate/distributions.py")] == []
