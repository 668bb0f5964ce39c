"""The program that runs under dnf's Python: whose version locks are ours, when a transaction is done, and how it gets
there."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from types import ModuleType
from unittest.mock import MagicMock

import pytest

from gpuprov.host_code.packages import dnf
from gpuprov.host_code.packages.dnf import Dnf
from gpuprov.host_code.packages.model import Settings, Transaction

NAMES = {"nvidia-driver", "libnccl", "kmod-nvidia-open-dkms"}
OLD = ("nvidia-driver", "x86_64", "3:570.211.01-1.el9")
NEW = ("nvidia-driver", "x86_64", "3:580.95.05-1.el9")
SAME_IN_32_BITS = ("nvidia-driver", "i686", "3:580.95.05-1.el9")


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """What the parts of the program define, without the host's dnf and rpm."""
    for name in ("dnf", "dnf.exceptions", "dnf.repo", "dnf.subject", "hawkey", "rpm"):
        monkeypatch.setitem(sys.modules, name, MagicMock())
    found = ModuleType("program")
    for part in ("dnf_base", "dnf_locks"):
        monkeypatch.delitem(sys.modules, f"gpuprov.host_code.packages.{part}", raising=False)
        found.__dict__.update(importlib.import_module(f"gpuprov.host_code.packages.{part}").__dict__)
        monkeypatch.delitem(sys.modules, f"gpuprov.host_code.packages.{part}")
    return found


def test_without_its_bundle_no_repository_is_asked(
    program: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUPROV_BUNDLE", str(tmp_path))
    with pytest.raises(program.Refused, match=r"dnf\.conf is not there, and no other source may be asked"):
        program.open_base({"action": "read"})


@pytest.mark.install
@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("nvidia-driver", "nvidia-driver"),
        ("nvidia-driver-3:580.95.05-1.el9.*", "nvidia-driver"),
        (" nvidia-driver-580.95.05-1.el9.x86_64 ", "nvidia-driver"),
        ("nvidia-driver-3:580.95.05", "nvidia-driver"),
        ("nvidia-driver-580.*-*", "nvidia-driver"),
        ("nvidia-driver.x86_64", "nvidia-driver"),
        ("kmod-nvidia-open-dkms-3:580.95.05-1.el9.noarch", "kmod-nvidia-open-dkms"),
        ("nvidia-driver-libs", ""),
        ("nvidia-driver-cuda-libs", ""),
        ("nvidia-driver-libs-3:580.95.05-1.el9.*", ""),
        ("nvidia-driver-cuda-libs-3:580.95.05-1.el9.x86_64", ""),
        ("libnccl-devel", ""),
        ("libnccl2", ""),
        ("nvidia-driver*", ""),
        ("nvidia-driver-*", ""),
        ("nvidia-*", ""),
        ("!nvidia-driver-3:580.95.05-1.el9.*", ""),
        ("# nvidia-driver-3:580.95.05-1.el9.*", ""),
        ("# Added lock on Mon Jan  5 10:00:00 2026", ""),
        ("kernel-5.14.0-611.el9.*", ""),
        ("", ""),
    ],
)
def test_a_lock_belongs_to_the_package_that_it_names(program: ModuleType, line: str, name: str) -> None:
    assert program.find_locked_name(line, NAMES) == name


def test_a_name_that_ends_like_a_version_is_the_longest_that_is_known(program: ModuleType) -> None:
    names = {"cuda-toolkit", "cuda-toolkit-12", "cuda-toolkit-12-8"}
    assert program.find_locked_name("cuda-toolkit-12-8-0:12.8.1-1.*", names) == "cuda-toolkit-12-8"
    assert program.find_locked_name("cuda-toolkit-12-8", names) == "cuda-toolkit-12-8"
    assert program.find_locked_name("cuda-toolkit-12-0:12.8.1-1.*", names) == "cuda-toolkit-12"


