"""nvidia_driver.kernel_upgrades: what the next boot's kernel has, why it has not, and who keeps new ones away."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpuprov.capabilities import nvidia_driver
from gpuprov.capabilities.nvidia_driver.desired import make as make_values
from gpuprov.capabilities.nvidia_driver.fragment import NvidiaDriver
from gpuprov.facts.probes.base import Output
from gpuprov.facts.probes.driver.dkms_logs import DKMS_LOGS
from gpuprov.facts.probes.driver.driver_packages import HELD_KERNELS
from gpuprov.spec.model import HostSpec
from tests.capabilities import at_boot
from tests.capabilities.asking import PODMAN, Row, ask, judge, packages
from tests.capabilities.test_nvidia_driver_desired import context
from tests.rows import run_each

make: Callable[..., Any] = make_values


NEXT, HELD, BUILT = "nvidia_driver.next_kernel", "nvidia_driver.kernels_held", "nvidia_driver.modules_built"
HOLD, FOLLOW, ALERT = (NvidiaDriver(kernel_upgrades=word) for word in ("hold", "follow", "alert"))
V = "535.261.03"
OLD, NEW = "6.1.0-47-amd64", "6.1.0-48-amd64"
RUNS = f"{OLD}|1|1|{V}|1|{OLD}|1\n"
IMAGES = ("linux-image-amd64", f"linux-image-{OLD}")
META = "linux-headers-amd64"


def images(state: str) -> dict[str, Any]:
    return {"packages": packages() + "".join(f"{state}|{name}|6.1.174-1|linux-signed-amd64\n" for name in IMAGES)}


def came(nvidia: str = V, headers: int = 1, built: str = NEW) -> dict[str, Any]:
    """The distribution has brought a new kernel, which does not run yet."""
    return {"kernels": RUNS + f"{NEW}|1|{headers}|{nvidia}|1|{built if nvidia else ''}|\n"}


FAILED = {
    "dkms_failed_builds": "@log /var/lib/dkms/nvidia-current/535.261.03/build/make.log\n"
    f"DKMS make.log for nvidia-current-535.261.03 for kernel {NEW} (x86_64)\n"
    "/bin/sh: line 1: g++: command not found\n"
}
OF_ANOTHER = {name: text.replace(NEW, OLD) for name, text in FAILED.items()}
NO_KERNEL = {"kernels": f"{OLD}|0|1|{V}|1|{OLD}|1\n", **PODMAN}
NO_IMAGE = {"kernels": NO_KERNEL["kernels"]}
ROWS = [
    Row("what runs is what boots", NEXT, None, {}, "pass", f"{OLD} has {V}, and runs"),
    Row("a new one with a module", NEXT, FOLLOW, came(), "pass", f"{NEW} has {V}; running is {OLD}"),
    Row("a new one without", NEXT, None, came(""), "fail", f"{NEW}, the next boot's, has none",
        f"the entry of {OLD} in"),
    Row("a build that failed", NEXT, FOLLOW, {**came(""), **FAILED}, "fail",
        "its build failed (/bin/sh: line 1: g++: command"),
    Row("the same, of every kernel", BUILT, FOLLOW, {**came(""), **FAILED}, "fail", f"{NEW}: none: its build failed",
        "dkms status"),
    Row("a build for another kernel", NEXT, FOLLOW, {**came(""), **OF_ANOTHER}, "fail", "has none"),
    Row("a module of an earlier set", BUILT, FOLLOW, {"kernels": f"{RUNS.strip()}|1| nvidia-modeset=390.87\n"}, "fail",
        f"{OLD}: nvidia-modeset=390.87", "find /lib/modules"),
    Row("without the module that CUDA needs", BUILT, FOLLOW, {"kernels": f"{RUNS.strip()}|1| nvidia-uvm=none\n"},
        "fail",
        f"{OLD}: no nvidia-uvm", "dkms status"),
    Row("no headers", NEXT, None, came("", headers=0), "fail", "it has no headers", "gpuprov apply"),
    Row("another version", NEXT, None, came("525.147.05"), "fail", "has 525.147.05"),
    Row("built for another kernel", NEXT, None, came(V, built="6.1.0-46-amd64"), "fail", f"has {V} for 6.1.0-46-amd64"),
    Row("an alert while it runs", NEXT, ALERT, {}, "pass", "and runs"),
    Row("an alert", NEXT, ALERT, came(), "fail", f"the next boot starts {NEW}, running is {OLD}", "plan a reboot"),
    Row("held", NEXT, HOLD, images("hi "), "pass", "held: linux-image-6.1.0-47-amd64 linux-image-amd64"),
    Row("not held", NEXT, HOLD, images("ii "), "fail", "not held: linux-image-6.1.0-47-amd64",
        "apt-mark hold linux-image-6",
        change="hold linux-image-amd64: not held -> held"),
    Row("nothing to hold", NEXT, HOLD, {}, "fail", "no package of a kernel is known", "alert"),
    Row("no kernel here", NEXT, HOLD, NO_KERNEL, "n/a", "no kernel can boot"),
    Row("no kernel on a machine", NEXT, HOLD, NO_IMAGE, "skip", "is /boot mounted?"),
    Row("the same before anything is held", HELD, HOLD, NO_IMAGE, "skip", "is /boot mounted?"),
    Row("can be held", HELD, HOLD, images("ii "), "pass", "linux-image-amd64"),
    Row("cannot be held", HELD, HOLD, {}, "fail", "none that gpuprov knows", "by hand"),
    Row("need not be", HELD, FOLLOW, {}, "n/a", "need not"),
    Row("a container's kernels", HELD, HOLD, NO_KERNEL, "n/a", "no kernel can boot"),
]  # fmt: skip


@run_each("row", [pytest.param(row, id=row.name) for row in ROWS])
def test_kernels(row: Row) -> None:
    judge(row)


def test_the_newest_boots_as_versions_are_ordered() -> None:
    kernels = "".join(f"6.1.0-{number}-amd64|1|1|{V}|1|6.1.0-{number}-amd64|\n" for number in (9, 10, 8))
    assert "6.1.0-10-amd64 has" in ask(NEXT, None, kernels=kernels).found


@run_each(
    ("block", "told"),
    [
        (NvidiaDriver(kernel_upgrades="hold", hold=False), "nvidia_driver.hold is false"),
        (NvidiaDriver(kernel_upgrades="hold", source="runfile", version=V), "from a runfile"),
        (NvidiaDriver(kernel_upgrades="follow", build="precompiled"), "would boot without a driver"),
        (NvidiaDriver(kernel_upgrades="alert", build_host="builder"), "would boot without a driver"),
    ],
)
def test_policies_that_cannot_work_are_refused(block: NvidiaDriver, told: str) -> None:
    found = [
        one
        for one in nvidia_driver.rules(HostSpec(name="gpu1", capabilities={"nvidia_driver": block}), block)
        if one.path[1:] == ("kernel_upgrades",)
    ]
    assert [told in one.message for one in found] == [True]
    assert all(one.fix for one in found)


@run_each(
    "block",
    [
        NvidiaDriver(),
        HOLD,
        FOLLOW,
        ALERT,
        NvidiaDriver(build="precompiled"),
        NvidiaDriver(kernel_upgrades="hold", build="precompiled"),
    ],
)
def test_policies_that_can(block: NvidiaDriver) -> None:
    host = HostSpec(name="gpu1", capabilities={"nvidia_driver": block})
    assert [one for one in nvidia_driver.rules(host, block) if "kernel_upgrades" in one.path] == []


def test_hold_is_brought_about_and_taken_back_and_the_admins_holds_stay() -> None:
    with_image = images("ii ")["packages"].replace(f"ii |{IMAGES[1]}", f"hi |{IMAGES[1]}")
    made = make(context(HOLD, packages=with_image))
    assert set(IMAGES) <= set(made["hold"])
    assert made["record"] == {"files": {HELD_KERNELS: f"{IMAGES[0]}\n"}}, "the admin had held the other one"
    assert "packages" in made["tasks"]
    back = make(context(FOLLOW, packages=images("hi ")["packages"], kernels_held=f"{IMAGES[0]}\n"))
    assert IMAGES[0] in back["release"]
    assert IMAGES[1] not in back["release"]
    assert back["forget"] == {"absent": [HELD_KERNELS]}
    assert not set(IMAGES) & set(back["hold"])


def test_every_kind_of_kernel_is_held() -> None:
    """Also EL's with pages of 64 KiB, which Grace runs, and for real time."""
    own, others = (
        ("kernel", "kernel-core"),
        ("kernel-64k", "kernel-64k-modules-core", "kernel-rt-core", "kernel-uki-virt"),
    )
    there = packages() + "".join(
        f"{'hi ' if n in own else 'ii '}|{n}|5.14.0-503.11.1.el9_5|kernel\n" for n in (*own, *others)
    )
    found = ask(NEXT, HOLD, packages=there)
    assert (found.status, found.found) == ("fail", f"not held: {' '.join(sorted(others))}")
    assert {*own, *others} <= set(make(context(HOLD, packages=there))["hold"])


