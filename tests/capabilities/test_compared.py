"""Comparisons of settings, kernel modules and packages, the outcomes that are made of them, and answers on held
packages."""

from __future__ import annotations

import re

from gpuprov.capabilities import answers
from gpuprov.capabilities.base import Change, Check, Outcome
from gpuprov.capabilities.compared import Group, find_fault, find_missing, judge, list_changes, move_packages
from gpuprov.explain import all_checks
from gpuprov.facts.probes.host import systemd
from gpuprov.facts.probes.software.packages import LOCKING, Package
from gpuprov.host_code.settings import EQUAL, LEAST, is_met, list_unmet
from gpuprov.resources import Difference, KernelModule, Modules, Setting, compare_packages
from gpuprov.resources.kernel_module import describe_module
from gpuprov.resources.setting import describe_setting
from tests.capabilities.asking import ask, facts
from tests.capabilities.test_redhat import PLUGIN, ROCKY
from tests.rows import run_each

VALUES = [
    ("1", "1", EQUAL, True),
    ("1", "2", EQUAL, False),
    ("1", None, EQUAL, False),
    ("", "", EQUAL, True),
    ("", None, EQUAL, False),
    ("4096 131072 6291456", "4096\t131072\t6291456", EQUAL, True),
    ("0x1F 2", "31 2", EQUAL, True),
    ("0x1", "2", EQUAL, False),
    ("64", "63", LEAST, False),
    ("64", "64", LEAST, True),
    ("64", "128", LEAST, True),
    ("64", "unlimited", LEAST, True),
    ("64", "infinity", LEAST, True),
    ("unlimited", "128", LEAST, False),
    ("unlimited", "infinity", LEAST, True),
    ("64", "unset", LEAST, False),
    ("64", "٦٥", LEAST, False),
    ("64", "", LEAST, False),
    ("64", None, LEAST, False),
]


@run_each(("desired", "actual", "how", "met"), VALUES)
def test_values(desired: str, actual: str | None, how: str, met: bool) -> None:
    assert is_met(desired, actual, how) is met


def test_unmet_values_by_name() -> None:
    assert list_unmet({"a": "1", "b": "2", "c": "3"}, {"a": "1", "b": "1"}) == {"b": "1", "c": ""}


MODULES = [
    (KernelModule(name="nvidia-uvm", loaded=True), Modules(loaded=["nvidia_uvm"]), []),
    (KernelModule(name="ib_umad", loaded=True), Modules(), ["module ib_umad:  -> loaded"]),
    (KernelModule(name="nouveau", loaded=False), Modules(loaded=["nouveau"]), ["module nouveau: loaded -> unloaded"]),
    (KernelModule(name="nouveau"), Modules(loaded=["nouveau"]), []),
    (KernelModule(name="efa", loaded=True, outdated="another build"), Modules(loaded=["efa"]),
        ["module efa: another build -> that on disk"]),
    (KernelModule(name="efa", loaded=True, outdated="another build"), Modules(), ["module efa:  -> loaded"]),
    (KernelModule(name="nova-core", kept_out=True, at_boot=True, options={"x": "1"}),
        Modules(options={"nova_core": {"x": "2"}}),
        ["file /etc/modprobe.d/gpuprov.conf: nova_core: x=2 -> blacklist nova_core; nova_core: x=1",
        "file /etc/modules-load.d/gpuprov.conf:  -> nova_core"]),
]  # fmt: skip


@run_each(("module", "host", "changes"), MODULES)
def test_modules(module: KernelModule, host: Modules, changes: list[str]) -> None:
    found = list_changes(module.compare(host))
    assert [f"{one.kind} {one.name}: {one.before} -> {one.after}" for one in found] == changes


def test_packages_move_where_their_version_differs() -> None:
    desired, installed = (
        {"a": "2", "b": "2", "c": "2", "d": "newest", "e": "newest"},
        {"a": "1", "b": "2", "d": "1", "x": "3"},
    )
    assert [(one.name, one.before, one.after) for one in move_packages(desired, installed, ["x", "y"])] == [
        ("x", "3", ""),
        ("a", "1", "2"),
        ("c", "", "2"),
        ("e", "", "newest"),
    ]
    assert list(compare_packages({"b": "2", "d": "installed"}, installed)) == []


def test_packages_that_are_missing() -> None:
    assert find_missing(["a", "b"], ["b", "a"]) is None
    outcome = find_missing(["a", "b", "c"], ["b"], "install them")
    assert outcome is not None
    assert (outcome.expected, outcome.found, outcome.fix) == ("a b c", "not installed: a c", "install them")
    assert [one.name for one in outcome.changes] == ["a", "c"]


def test_a_part_of_a_check_by_hand() -> None:
    setting = Setting(kind="mode", key="mode", value="on", fix="switch it on", reboot="at a boot alone")
    assert find_fault(setting, {("", "mode"): "on"}, "on") is None
    outcome = find_fault(setting, {("", "mode"): "off"}, "on")
    assert outcome is not None
    assert (outcome.found, outcome.fix, outcome.reboot) == ("mode=off", "switch it on", "at a boot alone")
    outcome = find_fault(setting, {}, "on", "nobody knows")
    assert outcome is not None
    assert (outcome.found, outcome.changes[0].before) == ("nobody knows", "missing")


