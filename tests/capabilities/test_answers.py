"""Held packages on both families, where holding works and where it does not; every capability that holds packages says
it so."""

from __future__ import annotations

import re

import pytest

from gpuprov.capabilities import answers
from gpuprov.capabilities.base import Check, Outcome
from gpuprov.explain import all_checks
from gpuprov.facts.probes.host import systemd
from gpuprov.facts.probes.software.packages import LOCKING, Package
from tests.capabilities.asking import ask, facts
from tests.capabilities.test_redhat import PLUGIN, ROCKY

DEBIAN = {"os_release": 'ID="debian"\nVERSION_ID="12"\n'}
APT = {"package_locking": "apt|true\n"}
NO_PLUGIN = {"package_locking": "redhat|\ndnf|[main]\n"}
SWITCHED_OFF = {"package_locking": "redhat|\n" + PLUGIN.replace("enabled = 1", "enabled = 0")}
WORKS = {"package_locking": "redhat|\n" + PLUGIN}


def asked(texts: dict[str, str], *states: bool, wanted: bool = True) -> Outcome:
    found = {f"lib{n}": Package(f"lib{n}", "1-1", "lib", held, True) for n, held in enumerate(states)}
    return answers.held(facts(**{"package_locking": "", **texts}), found, "the library", wanted=wanted)


@pytest.mark.parametrize(
    ("texts", "states", "wanted", "status", "found", "hint"),
    [
        (DEBIAN, (True, True), True, "pass", "2 packages held", ""),
        (DEBIAN, (True,), True, "pass", "1 package held", ""),
        (DEBIAN, (False,), False, "pass", "1 package not held", ""),
        (DEBIAN, (), True, "fail", "no package of the library is installed", "gpuprov apply"),
        (DEBIAN, (True, False), True, "fail", "not held: lib1", "apt-mark hold lib1"),
        (DEBIAN, (True, False), False, "fail", "held: lib0", "apt-mark unhold lib0"),
        (DEBIAN | APT, (True,), True, "fail", "apt is told to move held packages", "correct that setting"),
        (DEBIAN | APT, (False,), False, "pass", "1 package not held", ""),
        (ROCKY | WORKS, (True,), True, "pass", "1 package held", ""),
        (ROCKY | WORKS, (False,), True, "fail", "not held: lib0", "dnf versionlock add lib0"),
        (ROCKY | WORKS, (True,), False, "fail", "held: lib0", "dnf versionlock delete lib0"),
        (ROCKY | NO_PLUGIN, (False,), True, "fail", "dnf's plugin versionlock is not installed; not held: lib0",
         "dnf install python3-dnf-plugin-versionlock; then gpuprov apply"),
        (ROCKY | SWITCHED_OFF, (False,), True, "fail", "dnf's plugin versionlock is switched off: enabled in",
         "correct that setting: upgrades move what is held; then gpuprov apply"),
    ],
)  # fmt: skip
def test_held(
    texts: dict[str, str], states: tuple[bool, ...], wanted: bool, status: str, found: str, hint: str
) -> None:
    outcome = asked(texts, *states, wanted=wanted)
    assert (outcome.status, outcome.found.startswith(found), outcome.hint.startswith(hint)) == (status, True, True)
    assert bool(outcome.changes) == ("lib" in outcome.found and status == "fail" and bool(states))


@pytest.mark.parametrize(
    ("wanted", "hint"), [(True, "apt-mark hold libcuda1:i386"), (False, "apt-mark unhold libcuda1")]
)
def test_each_architecture_is_named(wanted: bool, hint: str) -> None:
    both = Package("libcuda1", "1-1", "lib", False, True, (("libcuda1", True), ("libcuda1:i386", False)))
    outcome = answers.held(facts(**DEBIAN, package_locking=""), {"libcuda1": both}, "the driver", wanted=wanted)
    assert (outcome.status, outcome.hint) == ("fail", hint)


def test_every_capability_asks_whether_holding_works() -> None:
    holding = [check for check in all_checks() if check.id.endswith(".held")]
    assert {check.capability for check in holding} == {
        *("nvidia_driver", "fabric_manager", "dcgm", "cuda_toolkit", "container_toolkit", "hpc")
    }
    assert all(LOCKING in check.probes for check in holding)


@pytest.mark.parametrize(
    ("units", "hint"),
    [
        ({"a.service": "disabled"}, "systemctl enable --now a.service"),
        ({"a.path": "disabled", "a.service": "indirect"}, "systemctl enable --now a.path a.service"),
        ({"a.service": "masked"}, "systemctl unmask a.service; systemctl enable --now a.service"),
        ({"a.service": "masked-runtime"}, "systemctl unmask --runtime a.service; systemctl enable --now a.service"),
        ({"a.service": "not-found"}, "gpuprov apply"),
        ({"a.path": "disabled", "a.service": "not-found"}, "gpuprov apply"),
        ({"a.service": "static"}, "gpuprov apply"),
        ({"a.service": "generated"}, "gpuprov apply"),
        ({"a.service": ""}, "gpuprov apply"),
        ({}, "gpuprov apply"),
    ],
)
def test_a_fix_enables_only_what_systemctl_can_enable(units: dict[str, str], hint: str) -> None:
    assert answers.enabling(units) == hint


GONE = "\n\n".join(
    f"Id={unit}\nLoadState=not-found\nActiveState=inactive\nUnitFileState="
    for unit in (*systemd.UNITS, "nvidia-dcgm.service", "nvidia-dcgm-exporter.service")
)


@pytest.mark.parametrize(
    "check", [one for one in all_checks() if {"units", "dcgm_units"} & {p.name for p in one.probes}]
)
def test_no_fix_starts_or_enables_a_unit_that_is_not_there(check: Check) -> None:
    outcome = ask(
        check.id, None, **{probe.name: GONE for probe in check.probes if probe.name in ("units", "dcgm_units")}
    )
    if outcome.status == "fail":
        assert not re.search(r"systemctl (enable|start|restart)|journalctl", outcome.hint), outcome
