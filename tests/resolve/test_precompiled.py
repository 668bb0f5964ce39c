"""Precompiled modules: one version for which every kernel of the host has its package, whatever version that package
has."""

from __future__ import annotations

from typing import Any

from gpuprov.catalog.drivers.any import find_installed_driver
from gpuprov.catalog.drivers.sets import DriverPackages, find_packages
from gpuprov.facts.probes.base import Output
from gpuprov.facts.probes.driver.driver_packages import Precompiled, parse
from gpuprov.rules import package_lists, resolve
from gpuprov.rules.package_lists import Answer
from tests.rows import run_each

H100 = "10de:2330"
TABLE = {H100: "either", "10de:2901": "open-required"}
U570, U580, U580B = ("570.195.03-0ubuntu0.24.04.1", "580.95.05-0ubuntu0.24.04.2", "580.159.03-0ubuntu0.24.04.1")
R580 = "3:580.95.05-1.el9"
K60, K61 = "6.8.0-60-generic", "6.8.0-61-generic"
E12, E19 = "5.14.0-570.12.1.el9_6.x86_64", "5.14.0-570.19.1.el9_6.x86_64"


def names(os_id: str, version: str, build: str = "precompiled") -> DriverPackages:
    found = find_packages(os_id, version, build=build)
    assert found
    return found


UBUNTU, EL9 = names("ubuntu", "24.04"), names("rocky", "9.6")


def offer(packages: DriverPackages, *versions: str, flavour: str = "open") -> dict[str, list[str]]:
    index: dict[str, list[str]] = {}
    for version in versions:
        for name in resolve.fitting(packages.sets[flavour], version):
            index.setdefault(name, []).append(version)
    return index


def module(kernel: str, driver: str, version: str = "", *, end: str = "-open") -> str:
    """A line about Ubuntu's package for a kernel, as the probe prints it."""
    branch = driver[:3]
    common = f"nvidia-kernel-common-{branch}-server"
    full = version or f"{kernel[:8]}.62+1"
    exact = (
        f"linux-signatures-nvidia-{kernel} (= {full}), linux-objects-nvidia-{branch}-server{end}-{kernel} (= {full})"
    )
    depends = (
        f"linux-image-{kernel} | linux-image-unsigned-{kernel}, {exact}, {common} (<= {driver}-1), {common} "
        f"(>= {driver})"
    )
    return f"linux-modules-nvidia-{branch}-server{end}-{kernel}|{full}|{depends}\n"


def offered(*lines: str) -> Precompiled:
    return parse(Output("".join(f"offered|{line}" for line in lines)))


def decide(packages: DriverPackages, wanted: str, kernels: list[str], built: Precompiled, **more: Any) -> Answer:
    index, installed = more.pop("index", {}), more.pop("installed", {})
    sets = package_lists.precompiled_sets(packages.sets, packages.precompiled, kernels)
    given = {"modules": "open", "pci_ids": [H100], "table": TABLE, "others": packages.others, **more}
    return resolve.decide(
        wanted, sets=sets, index={**index, **built.offered}, installed={**installed, **built.installed}, **given
    )


def test_ubuntus_package_of_the_kernel_joins_the_set_in_its_own_version() -> None:
    answer = decide(UBUNTU, "580", [K60], offered(module(K60, "580.95.05")), index=offer(UBUNTU, U580))
    assert answer["problem"] == ""
    assert answer["version"] == "580.95.05"
    real = package_lists.real_versions(answer["packages"], offered(module(K60, "580.95.05")).exact)
    assert real[f"linux-modules-nvidia-580-server-open-{K60}"] == "6.8.0-60.62+1"
    assert real[f"linux-objects-nvidia-580-server-open-{K60}"] == "6.8.0-60.62+1", (
        "apt takes the newest unless it is named"
    )
    assert real[f"linux-signatures-nvidia-{K60}"] == "6.8.0-60.62+1"
    assert next(iter(real)) == "nvidia-kernel-common-580-server", "what tells the driver's version comes first"
    assert {version for name, version in real.items() if not name.startswith("linux-")} == {U580}
    assert not [name for name in real if "dkms" in name or "kernel-source" in name]


def test_the_newest_driver_for_which_every_kernel_has_modules() -> None:
    built = offered(module(K60, "580.95.05"), module(K60, "580.159.03", "6.8.0-60.62+2"), module(K61, "580.95.05"))
    index = offer(UBUNTU, U580B, U580)
    assert decide(UBUNTU, "580", [K60], built, index=index)["version"] == "580.159.03"
    both = decide(UBUNTU, "580", [K60, K61], built, index=index)
    assert both["version"] == "580.95.05"
    assert f"linux-modules-nvidia-580-server-open-{K61}" in both["packages"]