def test_what_needs_a_kernel_in_its_own_version_is_held_with_it() -> None:
    """Else dnf, which may not have the newer kernel, finds no way to the newer kernel-devel-matched, and every upgrade
    ends there."""
    kernels = (
        "kernel",
        "kernel-core",
        "kernel-devel-matched",
        "kernel-64k-devel-matched",
        "kernel-devel",
        "kernel-headers",
    )
    there = packages() + "".join(f"ii |{n}|5.14.0-503.11.1.el9_5|kernel\n" for n in kernels)
    assert set(kernels) & set(make(context(HOLD, packages=there))["hold"]) == set(kernels[:4])


def test_headers_of_kernels_that_are_kept_away_are_kept_away_too() -> None:
    """Else an upgrade brings them alone, DKMS builds for that kernel, and where it fails, dpkg is left in pieces."""
    there = images("ii ")["packages"] + f"ii |{META}|6.1.174-1|linux-signed-amd64\n"
    assert META in make(context(HOLD, packages=there))["hold"]
    assert META not in make(context(FOLLOW, packages=there))["hold"]
    loose = images("hi ")["packages"] + f"ii |{META}|6.1.174-1|linux-signed-amd64\n"
    found = ask(NEXT, HOLD, packages=loose)
    assert (found.status, found.found) == ("fail", f"not held: {META}")
    without = images("ii ")["packages"]
    for policy, wanted in ((FOLLOW, True), (HOLD, False)):
        assert (META in make(context(policy, packages=without))["tasks"].get("tools", {}).get("install", [])) == wanted
        assert (META in ask("nvidia_driver.headers", policy, packages=without).found) == wanted