@pytest.mark.parametrize(
    ("coming", "going", "there", "undone"),
    [
        ({NEW}, {OLD}, {NEW}, []),
        ({NEW}, {NEW}, {NEW}, []),
        (set(), {OLD}, set(), []),
        ({NEW}, {OLD}, {OLD}, [f"{NEW[0]}-{NEW[2]} is not installed", f"{OLD[0]}-{OLD[2]} is still installed"]),
        ({NEW}, {OLD}, {NEW, OLD}, [f"{OLD[0]}-{OLD[2]} is still installed"]),
        ({NEW}, set(), {SAME_IN_32_BITS}, [f"{NEW[0]}-{NEW[2]} is not installed"]),
        (set(), {OLD}, {OLD}, [f"{OLD[0]}-{OLD[2]} is still installed"]),
    ],
    ids=["upgraded", "reinstalled", "removed", "nothing", "twice", "other-architecture", "not-removed"],
)
def test_a_transaction_is_judged_by_what_is_installed_then(
    program: ModuleType,
    coming: set[tuple[str, str, str]],
    going: set[tuple[str, str, str]],
    there: set[tuple[str, str, str]],
    undone: list[str],
) -> None:
    assert program.describe_unfinished(coming, going, there) == undone


def test_versions_of_the_database_are_written_as_dnf_has_them(program: ModuleType) -> None:
    class Database:
        def dbMatch(self) -> list[dict[str, object]]:
            return [
                {"name": "nvidia-driver", "arch": "x86_64", "epoch": 3, "version": "580.95.05", "release": "1.el9"},
                {"name": b"dkms", "arch": b"noarch", "epoch": None, "version": b"3.2.0", "release": b"1.el8"},
                {"name": "zero", "arch": "noarch", "epoch": 0, "version": "1", "release": "2"},
                {"name": "gpg-pubkey", "arch": None, "epoch": None, "version": "a1", "release": "b2"},
            ]

    program.rpm.TransactionSet = Database
    assert program.read_database() == {
        NEW,
        ("dkms", "noarch", "3.2.0-1.el8"),
        ("zero", "noarch", "1-2"),
        ("gpg-pubkey", None, "a1-b2"),
    }


SAYS = """
import json, sys
given = json.load(sys.stdin)
json.dump([[name, len(text)] for name, text in given["program"]] + [given["request"]], open(%r, "w"))
print(%r)
"""


def told(monkeypatch: pytest.MonkeyPatch, folder: Path, answer: str) -> Path:
    """A stand-in of dnf's Python that answers so; what it was given."""
    python = folder / "platform-python"
    python.write_text(f"#!{sys.executable}\n" + SAYS % (str(folder / "given.json"), answer))
    python.chmod(0o755)
    monkeypatch.setattr(dnf, "PYTHONS", (str(folder / "nobody"), str(python)))
    return folder / "given.json"


def test_every_part_of_the_program_is_given(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    given = told(monkeypatch, tmp_path, json.dumps({"problem": "", "trial": ["Inst a 1"], "stream": "a:1"}))
    trial = Dnf(Settings(7)).attempt(Transaction("it", ("a=1",), ("b",), stream="a:1"))
    assert (trial.rows, trial.unfinished) == (["Inst a 1"], True)
    *parts, request = json.loads(given.read_text())
    assert {name for name, _ in parts} == {path.stem for path in Path(dnf.__file__).parent.glob("dnf_*.py")}
    assert all(size > 100 for _, size in parts)
    assert request == {
        "timeout": 7, "mirror_timeout": 0, "install": ["a=1"], "remove": ["b"], "pin": {}, "module": "a:1",
        "action": "try",
        "download": False,
    }  # fmt: skip


def test_an_answer_that_is_none_is_a_problem(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    told(monkeypatch, tmp_path, "Segmentation fault")
    assert (
        "platform-python ended with status 0: Segmentation fault" in Dnf(Settings()).attempt(Transaction("it")).problem
    )


def test_a_host_without_dnf_4_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dnf, "PYTHONS", (sys.executable,))
    assert Dnf(Settings()).attempt(Transaction("it", ("a",))).problem.startswith("the host has no dnf 4: ")
