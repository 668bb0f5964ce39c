"""A capability's statements about its role are true, and so are the lists that follow from its fields."""

from __future__ import annotations

import ast
import importlib.util
import re
from collections.abc import Sequence
from pathlib import Path

from gpuprov.capabilities import BY_NAME, CAPABILITIES
from gpuprov.capabilities.base import Capability
from gpuprov.render import checkout
from gpuprov.render.carried import role_files
from tests.contracts.test_imports import FILES, find_nodes, room, shown
from tests.rows import run_each

ROOT = Path(__file__).parents[2]
WHERE = "gpuprov/capabilities/{}: Capability"


def text_of(name: str) -> str:
    """Return all text of a role that Ansible reads."""
    folders = ("tasks", "vars", "defaults")
    files = (path for folder in folders for path in sorted((ROOT / "roles" / name / folder).rglob("*")))
    return "\n".join(path.read_text(encoding="utf-8") for path in files if path.is_file())


@run_each("name", list(BY_NAME))
def test_a_role_names_the_tables_that_its_capability_gives_it(name: str) -> None:
    named = set(re.findall(r"gpuprov_catalog\.(\w+)", text_of(name)))
    given = set(BY_NAME[name].tables())
    where = WHERE.format(name)
    assert named <= given, f"{where}.tables lacks {sorted(named - given)}, which the role reads from gpuprov_catalog"
    assert given <= named, f"{where}.tables has {sorted(given - named)}, which its role does not read"


def test_one_name_is_one_table() -> None:
    known: dict[str, object] = {}
    for capability in BY_NAME.values():
        for name, table in capability.tables().items():
            assert known.setdefault(name, table) == table, f"two tables are called {name}; one is {capability.name}'s"


@run_each("name", [capability.name for capability in CAPABILITIES])
def test_a_capability_says_whether_its_role_installs_packages(name: str) -> None:
    installs = "gpuprov_packages:" in text_of(name)
    assert BY_NAME[name].packages == installs, f"{WHERE.format(name)}.packages should be {installs}: so does the role"


PROVES_ONLY = {"health", "topology"}
"""Capabilities that change nothing: health and wiring of a host."""


@run_each("name", [capability.name for capability in CAPABILITIES])
def test_a_role_has_something_to_do(name: str) -> None:
    assert checkout.stages(name) or name in PROVES_ONLY, (
        f"{name}: its TASKS have no stage, so that its role does nothing; stages: {', '.join(checkout.STAGES)}"
    )


@run_each("name", [c.name for c in CAPABILITIES if c.carried])
def test_what_is_carried_is_named_by_the_role(name: str) -> None:
    own = {path for path in (ROOT / "roles" / name / "files").rglob("*") if path.is_file()}
    carried = [
        path for path in role_files(name).values() if path.suffix == ".py" and ROOT / "roles" not in path.parents
    ]
    assert carried, own
    room_ = ROOT / "gpuprov" / "capabilities"
    own_text = [room_ / "at_boot.py", *room_.glob(f"{name}.py"), *room_.glob(f"{name}/**/*.py")]
    worked_out = "\n".join(path.read_text() for path in own_text)
    for path in carried:
        named = path.name in text_of(name) or f'"{path.stem}' in worked_out
        assert named, (
            f"{WHERE.format(name)}.carried has {path.name}, which neither its role nor what is worked out for it names"
        )


LISTS = {
    "accept/model.py": "kinds of measurements, which are called as what they measure",
    "catalog/drivers/rules.py": "parts of a driver's packages",
    "cli/sections.py": "commands",
    "spec/model.py": "names that a variable beside gpuprov is warned of; test_one_truth compares them with the "
    "registry",
    "init/draft.py": "what a first inventory asks for, by choice",
    "cli/drain.py": "schedulers, two of which are called as the capabilities for their nodes",
    "fleet/drain/choose.py": "the same",
    "fleet/policy/policy.py": "the same",
    "host_code/restore/kinds.py": "single checks, whose settings can be put back; test_settings compares them with "
    "the registry",
    "host_code/restore/act.py": "the same, by what their names begin with",
    "verify/images.py": "single checks, which an image leaves to its first boot; tests/bake compares them with the "
    "registry",
}
SEVERAL: tuple[type[ast.List | ast.Tuple | ast.Set], ...] = (ast.List, ast.Tuple, ast.Set)


def test_no_list_of_capabilities_stands_elsewhere() -> None:
    """What another room has to know of each capability is a field of it, so that a further one is complete by
    itself."""
    names, found = {capability.name for capability in CAPABILITIES}, set()
    for path in FILES:
        if room(path) in ("capabilities", "simulate"):
            continue
        lists: list[Sequence[ast.expr | None]] = [node.keys for node in find_nodes(path, ast.Dict)]
        for kind in SEVERAL:
            lists += [node.elts for node in find_nodes(path, kind)]
        for keys in lists:
            texts = {key.value for key in keys if isinstance(key, ast.Constant)}
            if len({str(text).partition(".")[0] for text in texts} & names) > 1:
                found.add(shown(path))
    assert found == set(LISTS)


@run_each("capability", [c for c in CAPABILITIES if c.carried], ids=lambda c: c.name)
def test_what_is_carried_imports_nothing_that_is_not(capability: Capability) -> None:
    """A program on a host is a package with the capability's name: a module left out is missed at the next boot."""
    absent = set()
    for name in capability.carried:
        spec = importlib.util.find_spec(name)
        if not name.startswith("gpuprov.") or spec is None or spec.origin is None:
            continue
        package = name if spec.submodule_search_locations else name.rpartition(".")[0]
        for node in ast.walk(ast.parse(Path(spec.origin).read_text(encoding="utf-8"))):
            if not isinstance(node, ast.ImportFrom) or node.level != 1:
                continue
            base = f"{package}.{node.module}" if node.module else package
            modules = [base] if node.module else [f"{base}.{alias.name}" for alias in node.names]
            absent |= {module for module in modules if importlib.util.find_spec(module)} - {*capability.carried}
    assert not absent, f"add to the program of {capability.name} what its modules import: {', '.join(sorted(absent))}"
