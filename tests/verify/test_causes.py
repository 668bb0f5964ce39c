"""What a failure follows from, and what the next boot brings about."""

from __future__ import annotations

import re
from graphlib import TopologicalSorter

from gpuprov.capabilities import CAPABILITIES, HOUSE
from gpuprov.verify.causes import AT_BOOT, PRESUPPOSES, cause
from tests.rows import run_each

CHECKS = {check.id: check for capability in (HOUSE, *CAPABILITIES) for check in capability.checks}


def test_all_names_are_checks_and_nothing_follows_from_itself() -> None:
    named = {*PRESUPPOSES, *AT_BOOT, *AT_BOOT.values(), *(one for before in PRESUPPOSES.values() for one in before)}
    assert not named - set(CHECKS)
    tuple(TopologicalSorter(PRESUPPOSES).static_order())
    assert {CHECKS[boot].moment for boot in AT_BOOT.values()} == {"next-boot"}


def test_nothing_that_is_judged_after_a_change_follows_from_what_is_judged_before() -> None:
    assert [name for name in PRESUPPOSES if CHECKS[name].moment == "preflight"] == []


@run_each(
    ("check", "failing", "root"),
    [
        ("mig.instances", {"mig.instances", "mig.mode", "nvidia_driver.loaded"}, "nvidia_driver.loaded"),
        ("mig.instances", {"mig.instances", "mig.mode"}, "mig.mode"),
        ("mig.instances", {"mig.instances"}, ""),
        # The driver is loaded: which packages are installed is no reason that an instance is missing.
        ("mig.instances", {"mig.instances", "nvidia_driver.packages"}, ""),
        ("kernel.sysctl", {"kernel.sysctl", "nvidia_driver.loaded"}, ""),
    ],
)
def test_the_first_cause_counts_and_only_what_fails_hands_it_on(check: str, failing: set[str], root: str) -> None:
    assert cause(check, failing) == root


def test_no_command_that_shows_a_finding_has_a_placeholder() -> None:
    assert {
        name: check.evidence for name, check in CHECKS.items() if re.search(r"\b(UNIT|KERNEL|USER)\b", check.evidence)
    } == {}


def test_what_cannot_be_read_without_systemd_follows_from_that() -> None:
    failing = {"host.systemd", "kernel.enabled", "mig.mode", "nvidia_driver.loaded"}
    assert cause("kernel.enabled", failing, unknown=True) == "host.systemd"
    assert cause("kernel.enabled", failing) == ""
    assert cause("mig.mode", failing, unknown=True) == "nvidia_driver.loaded"
    assert cause("kernel.enabled", {"kernel.enabled"}, unknown=True) == ""
