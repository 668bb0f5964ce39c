"""Ansible without the package gpuprov beside it: each action that decides by it says so, in one line with the fix."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.here import PLUGINS, play

pytestmark = pytest.mark.install
TASKS: dict[str, dict[str, Any]] = {
    "gpuprov_spec": {"role": "mig"},
    "gpuprov_reach": {},
    "gpuprov_judge": {"capabilities": ["kernel"], "moment": "preflight"},
    "gpuprov_files": {"capability": "kernel"},
    "gpuprov_packages": {"capability": "dcgm"},
    "gpuprov_repository": {"capability": "dcgm"},
    "gpuprov_unit": {"capability": "dcgm"},
    "gpuprov_step": {"name": "drain", "arguments": {"state": "drained", "command": "kubernetes", "node": "gpu1"}},
}


def test_each_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "shadow/gpuprov").mkdir(parents=True)
    (tmp_path / "shadow/gpuprov/__init__.py").write_text("raise ImportError(\"No module named 'gpuprov'\")\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "shadow"))
    tasks = [{"name": name, name: arguments, "ignore_errors": True} for name, arguments in TASKS.items()]
    done = play(tmp_path, {"vars": {"gpuprov_version": "1.2.3"}, "tasks": tasks})
    line = (
        "the Python that runs Ansible has no package gpuprov (No module named 'gpuprov'). Fix: pip install "
        "gpuprov==1.2.3 beside"
    )
    assert done.stdout.count(f"[ERROR]: Task failed: Action failed: {line}") + done.stdout.count(
        f'"msg": "{line}'
    ) >= len(TASKS), done
    assert done.stdout.count("...ignoring") == len(TASKS), done


def test_a_play_of_a_checkout_says_it_before_anything_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "shadow/gpuprov").mkdir(parents=True)
    (tmp_path / "shadow/gpuprov/__init__.py").write_text("raise ImportError(\"No module named 'gpuprov'\")\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "shadow"))
    done = play(tmp_path, {"roles": ["persistence"]})
    assert done.returncode == 2, done
    assert (
        "has no package gpuprov (No module named 'gpuprov'). Fix: pip install gpuprov, or pip install . in a"
        in done.stdout
    ), done
    assert "Reach the host" not in done.stdout, done


def test_these_are_all_that_need_it() -> None:
    deciding = {
        path.stem for path in (PLUGINS / "action").glob("*.py") if "MISSING" in path.read_text(encoding="utf-8")
    }
    assert deciding == set(TASKS)
