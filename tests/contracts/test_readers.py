"""Output of hosts and contents of inventories are read by `gpuprov.core.safe_parse`, which has limits; nothing bypasses
it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from tests.contracts.test_imports import dotted, find_nodes

PACKAGE = Path(__file__).parents[2] / "gpuprov"
OURS = {
    "host_code": "runs on hosts, with the standard library alone",
    "core/safe_parse": "the readers themselves",
    "simulate": "runs on simulated hosts, and reads its own files",
    "rules/engines.py": "below the readers, with limits of its own",
    "rules/engine_runtimes.py": "below the readers, with limits of its own",
    "rules/engine_files.py": "the same: what nvidia-ctk wrote, and what it was made of",
    "pull/bundles.py": "writes the archive of a bundle",
    "bake/first_boot.py": "writes the archive that is unpacked in an image",
    "pull/program.py": "writes the archive of the puller",
    "bundle/placed.py": "writes the archive of packages for hosts",
    "bundle/repository.py": "reads the index that createrepo_c has just written here",
    "bundle/resolve.py": "takes packages of any size from an archive, with the readers' bounded headers",
    "inventory/duplicates.py": "composes a file that was read before, within the limits",
}
READERS = re.compile(
    r"(yaml\.(load|safe_load|load_all|compose)|json\.(loads|load|decode)|tomllib\.loads?|msgspec\.(json|yaml|toml)"
    r"\.decode|ElementTree\.(parse|fromstring|XML)|tarfile\.open|zipfile\.ZipFile|pickle\.loads?)\Z"
)
DIGITS = {"isdigit", "isdecimal", "isnumeric"}
ANY_LENGTH = {"facts/probes/software/rpm.py", "inventory/ranges.py"}
"""Files that match digits without converting them to numbers, or accept too many."""


def calls(path: Path) -> list[tuple[int, str, ast.Call]]:
    return [(node.lineno, dotted(node.func), node) for node in find_nodes(path, ast.Call)]


def excused(path: Path) -> bool:
    shown = str(path.relative_to(PACKAGE))
    return any(shown == name or shown.startswith(f"{name}/") for name in OURS)


def own_encoding(call: ast.Call) -> bool:
    """Return whether a call is `decode(encode(value))`: plain values of a typed one."""
    return bool(call.args) and ast.unparse(call.args[0]).startswith("msgspec.json.encode(")


def test_documents_are_read_by_the_readers_with_limits() -> None:
    wrong = {
        (str(path.relative_to(PACKAGE)), line, name)
        for path in PACKAGE.rglob("*.py")
        if not excused(path)
        for line, name, call in calls(path)
        if READERS.search(name) and not own_encoding(call) and not name.startswith("reading.")
    }
    assert not wrong, "read it with gpuprov.core.safe_parse"


def test_digits_of_other_scripts_are_not_taken_for_numbers() -> None:
    wrong = {
        (str(path.relative_to(PACKAGE)), line)
        for path in PACKAGE.rglob("*.py")
        if not excused(path)
        for line, name, _ in calls(path)
        if name.rpartition(".")[2] in DIGITS and str(path.relative_to(PACKAGE)) not in ANY_LENGTH
    }
    assert not wrong, "gpuprov.core.safe_parse.is_whole"


def test_excuses_are_of_files_that_exist() -> None:
    assert all((PACKAGE / name).exists() for name in OURS)


def test_no_shell_history_is_read() -> None:
    """What people typed is theirs: drift tells what package managers logged, and nothing else."""
    history = re.compile("(?:sh|ql|python)_history|HISTFILE|viminfo|lesshst")
    places = [
        path for folder in ("gpuprov", "roles", "plugins", "playbooks") for path in (PACKAGE.parent / folder).rglob("*")
    ]
    found = [path for path in places if path.is_file() and path.suffix in (".py", ".yml", ".sh", ".j2", ".yaml")]
    assert len(found) > 500
    assert not [str(path) for path in found if history.search(path.read_text(encoding="utf-8"))]