def test_groups_without_a_difference_and_with_more_than_one() -> None:
    assert judge(Group(())).status == "n/a"
    assert judge(Group((), right="nothing to set here")).status == "pass"
    assert judge(Group((), beside=("a driver is bound",))).status == "fail"
    setting = Setting(kind="mode", key="mode", value="on", file="/etc/mode.conf")
    assert judge(Group((setting,))).changes == (
        Change(kind="file", name="/etc/mode.conf", before="missing", after="on"),
    )
    assert judge(Group((setting,), changed="")).changes == ()
    assert judge(Group((setting,), changed="/etc/x", expected="mode on")).changes == (
        Change(kind="file", name="/etc/x", after="mode on"),
    )


def test_differences_of_one_file_are_one_change() -> None:
    both = [Difference("/etc/x", "a", "b"), Difference("/etc/x", "a", "c"), Difference("/etc/y", "", "d")]
    assert [(one.name, one.before, one.after) for one in list_changes(both)] == [
        ("/etc/x", "a", "b; c"),
        ("/etc/y", "", "d"),
    ]
    assert list_changes(both, {"/etc/x": "all of it"})[0].after == "all of it"


def test_what_is_wanted_in_words() -> None:
    setting = Setting(kind="mode", value="on", moment="next-boot", clients=True)
    assert describe_setting(setting) == "on (at the next boot, takes idle devices)"
    assert describe_module(KernelModule(name="x")) == "as it is"
    assert describe_module(KernelModule(name="x", loaded=False, options={"a": "1"})) == "not loaded, a=1"


DEBIAN = {"os_release": 'ID="debian"\nVERSION_ID="12"\n'}
APT = {"package_locking": "apt|true\n"}
NO_PLUGIN = {"package_locking": "redhat|\ndnf|[main]\n"}
SWITCHED_OFF = {"package_locking": "redhat|\n" + PLUGIN.replace("enabled = 1", "enabled = 0")}
WORKS = {"package_locking": "redhat|\n" + PLUGIN}


def asked(texts: dict[str, str], *states: bool, wanted: bool = True) -> Outcome:
    found = {f"lib{n}": Package(f"lib{n}", "1-1", "lib", held, True) for n, held in enumerate(states)}
    return answers.held(facts(**{"package_locking": "", **texts}), found, "the library", hold=wanted)


@run_each(
    ("texts", "states", "wanted", "status", "found", "fix"),
    [
        (DEBIAN, (True, True), True, "pass", "2 packages held", ""),
        (DEBIAN, (True,), True, "pass", "1 package held", ""),
        (DEBIAN, (False,), False, "pass", "1 package not held", ""),
        (DEBIAN, (), True, "fail", "no package of the library is installed", "gpuprov apply"),
        (DEBIAN, (True, False), True, "fail", "not held: lib1", "apt-mark hold lib1"),
        (DEBIAN, (True, False), False, "fail", "held: lib0", "apt-mark unhold lib0"),
        (DEBIAN | APT, (True,), True, "fail", "apt may change held packages", "correct that setting"),
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
def test_held(texts: dict[str, str], states: tuple[bool, ...], wanted: bool, status: str, found: str, fix: str) -> None:
    outcome = asked(texts, *states, wanted=wanted)
    assert (outcome.status, outcome.found.startswith(found), outcome.fix.startswith(fix)) == (status, True, True)
    assert bool(outcome.changes) == ("lib" in outcome.found and status == "fail" and bool(states))


@run_each(("wanted", "fix"), [(True, "apt-mark hold libcuda1:i386"), (False, "apt-mark unhold libcuda1")])
def test_each_architecture_is_named(wanted: bool, fix: str) -> None:
    both = Package("libcuda1", "1-1", "lib", False, True, (("libcuda1", True), ("libcuda1:i386", False)))
    outcome = answers.held(facts(**DEBIAN, package_locking=""), {"libcuda1": both}, "the driver", hold=wanted)
    assert (outcome.status, outcome.fix) == ("fail", fix)


def test_every_capability_asks_whether_holding_works() -> None:
    holding = [check for check in all_checks() if check.id.endswith(".held")]
    assert {check.capability for check in holding} == {
        *("nvidia_driver", "fabric_manager", "dcgm", "cuda_toolkit", "container_toolkit", "hpc")
    }
    assert all(LOCKING in check.probes for check in holding)


@run_each(
    ("units", "fix"),
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
def test_a_fix_enables_only_what_systemctl_can_enable(units: dict[str, str], fix: str) -> None:
    assert answers.enabling(units) == fix


GONE = "\n\n".join(
    f"Id={unit}\nLoadState=not-found\nActiveState=inactive\nUnitFileState="
    for unit in (*systemd.UNITS, "nvidia-dcgm.service", "nvidia-dcgm-exporter.service")
)


@run_each("check", [one for one in all_checks() if {"units", "dcgm_units"} & {p.name for p in one.probes}])
def test_no_fix_starts_or_enables_a_unit_that_is_not_there(check: Check) -> None:
    outcome = ask(
        check.id, None, **{probe.name: GONE for probe in check.probes if probe.name in ("units", "dcgm_units")}
    )
    if outcome.status == "fail":
        assert not re.search(r"systemctl (enable|start|restart)|journalctl", outcome.fix), outcome
