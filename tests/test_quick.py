"""`make quick` runs the tests for the changed files, and no others but the contracts."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import quick


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in (
        "contracts/test_a.py",
        "plan/test_read.py",
        "plan/test_page.py",
        "facts/probes/gpus/test_smi.py",
        "capabilities/test_mig_fit.py",
        "capabilities/test_mig_desired.py",
        "capabilities/test_mps.py",
        "core/test_terminal.py",
    ):
        (tmp_path / "tests" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "tests" / name).touch()
    return tmp_path


@pytest.mark.parametrize(
    ("path", "tests"),
    [
        ("gpuprov/plan/page.py", ["tests/plan/test_page.py"]),
        ("gpuprov/plan/other.py", ["tests/plan"]),
        ("gpuprov/facts/probes/gpus/nvml.py", ["tests/facts/probes/gpus"]),
        (
            "gpuprov/capabilities/mig/desired.py",
            ["tests/capabilities/test_mig_desired.py", "tests/capabilities/test_mig_fit.py"],
        ),
        ("gpuprov/core/terminal.py", ["tests/core/test_terminal.py"]),
        ("gpuprov/nowhere.py", []),
        ("tests/plan/test_read.py", ["tests/plan/test_read.py"]),
        ("tests/plan/test_deleted.py", []),
        ("tests/plan/events.jsonl", []),
        ("docs/how-to/mig.md", ["tests/docs"]),
        ("LICENSE", []),
    ],
)
def test_the_narrowest_tests_of_a_file(tree: Path, path: str, tests: list[str]) -> None:
    assert list(quick.find_tests(path, tree)) == tests


def test_each_once_beside_the_contracts(tree: Path) -> None:
    assert quick.choose_tests([], tree) == ["tests/contracts"]
    changes = ["gpuprov/plan/other.py", "gpuprov/plan/page.py", "tests/contracts/test_a.py"]
    assert quick.choose_tests(changes, tree) == ["tests/contracts", "tests/plan"]


def test_the_longest_contract_runs_where_a_change_can_break_it(tree: Path) -> None:
    assert quick.choose_words(["README.md"], tree) == ["tests/contracts", "tests/docs", f"--ignore={quick.FIXPOINT}"]
    for path in ("gpuprov/capabilities/mps/desired.py", quick.FIXPOINT):
        assert f"--ignore={quick.FIXPOINT}" not in quick.choose_words([path], tree)


def test_what_it_names_exists() -> None:
    names = (quick.CONTRACTS, *quick.JUDGED_BY_IT, *quick.ALSO.values(), *quick.ALSO)
    assert [name for name in names if not (quick.ROOT / name).exists()] == []


def test_changes_are_read_from_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quick, "ROOT", tmp_path)
    who = ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]

    def commit(name: str) -> None:
        (tmp_path / name).touch()
        quick.read_git("add", name)
        quick.read_git(*who, "commit", "-m", name)

    quick.read_git("init", "-b", "main")
    commit("first")
    quick.read_git("checkout", "-b", "work")
    commit("second")
    assert quick.list_changes() == ["second"], "what the branch has beside main"
    assert quick.list_changes("HEAD") == []
    (tmp_path / "first").write_text("changed")
    (tmp_path / "new").touch()
    assert quick.list_changes() == ["first", "new"]
    assert quick.list_changes("main") == ["first", "second", "new"]
