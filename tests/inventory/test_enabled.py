"""Inventory plugins that ansible.cfg or the environment enables: a name that no plugin has is told, with its place."""

from pathlib import Path

import pytest

from tests.inventory.test_inventory_dangers import gpuprov
from tests.rows import run_each

pytestmark = pytest.mark.install  # gpuprov is started again and again

SPEC = "all: {vars: {gpuprov: {nouveau: {}}}, hosts: {gpu01: {}}}\n"


@run_each(
    ("enabled", "code", "words"),
    [
        (
            "nonsense",
            2,
            'ANSIBLE_INVENTORY_ENABLED enables inventory plugins that do not exist: "nonsense"; take it out',
        ),
        ("", 2, 'enables inventory plugins that do not exist: ""; take it out, or name what exists: host_list, script'),
        ("no.such.plugin", 2, 'do not exist: "no.such.plugin"'),
        (
            "yaml,nonsense",
            0,
            'warning: ANSIBLE_INVENTORY_ENABLED enables inventory plugins that do not exist: "nonsense"',
        ),
        ("auto,", 2, 'ANSIBLE_INVENTORY_ENABLED enables these plugins alone: "auto", ""'),
        ("ini", 2, 'ANSIBLE_INVENTORY_ENABLED enables these plugins alone: "ini"'),
        ("yaml", 0, "1 host valid"),
    ],
)
def test_the_environment(enabled: str, code: int, words: str, tmp_path: Path) -> None:
    (tmp_path / "inventory.yaml").write_text(SPEC)
    ran = gpuprov("check", "inventory.yaml", cwd=tmp_path, ANSIBLE_INVENTORY_ENABLED=enabled)
    assert (ran.returncode, words in ran.stdout + ran.stderr) == (code, True), ran
    assert "Traceback" not in ran.stderr


@run_each("name", ["nonsense(", "no.such.extension", ""])
def test_extensions_of_jinja2(name: str, tmp_path: Path) -> None:
    (tmp_path / "inventory.yaml").write_text(SPEC)
    ran = gpuprov("check", "inventory.yaml", cwd=tmp_path, ANSIBLE_JINJA2_EXTENSIONS=name)
    text = f'ANSIBLE_JINJA2_EXTENSIONS names "{name}" as an extension of Jinja2, which cannot be imported'
    assert (ran.returncode, text in ran.stdout + ran.stderr) == (2, True), ran
    good = gpuprov("check", "inventory.yaml", cwd=tmp_path, ANSIBLE_JINJA2_EXTENSIONS="jinja2.ext.do")
    assert good.returncode == 0, good


def test_ansible_cfg(tmp_path: Path) -> None:
    (tmp_path / "inventory.yaml").write_text(SPEC)
    (tmp_path / "ansible.cfg").write_text("[inventory]\nenable_plugins = nonsense, host-list\n")
    ran = gpuprov("check", "inventory.yaml", cwd=tmp_path)
    assert ran.returncode == 2
    assert f'{tmp_path}/ansible.cfg enables inventory plugins that do not exist: "nonsense", "host-list"' in (
        ran.stdout + ran.stderr
    )