def test_a_kernel_without_modules_is_named_with_the_nearest_whole_version() -> None:
    built = offered(module(K60, "580.95.05"), module(K60, "570.195.03"), module(K61, "570.195.03"))
    index = offer(UBUNTU, U580, U570)
    answer = decide(UBUNTU, "580", [K60, K61], built, index=index)
    assert f"no linux-modules-nvidia-580-server-open-{K61}" in answer["problem"]
    assert "580.95.05 is incomplete" in answer["problem"]
    assert "nearest version with the whole set is 570.195.03" in answer["fix"]


def test_what_is_installed_is_kept() -> None:
    have = dict.fromkeys(resolve.fitting(UBUNTU.open, U580), U580)
    lines = [f"offered|{module(K60, '580.159.03', '6.8.0-60.62+2')}", f"installed|{module(K60, '580.95.05')}"]
    built = parse(Output("".join(lines)))
    have[f"linux-modules-nvidia-580-server-open-{K60}"] = "6.8.0-60.62+1"
    answer = decide(UBUNTU, "580", [K60], built, index=offer(UBUNTU, U580B, U580), installed=have)
    assert answer["kept"]
    assert answer["replaced"] == []
    assert resolve.kernel_package(UBUNTU.sets, have) == {"open": "nvidia-kernel-common-580-server"}
    assert find_installed_driver("ubuntu", "24.04", have) == U580


def test_dkms_and_the_modules_of_another_driver_leave_in_the_same_transaction() -> None:
    dkms = names("ubuntu", "24.04", "dkms")
    have = dict.fromkeys(resolve.fitting(dkms.open, U580), U580)
    have |= {
        "linux-modules-nvidia-580-server-generic": "6.8.0-60.62",
        f"linux-modules-nvidia-570-server-{K60}": "6.8.0-60.62",
    }
    built = offered(module(K60, "580.95.05"))
    answer = decide(UBUNTU, "580", [K60], built, index=offer(UBUNTU, U580), installed=have)
    assert {
        "nvidia-dkms-580-server-open",
        "nvidia-kernel-source-580-server-open",
        "linux-modules-nvidia-580-server-generic",
        f"linux-modules-nvidia-570-server-{K60}",
    } <= set(answer["replaced"])  # fmt: skip
    back = resolve.decide(
        "580",
        "open",
        [H100],
        TABLE,
        dkms.sets,
        offer(dkms, U580),
        package_lists.real_versions(answer["packages"], {}),
        others=dkms.others,
    )
    assert back["replaced"] == [f"linux-modules-nvidia-580-server-open-{K60}"]
    assert "nvidia-dkms-580-server-open" in back["packages"]


def test_nvidias_package_for_dnf_has_driver_and_kernel_in_its_name() -> None:
    lines = ["offered|kmod-nvidia-580.95.05-5.14.0-570.12.1|3:580.95.05-3.el9_6|\n"]
    built = parse(Output("".join(lines)))
    index = offer(EL9, R580, flavour="proprietary")
    answer = decide(EL9, "580", [E12], built, index=index, modules="proprietary")
    assert answer["packages"]["kmod-nvidia-580.95.05-5.14.0-570.12.1"] == "3:580.95.05-3.el9_6"
    assert next(iter(answer["packages"])) == "nvidia-kmod-common"
    lacking = decide(EL9, "580", [E12, E19], built, index=index, modules="proprietary")
    assert "no kmod-nvidia-580.95.05-5.14.0-570.19.1" in lacking["problem"]
    have = package_lists.real_versions(answer["packages"], {})
    assert resolve.kernel_package(EL9.sets, have) == {"proprietary": "nvidia-kmod-common"}


def test_who_has_none() -> None:
    assert find_packages("debian", "12", build="precompiled") is None
    assert find_packages("ubuntu", "24.04", "nvidia", "precompiled") is None
    assert find_packages("rhel", "10.0", build="precompiled") is None
    assert set(EL9.precompiled) == {"proprietary"}


@run_each(
    "line",
    [
        "offered|linux-modules-nvidia-580-6.8.0-60-generic|6.8.0-60.62|libc6",
        "offered|x",
        "",
        "other|a|1|",
        "installed|kmod-nvidia-1||",
    ],
)
def test_lines_that_tell_no_driver_are_left_out(line: str) -> None:
    assert parse(Output(line)) == Precompiled()


def test_a_long_word_is_read_once() -> None:
    """Read once from each of its letters, it would take a quarter of an hour."""
    word = "570.14.0-" * 30_000
    found = parse(Output(f"offered|kmod-nvidia-a|3:1-2|{word}, b (= 1), nvidia-kernel-common-{word}"))
    assert found.exact == {"kmod-nvidia-a=3:1-2": {"b": "1"}}
