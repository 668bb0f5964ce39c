"""Commands that show a finding can be run on the host that has it, whatever its distribution. Fixes are checked where
they are made: by tests/capabilities/conftest.py, in every test in which a check does not pass."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gpuprov.capabilities import HOUSE
from gpuprov.capabilities.base import Check
from gpuprov.explain import all_checks
from gpuprov.facts.probes.host.family import FAMILIES, TOOLS, Family
from gpuprov.verify.evaluate import shown_here
from tests.capabilities.commands import foreign, placeholders, units

CHECKS = {check.id: check for check in (*all_checks(), *HOUSE.checks)}.values()
ROOT = Path(__file__).parents[2]
_NAME = re.compile(r"[a-z_]+\.[a-z_0-9]+")
_SEE = re.compile(r"\bsee ((?:[a-z_]+\.[a-z_0-9]+)(?:,? (?:and|or) [a-z_]+\.[a-z_0-9]+)*)")
MOST = 5
"""Maximum number of commands that show one finding: with more, nobody knows which one does."""
ELSEWHERE = {
    "kernel.boot_entries": "grubby is the Red Hat family's alone; the others' entries are read in grub.cfg",
    "nvidia_driver.built_once": "modules are built once for hosts of the Debian family alone",
}
"""Checks without a counterpart to one family's command, and why."""


@pytest.mark.parametrize("kind", FAMILIES)
def test_what_shows_a_finding_can_be_typed_on_the_host(kind: Family) -> None:
    wrong = {check.id: told for check in CHECKS if (told := list(_wrong(check, kind)))}
    assert not wrong


def _wrong(check: Check, kind: Family) -> list[str]:
    shown = shown_here(check.evidence, TOOLS[kind])
    told = foreign(shown, kind) + [f"placeholder {one}" for one in placeholders(shown)]
    if not shown and check.evidence:
        told.append("nothing is left of it")
    if shown.count("; ") >= MOST:
        told.append(f"{shown.count('; ') + 1} commands")
    return told


def test_packages_are_shown_on_every_distribution() -> None:
    """A command for packages has its counterparts."""
    alone = {
        check.id
        for check in CHECKS
        for kind in FAMILIES
        if any(foreign(check.evidence, other) for other in FAMILIES) and not _own(check.evidence, kind)
    }
    assert alone == set(ELSEWHERE)


def _own(evidence: str, kind: Family) -> bool:
    shown = shown_here(evidence, TOOLS[kind])
    return any(foreign(shown, other) for other in FAMILIES if other != kind)


def test_units_are_those_that_gpuprov_knows() -> None:
    """A unit that a person is to look at is one that gpuprov itself reads, writes, or has from a package."""
    known = "\n".join(
        path.read_text(encoding="utf-8")
        for room in ("gpuprov/facts/probes", "gpuprov/catalog", "gpuprov/host_code", "roles")
        for path in sorted((ROOT / room).rglob("*"))
        if path.suffix in (".py", ".yaml", ".yml", ".j2", ".service")
    )
    named = {unit for check in CHECKS for unit in units(check.evidence)}
    assert named
    assert not {unit for unit in named if unit.partition("@")[0].strip("*").removesuffix(".service") not in known}


def test_the_judge_of_commands() -> None:
    assert foreign("dpkg -S /usr/bin/x, or rpm -qf", "debian") == ["rpm"]
    assert foreign("apt-get update, dnf makecache", "redhat") == ["apt-get"]
    assert foreign("rpm -qa; zypper locks", "suse") == []
    assert foreign("cat /etc/apt/sources.list.d/x.list /var/log/dpkg.log", "redhat") == []
    assert placeholders("systemctl status UNIT") == ["UNIT"]
    assert list(units("systemctl status nvidia-dcgm.service 'opensm@*'; journalctl -u a -n 20")) == [
        "nvidia-dcgm.service", "opensm@*", "a"]  # fmt: skip


def test_a_check_that_a_fix_refers_to_is_one() -> None:
    """`see nvidia_driver.loaded`: what a person looks for by that name is there."""
    ids = {check.id for check in CHECKS}
    blocks = {name.partition(".")[0] for name in ids}
    texts = [path for path in (ROOT / "gpuprov").rglob("*") if path.suffix in (".py", ".yaml", ".j2")]
    named = {
        (str(path.relative_to(ROOT)), name)
        for path in texts
        for told in _SEE.findall(path.read_text(encoding="utf-8"))
        for name in _NAME.findall(told)
        if name.partition(".")[0] in blocks
    }
    assert len(named) > 30
    assert not {one for one in named if one[1] not in ids}
