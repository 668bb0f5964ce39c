"""What every role and template keeps to."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
TASKS = sorted((ROOT / "roles").glob("*/tasks/**/*.yml"))
TEMPLATES = sorted(path for path in (ROOT / "roles").glob("*/templates/**/*") if path.is_file())


@pytest.mark.parametrize("path", TASKS, ids=lambda path: str(path.relative_to(ROOT)))
def test_task_files_are_short(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 60


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: str(path.relative_to(ROOT)))
def test_templates_say_who_manages_the_file(path: Path) -> None:
    assert "{{ ansible_managed" in path.read_text(encoding="utf-8")


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: str(path.relative_to(ROOT)))
def test_templates_mirror_the_target_path(path: Path) -> None:
    inside = path.relative_to(ROOT / "roles").parts[2]
    assert inside in ("etc", "usr", "var", "boot"), f"{path}: templates/ mirrors the target's path"


def test_no_role_reboots_but_the_houses_own() -> None:
    for path in TASKS:
        if "ansible.builtin.reboot" in path.read_text(encoding="utf-8"):
            assert path.parts[-3] == "host"


def test_errors_are_not_swallowed() -> None:
    for path in TASKS:
        for task in yaml.safe_load(path.read_text(encoding="utf-8")) or []:
            assert not task.get("ignore_errors"), f"{path}: {task.get('name')}"
