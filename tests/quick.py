"""Usage: python tests/quick.py [COMMIT]. The tests of the rooms that a change touches, and the contracts.

The change is the difference from the last commit, or, if there is none, from the branch main. COMMIT names another
commit to compare with.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
CONTRACTS = "tests/contracts"
ALSO = {
    "docs": "tests/docs",
    "README.md": "tests/docs",
    "CHANGELOG.md": "tests/docs",
    "roles": "tests/roles",
    "playbooks": "tests/roles",
    "plugins": "tests/host_code",
    "Makefile": "tests/test_workflows.py",
    ".github": "tests/test_workflows.py",
    "pyproject.toml": "tests/docs/test_long_description.py",
}
"""Tests for files other than gpuprov's Python, by the beginning of the path."""
FIXPOINT = "tests/contracts/test_fixpoint.py"
ROOMS = ("capabilities", "catalog", "facts", "host_code", "plan", "resources", "rules", "spec", "verify")
JUDGED_BY_IT = (*(f"gpuprov/{room}/" for room in ROOMS), FIXPOINT)
"""The slowest contract is left out unless a change touches these; make check always runs it."""


def read_git(*words: str) -> list[str]:
    done = subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True, check=False)
    return done.stdout.splitlines() if done.returncode == 0 else []


def list_changes(base: str = "") -> list[str]:
    """List paths that differ from a commit, including untracked ones."""
    new = read_git("ls-files", "--others", "--exclude-standard")
    changed = [*read_git("diff", "--name-only", base or "HEAD"), *new]
    if changed or base:
        return changed
    start = read_git("merge-base", "HEAD", "main")
    return read_git("diff", "--name-only", *start) if start else []


def find_tests(path: str, root: Path = ROOT) -> Iterator[str]:
    """Yield the narrowest tests of a file: its own, those of its package, those of its room."""
    parts = Path(path).parts
    if parts[0] == "tests":
        if Path(path).name.startswith("test_") and path.endswith(".py") and (root / path).is_file():
            yield path
        return
    if parts[0] == "gpuprov" and len(parts) > 1:
        yield from _find_narrowest([*parts[1:-1], Path(path).stem], root)
    elif found := next((tests for start, tests in ALSO.items() if parts[0] == start), None):
        yield found


def _find_narrowest(names: list[str], root: Path) -> list[str]:
    for depth in range(len(names), 0, -1):
        folder, name = root.joinpath("tests", *names[: depth - 1]), names[depth - 1]
        if (folder / name).is_dir():
            return [str((folder / name).relative_to(root))]
        if found := sorted(folder.glob(f"test_{name}.py")) or sorted(folder.glob(f"test_{name}_*.py")):
            return [str(file.relative_to(root)) for file in found]
    return []


def choose_tests(changes: list[str], root: Path = ROOT) -> list[str]:
    """Return each test once, without those that another argument covers."""
    wanted = {CONTRACTS, *(test for path in changes for test in find_tests(path, root))}
    return sorted(test for test in wanted if not {str(above) for above in Path(test).parents} & wanted)


def choose_words(changes: list[str], root: Path = ROOT) -> list[str]:
    """Return the arguments of pytest."""
    left_out = [] if any(path.startswith(JUDGED_BY_IT) for path in changes) else [f"--ignore={FIXPOINT}"]
    return [*choose_tests(changes, root), *left_out]


if __name__ == "__main__":
    if len(sys.argv) > 2:
        sys.exit(__doc__)
    words = choose_words(list_changes(*sys.argv[1:]))
    print("quick:", *words, file=sys.stderr)
    sys.exit(subprocess.call([sys.executable, "-m", "pytest", "-n", "2", "--dist", "worksteal", *words], cwd=ROOT))