REAL = Path(__file__).parents[1] / "real"


def test_logs_of_real_builds(tmp_path: Path) -> None:
    """Their first lines, of DKMS 2.8 and 3, and the first line that says what failed."""
    for folder in ("dkms-wrong-kernel-fc41", "dkms-no-gxx-el9"):
        place = tmp_path / folder / "nvidia" / "1" / "build"
        place.mkdir(parents=True)
        (place / "make.log").write_bytes((REAL / folder / "dkms-make-log.txt").read_bytes())
    script = DKMS_LOGS.script.replace("/var/lib/dkms/nvidia*/*/", f"{tmp_path}/*/nvidia/*/")
    found = {
        Path(one.path).parts[-5]: (one.kernel, one.complaint) for one in DKMS_LOGS.parse(Output(at_boot.shell(script)))
    }
    assert found["dkms-wrong-kernel-fc41"] == ("6.12.15-200.fc41.x86_64", ""), "an excerpt that ends before its failure"
    assert found["dkms-no-gxx-el9"] == ("?", "/bin/sh: line 1: g++: command not found"), (
        "an excerpt without its first line"
    )


@run_each(
    "cause",
    [
        "ERROR: modpost: GPL-incompatible module nvidia.ko uses GPL-only symbol 'rcu_read_lock_strict'",
        "make[2]: *** [Makefile:2050: build] Killed",
        "gcc: fatal error: Killed signal terminated program cc1",
        "make[1]: *** No rule to make target 'modules'.  Stop.",
    ],
)
def test_the_first_line_about_a_failure_is_the_cause(cause: str, tmp_path: Path) -> None:
    """Not the kernel's flags, among which -Werror is, nor what make says once it gives up."""
    (tmp_path / "1" / "build").mkdir(parents=True, exist_ok=True)
    lines = (
        "KBUILD_CFLAGS=-Wall -Werror -std=gnu11",
        "  CC [M]  nvidia/nv-error.o",
        cause,
        "make: *** [Makefile:85: modules] Error 2",
    )
    log = f"DKMS make.log for nvidia-570.86 for kernel {NEW} (x86_64)\n" + "".join(f"{line}\n" for line in lines)
    (tmp_path / "1" / "build" / "make.log").write_text(log)
    script = DKMS_LOGS.script.replace("/var/lib/dkms/nvidia*/*/", f"{tmp_path}/*/")
    (found,) = DKMS_LOGS.parse(Output(at_boot.shell(script)))
    assert (found.kernel, found.complaint) == (NEW, " ".join(cause.split()))


