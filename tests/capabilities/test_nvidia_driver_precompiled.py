"""nvidia_driver.build: modules that somebody else has built, for every kernel that can boot, held with the kernels."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gpuprov.capabilities import nvidia_driver
from gpuprov.capabilities.base import Context
from gpuprov.capabilities.nvidia_driver.desired import DESIRED, make
from gpuprov.capabilities.nvidia_driver.fragment import NvidiaDriver, decide
from gpuprov.facts.probes.base import Output, ProbeFailed
from gpuprov.facts.probes.driver.driver_packages import Precompiled
from gpuprov.spec.model import HostSpec
from gpuprov.spec.signing import Signing
from tests.capabilities.asking import B200, H100, Row, ask, facts, good, judge
from tests.capabilities.test_nvidia_driver_source import ROCKY, UBUNTU, names
from tests.resolve.test_precompiled import E12, K60, K61, U580, module
from tests.rows import run_each

BUILT = NvidiaDriver(version="580", build="precompiled")
DKMS = NvidiaDriver(version="580")
PRE, RESOLVABLE = "nvidia_driver.precompiled", "nvidia_driver.resolvable"
SECURE = "nvidia_driver.secure_boot"
MINE = f"linux-modules-nvidia-580-server-open-{K60}"
IMAGE = "hi |linux-image-generic|6.8.0-60.60|linux-meta\n"
R580 = "3:580.95.05-1.el9"


def dpkg(*more: str, state: str = "hi ") -> str:
    wanted = [name for name in names("ubuntu", "24.04", U580) if "dkms" not in name and "kernel-source" not in name]
    rows = [f"{state}|{name}|{U580}|nvidia-graphics-drivers-580-server\n" for name in wanted]
    return "".join([*rows, *more])


def modules(state: str = "hi ", name: str = MINE) -> str:
    return f"{state}|{name}|6.8.0-60.62+1|linux-restricted-modules\n"


def madison() -> str:
    wanted = names("ubuntu", "24.04", U580)
    return "".join(f" {n} | {U580} | http://mirror.example/ubuntu noble/restricted amd64 Packages\n" for n in wanted)


def kernels(*releases: str, version: str = "580.95.05") -> str:
    return "".join(f"{release}|1|0|{version}|1\n" for release in releases)


ON = {"os_release": UBUNTU, "packages": dpkg(modules(), IMAGE), "kernels": kernels(K60)}
NEW = {
    "os_release": UBUNTU,
    "packages": "",
    "package_index": madison(),
    "kernels": kernels(K60, version=""),
    "precompiled_modules": f"offered|{module(K60, '580.95.05')}",
}
ROWS = [
    Row("whole and held", PRE, BUILT, ON, "pass", MINE),
    Row("DKMS is asked for", PRE, DKMS, {**ON, "packages": dpkg(IMAGE)}, "n/a", "DKMS builds"),
    Row("DKMS is asked for, and they are there", PRE, DKMS, ON, "fail", MINE, "removes them"),
    Row("no package for the kernel", PRE, BUILT, {**ON, "packages": dpkg(IMAGE)}, "fail", f"none for {K60}",
        "build: dkms",
        change=f"package modules of {K60}:  -> installed"),
    Row("a new kernel came without", PRE, BUILT, {**ON, "kernels": kernels(K60, K61)}, "fail", f"none for {K61}",
        "remove that kernel"),
    Row("no kernel at all", PRE, BUILT, {**ON, "kernels": ""}, "fail", "no kernel found"),
    Row("incomplete", PRE, BUILT, {**ON, "packages": dpkg(modules("hU "), IMAGE)}, "fail", f"incomplete: {MINE}",
        "gpuprov apply"),
    Row("not held", PRE, BUILT, {**ON, "packages": dpkg(modules("ii "), IMAGE)}, "fail", f"not held: {MINE}",
        "apt-mark hold"),
    Row("the kernel can move", PRE, BUILT, {**ON, "packages": dpkg(modules(), IMAGE.replace("hi ", "ii "))}, "fail",
        "not held: linux-image-generic", "apt-mark hold linux-image-generic"),
    Row("DKMS beside them", PRE, BUILT,
        {**ON, "packages": dpkg(modules(), IMAGE,
                                f"ii |nvidia-dkms-580-server-open|{U580}|nvidia-graphics-drivers-580-server\n")},
        "fail", "nvidia-dkms-580-server-open", "before what was precompiled"),
    Row("the next boot has no module", "nvidia_driver.modules_built", BUILT,
        {"os_release": UBUNTU, "packages": ON["packages"], "kernels": kernels(K60) + kernels(K61, version="")},
        "fail", f"{K61}: none", "precompiled modules of that kernel"),
    Row("no headers needed", "nvidia_driver.headers", BUILT, {"kernels": kernels(K60)}, "n/a", "precompiled"),
    Row("DKMS need not build", "nvidia_driver.autobuild", BUILT, {"dkms_no_autoinstall": "1\n"}, "n/a", "precompiled"),
    Row("the set", "nvidia_driver.packages", BUILT, {"os_release": UBUNTU, "packages": ON["packages"]}, "pass",
        "580.95.05"),
    Row("the flavour", "nvidia_driver.flavour", BUILT,
        {"os_release": UBUNTU, "packages": ON["packages"], "loaded_driver": ""}, "pass", "open"),
    Row("a fresh host", RESOLVABLE, BUILT, NEW, "pass", "580.95.05", change=f"package {MINE}:  -> 6.8.0-60.62+1"),
    Row("a kernel that nobody has built for", RESOLVABLE, BUILT, {**NEW, "kernels": kernels(K60, K61, version="")},
        "fail",
        f"no linux-modules-nvidia-580-server-open-{K61}",
        "remove the kernel that has none; or nvidia_driver: {build: dkms}"),
    Row("Debian has none", "nvidia_driver.source_offered", BUILT, {}, "fail", "bookworm) has none", "build: dkms"),
    Row("NVIDIA's repository has none for Ubuntu", "nvidia_driver.source_offered",
        NvidiaDriver(build="precompiled", source="nvidia"), {"os_release": UBUNTU}, "fail", "has none",
        "Ubuntu's archive has them"),
    Row("Ubuntu's archive has them", "nvidia_driver.source_offered", BUILT, {"os_release": UBUNTU}, "pass"),
    Row("Ubuntu's are signed", SECURE, BUILT, {"os_release": UBUNTU, "secure_boot": "6 0 0 0 1\n"}, "pass",
        "Canonical"),
    Row("NVIDIA's are not trusted", SECURE, BUILT, {"os_release": ROCKY, "secure_boot": "6 0 0 0 1\n"}, "fail",
        "key of its own", "build: dkms"),
]  # fmt: skip


@run_each("row", ROWS, ids=lambda row: f"{row.check.partition('.')[2]}: {row.name}")
def test_the_answer(row: Row) -> None:
    judge(row)


def test_kernels_need_not_be_held_without_hold() -> None:
    free = NvidiaDriver(version="580", build="precompiled", hold=False)
    assert (
        ask(PRE, free, **{**ON, "packages": dpkg(modules("ii "), "ii |linux-image-generic|6.8.0-60.60|x\n")}).status
        == "pass"
    )


def test_on_el_the_modules_and_the_kernels_are_locked() -> None:
    wanted = [n for n in names("rocky", "9.5", R580, flavour="proprietary") if "dkms" not in n]
    rows = [f"rpm|{n}|3|580.95.05|1.el9|x86_64|{n}-580.95.05-1.el9.src.rpm\n" for n in wanted]
    kmod = "kmod-nvidia-580.95.05-5.14.0-570.12.1"
    rows += [f"rpm|{kmod}|3|580.95.05|3.el9_6|x86_64|{kmod}-580.95.05-3.el9_6.src.rpm\n"]
    rows += ["rpm|kernel-core|0|5.14.0|570.12.1.el9_6|x86_64|kernel-5.14.0-570.12.1.el9_6.src.rpm\n"]
    locking = "plugin|/usr/lib/python3.9/site-packages/dnf-plugins/versionlock.py\n"
    locking += "conf|[main]\nconf|enabled = 1\nconf|locklist = /l\nlist|/l\n"
    mine = NvidiaDriver(version="580", build="precompiled", kernel_modules="proprietary")
    given: dict[str, Output | str] = {"os_release": ROCKY, "kernels": kernels(E12)}
    loose = ask(PRE, mine, **given, packages="".join(rows) + locking)
    assert (loose.status, loose.found) == ("fail", f"not held: {kmod} kernel-core")
    locks = f"lock|{kmod}-3:580.95.05-3.el9_6.*\nlock|kernel-core-0:5.14.0-570.12.1.el9_6.*\n"
    whole = "".join(rows) + locking + locks
    assert ask(PRE, mine, **given, packages=whole).status == "pass"
    by_others = whole.replace(f"|{kmod}-580.95.05-3.el9_6.src.rpm", "|kmods-580-1.src.rpm")
    for check in ("source", "leftovers", "packages"):
        assert ask(f"nvidia_driver.{check}", mine, os_release=ROCKY, packages=by_others).status == "pass", check


def test_el_has_none_of_the_open_flavour() -> None:
    index = {name: [R580] for name in names("rocky", "9.5", R580)}
    told = facts(os_release=ROCKY, packages="", nvidia_functions=B200, kernels=kernels(E12))
    decision = decide(BUILT, told, index, (), Precompiled())
    assert "no precompiled modules of the open flavour" in decision.problem
    assert "build: dkms" in decision.fix


def test_a_distribution_without_them_is_told() -> None:
    with pytest.raises(ProbeFailed, match="no precompiled modules"):
        ask("nvidia_driver.packages", BUILT)


@run_each(
    ("driver", "told"),
    [
        (NvidiaDriver(build="precompiled", signing=Signing(key_file="/k", certificate_file="/c")),
            "signing would sign none"),
        (NvidiaDriver(build="precompiled", build_host="b"), "nothing is built, and nvidia_driver.build_host is b"),
        (NvidiaDriver(build="precompiled", source="runfile", version="580.95.05"),
            "a runfile has its modules built by DKMS"),
    ],
)  # fmt: skip
def test_what_they_contradict(driver: NvidiaDriver, told: str) -> None:
    found = [p for p in nvidia_driver.rules(HostSpec(name="gpu1"), driver) if p.path == ("nvidia_driver", "build")]
    assert [told in problem.message for problem in found] == [True]
    assert "build: dkms" in found[0].fix


def test_export() -> None:
    told = facts(os_release=UBUNTU, nvidia_functions=H100, packages=ON["packages"], modprobe_config="", runfile="")
    assert nvidia_driver.CAPABILITY.export(told) == NvidiaDriver(
        version="580.95.05", kernel_modules="open", build="precompiled"
    )


def test_kernels_are_recorded_before_they_are_held_and_once_more_after_a_transaction_that_may_bring_one() -> None:
    def made(driver: NvidiaDriver = BUILT, **changed: Any) -> dict[str, Any]:
        texts = {**good(), **changed}
        told = facts(**{probe.name: texts[probe.name] for probe in DESIRED.probes})
        return make(Context(HostSpec(name="gpu1", capabilities={"nvidia_driver": driver}), driver, told))

    there = f"offered|{module(K60, '580.95.05')}installed|{module(K60, '580.95.05')}"
    on: dict[str, Any] = {**ON, "package_index": madison(), "precompiled_modules": there, "loaded_driver": ""}
    loose: dict[str, Any] = {**on, "packages": dpkg(modules(), IMAGE.replace("hi ", "ii "))}
    settled = made(**loose)
    tasks = settled["tasks"]
    assert {"packages", "new_kernels", "hold_new_kernels", "modules"} <= set(tasks)
    assert list(settled["record"]["files"].values()) == ["linux-image-generic\n"]
    assert {MINE, "linux-image-generic"} <= set(settled["hold"])
    assert (tasks["modules"]["state"], tasks["modules"]["packages"]) == ("precompiled", [MINE])
    free = made(msgspec.structs.replace(BUILT, hold=False), **loose, kernels_held="linux-image-generic\n")
    assert {"packages", "modules", "after"} <= set(free["tasks"])
    assert (bool(free["forget"]), free["record"]) == (True, {})
    assert (free["hold"], "linux-image-generic" in free["release"]) == ([], True)