def grub(default: str, environment: str = "") -> dict[str, str]:
    """A GRUB with both kernels, the new one first."""
    entries = "".join(f"menuentry 'Linux {one}' {{\nlinux /vmlinuz-{one}\n}}\n" for one in (NEW, OLD))
    choice = f'if [ "${{next_entry}}" ] ; then\nset default="${{next_entry}}"\nset default="{default}"\nfi\n'
    return {"next_boot": f"@loader grub\n@menu\n{choice}{entries}@env\n{environment}"}


SAVED = grub("${saved_entry}", "saved_entry=1\n")
MEMTEST = "@loader grub\n@menu\nmenuentry 'Memory test' {\nlinux /memtest86+x64.bin\n}\n@env\n"
RESCUE = grub("0", "next_entry=1\n")["next_boot"].replace(OLD, "0-rescue-ab12").replace(NEW, OLD)
PRUNED = f"""@loader grub
@menu
if [ "${{next_entry}}" ] ; then
set default="${{next_entry}}"
set default="${{saved_entry}}"
fi
blscfg
@env
saved_entry=1
@entry ab12-{OLD}
linux /vmlinuz-{OLD}
@entry ab12-0-rescue
linux /vmlinuz-0-rescue-ab12
"""
"""As an EL's whose second kernel was removed: what GRUB takes for entry 1 is its rescue."""
LOADERS = [
    Row("pinned to the old one", NEXT, FOLLOW, {**came(""), **SAVED}, "pass",
        f"{OLD} has {V}, and runs (GRUB: saved_entry=1)"),
    Row("pinned to one without", NEXT, FOLLOW,
        {"kernels": f"{OLD}|1|1||1||1\n{NEW}|1|1|{V}|1|{NEW}|\n", **SAVED}, "fail",
        f"{OLD}, the next boot's, has none (GRUB: saved_"),
    Row("the first of the menu", NEXT, FOLLOW, {**came(), **grub("0")}, "pass", f"{NEW} has {V}; running is {OLD}"),
    Row("one time the old one", NEXT, FOLLOW, {**came(), **grub("0", "next_entry=1\n")}, "pass",
        f"one time (next_entry=1), then {NEW}"),
    Row("one time, then one without", NEXT, FOLLOW, {**came(""), **grub("0", "next_entry=1\n")}, "fail",
        f"{NEW}, the one that boots after the next, has none"),
    Row("an alert for the one after", NEXT, ALERT, {**came(), **grub("0", "next_entry=1\n")}, "fail", f"then {NEW}"),
    Row("no alert where it is pinned", NEXT, ALERT, {**came(), **SAVED}, "pass", "and runs"),
    Row("a package that waits", NEXT, FOLLOW, {**came(""), **images("iF ")}, "fail", "has none",
        "dpkg --configure -a; apt-get -f install, once the build works; then gpuprov apply"),
    Row("the same, of every kernel", BUILT, FOLLOW, {**came(""), **images("iF ")}, "fail", f"{NEW}: none",
        "dpkg --configure -a"),
    Row("the command that starts the old one", NEXT, FOLLOW, {**came(""), **grub("0")}, "fail",
        f"{NEW}, the next boot's, has none",
        f"have {OLD} start, one time: grub-reboot 'Linux {OLD}'"),
    Row("the same where the cause is told", BUILT, FOLLOW, {**came(""), **grub("0")}, "fail", f"{NEW}: none",
        f"or have {OLD} start, one time: grub-reboot 'Linux {OLD}' ({NEW} boots next)"),
    Row("no initramfs", NEXT, FOLLOW, {"kernels": f"{RUNS.strip()}|1\n{NEW}|1|1|{V}|1|{NEW}||0\n", **grub("0")}, "fail",
        f"{NEW}, the next boot's, has no initramfs",
        f"update-initramfs -c -k {NEW}; until then do not reboot, or have {OLD} start"),
    Row("neither", NEXT, FOLLOW, {"kernels": f"{RUNS.strip()}|1\n{NEW}|1|1||1|||0\n", **FAILED}, "fail",
        "command not found",
        "gpuprov apply"),
    Row("no kernel here has one", NEXT, FOLLOW, {"kernels": f"{RUNS.strip()}|0\n{NEW}|1|1|{V}|1|{NEW}||0\n"}, "pass",
        f"{NEW} has"),
    Row("nobody knows", NEXT, FOLLOW, came(), "pass",
        "taken to be the newest: no configuration of GRUB or systemd-boot was found"),
    Row("nobody knows, of one kernel", NEXT, FOLLOW, {}, "pass", "taken to be the newest: no configuration of GRUB"),
    Row("a menu's entry without a kernel", NEXT, FOLLOW, {"next_boot": MEMTEST}, "pass",
        "'Memory test' names no kernel"),
    Row("boots that somebody else counts", NEXT, FOLLOW, grub("0", "boot_counter=1\n"), "pass", "GRUB counts boots"),
    Row("a kernel that was removed", NEXT, FOLLOW, {**came(), "next_boot": grub("0")["next_boot"].replace(NEW, "6.9")},
        "fail",
        "6.9, the next boot's, has no modules here: it was removed, or is an entry for a rescue (GRUB: GRUB_DEFAULT=0)",
        f"a kernel that is installed; until then do not reboot, or have {OLD} start, one time: grub-reboot 'Linux "
        f"{OLD}'"),
    Row("the same, of one kernel", NEXT, FOLLOW, grub("0"), "fail", f"{NEW}, the next boot's, has no modules here"),
    Row("a rescue entry for one time", NEXT, FOLLOW, {"next_boot": RESCUE}, "fail",
        "0-rescue-ab12, the next boot's, has no modules here"),
    Row("a number that is another entry's now", NEXT, FOLLOW, {"next_boot": PRUNED}, "fail", "(GRUB: saved_entry=1)"),
]  # fmt: skip


@run_each("row", [pytest.param(row, id=row.name) for row in LOADERS])
def test_what_the_bootloader_was_told(row: Row) -> None:
    judge(row)


def test_what_boots_next_is_never_left_out() -> None:
    """Without headers an old kernel is left out, but not where it is what the bootloader starts, once or always."""
    kernels = f"6.1.0-46-amd64|1|0||1||\n{came()['kernels']}"
    older = "menuentry 'o' {\nlinux /vmlinuz-6.1.0-46-amd64\n}\n@env\n"
    assert "left out" in ask(BUILT, FOLLOW, kernels=kernels, **grub("0")).found
    for default, environment in (("2", ""), ("0", "next_entry=2\n"), ("2", "next_entry=0\n")):
        told = grub(default, environment)["next_boot"].replace("@env\n", older)
        assert "6.1.0-46-amd64: none" in ask(BUILT, FOLLOW, kernels=kernels, next_boot=told).found, (
            default,
            environment,
        )
