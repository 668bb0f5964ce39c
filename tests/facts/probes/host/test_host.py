"""The machine, its packages and its boot configuration, from captured text."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from gpuprov.facts.probes.base import Facts, Output, Probe, ProbeFailed
from gpuprov.facts.probes.host import house, system, systemd
from gpuprov.facts.probes.host.systemd import Unit
from gpuprov.facts.probes.kernel import boot, initramfs
from tests.facts.probes import captured
from tests.rows import run_each


def test_os_release() -> None:
    release = system.parse_os_release(captured("os_release", "debian12"))
    assert (release.id, release.version, release.name) == ("debian", "12", "Debian GNU/Linux 12 (bookworm)")


def test_a_distribution_without_a_version_has_none() -> None:
    release = system.parse_os_release(Output('PRETTY_NAME="Debian GNU/Linux forky/sid"\nID=debian\n'))
    assert (release.id, release.version) == ("debian", "")


def test_platform() -> None:
    platform = system.parse_platform(Output("Linux 6.1.0-47-amd64 x86_64\n"))
    assert (platform.system, platform.kernel, platform.machine) == ("Linux", "6.1.0-47-amd64", "x86_64")


@run_each("text", ["", "Linux\n", "sh: uname: not found extra words\n"])
def test_a_platform_that_cannot_be_read_fails(text: str) -> None:
    with pytest.raises(ProbeFailed, match="uname printed"):
        Facts({"platform": Output(text)}).get(system.PLATFORM)


@run_each(
    ("text", "kind"), [("podman\n", "podman"), ("none\n", ""), ("", ""), ("none\npodman\n", "podman"), ("lxc\n", "lxc")]
)
def test_container(text: str, kind: str) -> None:
    assert system.parse_container(Output(text)) == kind


def test_clock() -> None:
    assert system.parse_clock(Output("1790000000\n")) == 1790000000


@run_each("probe", [system.CLOCK, system.SPACE])
def test_what_is_no_number_fails(probe: Probe[object]) -> None:
    with pytest.raises(ProbeFailed, match=f"{probe.name} cannot be read"):
        Facts({probe.name: Output("Permission denied\n")}).get(probe)


def test_space_in_mib() -> None:
    assert system.parse_space(Output("512000 /boot\n10485760 /var\n")) == {"/boot": 500, "/var": 10240}


def test_units() -> None:
    units = systemd.parse_units(captured("units", "driver_installed"))
    assert units["nvidia-persistenced.service"] == Unit("nvidia-persistenced.service", "loaded", "failed", "enabled")
    assert units["gpuprov-persistence.service"].load == "not-found"
    assert systemd.parse_units(Output("", 1, "System has not been booted with systemd as init system")) == {}


def test_a_unit_that_no_probe_asks_for_is_a_mistake_and_not_one_that_is_missing() -> None:
    """Of one that is asked for, systemd may say nothing: it is not there."""
    units = Facts(
        {"units": Output("Id=gpuprov-persistence.service\nLoadState=loaded\nActiveState=active\nUnitFileState=enabled")}
    ).get(systemd.SYSTEMD_UNITS)
    assert units["gpuprov-persistence.service"].file == "enabled"
    assert units["nvidia-persistenced.service"] == systemd.MISSING
    with pytest.raises(
        systemd.UnknownUnit, match=r"no probe reads the unit tuned\.service: it is not among nvidia-persistenced"
    ):
        units["tuned.service"]


def test_limits_of_services() -> None:
    limits = systemd.parse_limits(captured("default_limits", "debian12"))
    assert limits["memlock"] == "8388608"
    assert limits["nofile"] == "524288"
    assert limits["stack"] == "infinity"


def test_limits_of_logins() -> None:
    assert boot.parse_login_limits(captured("login_limits", "site")) == {"memlock": "unlimited"}
    later = "* - nofile 4096\n* soft nofile 1024\n* hard core 0\n"
    assert boot.parse_login_limits(Output(later)) == {"nofile": "1024:4096", "core": "unset:0"}


def test_command_line() -> None:
    words = boot.parse_command_line(captured("command_line", "grub"))
    assert words["iommu"] == "pt"
    assert words["quiet"] == ""


def test_boot_entries() -> None:
    entries = boot.parse_boot_entries(captured("boot_entries", "grub"))
    assert ["single" in entry for entry in entries] == [False, False, True, False]
    assert [entry.get("iommu") for entry in entries] == ["pt", "pt", None, None]
    assert [entry.kernel for entry in entries] == [*["6.1.0-47-amd64"] * 3, "6.1.0-44-amd64"]
    with pytest.raises(ProbeFailed):
        boot.parse_boot_entries(Output("sed: not found\n"))


def test_boot_entries_of_boot_loader_specification_files() -> None:
    el8, el9 = boot.parse_boot_entries(Output("set next_entry \n" + captured("boot_entries", "bls").text))
    assert el8["iommu"] == "pt", "what $kernelopts stands for in grub's environment"
    assert "$tuned_params" not in el8
    assert (el9["root"], el9["console"], el9["iommu"]) == ("UUID=5f6c", "ttyS0,115200", "pt")


def test_sysctl() -> None:
    values = boot.parse_sysctl(captured("sysctl", "debian12"))
    assert values["vm.max_map_count"] == "65530"
    assert values["net.ipv4.tcp_rmem"] == "4096 131072 33554432"


def test_modules_load() -> None:
    assert boot.parse_modules_load(captured("modules_load", "driver_installed")) == {"nvidia_drm"}
    assert boot.parse_modules_load(Output("# a\n; b\n\n ib_uverbs \nnvidia-uvm\nvfio-pci ids=10de:2330\n")) == {
        *("ib_uverbs", "nvidia_uvm", "vfio_pci")
    }


def test_initramfs() -> None:
    old, new, broken = initramfs.parse(captured("initramfs", "two_images"))
    assert old.modules == {"nouveau", "nova_core"}
    assert (new.modules, new.holds_configuration, new.readable) == (frozenset({"nvidia_current"}), True, True)
    assert not broken.readable
    (container,) = initramfs.parse(captured("initramfs", "debian12"))
    assert (container.modules, container.holds_configuration, container.readable) == (frozenset(), False, True)


def test_initramfs_of_dracut() -> None:
    old, new = initramfs.parse(captured("initramfs", "rocky9"))
    assert (old.release, old.holds_configuration) == ("5.14.0-503.11.1.el9_5.x86_64", False)
    assert old.modules == {"nouveau"}
    assert (new.release, new.holds_configuration, new.by_dracut) == ("5.14.0-570.12.1.el9_6.x86_64", True, True)
    assert (new.rebuild, new.listing) == ("dracut --force --regenerate-all", f"lsinitrd {new.image}")
    (debian,) = initramfs.parse(captured("initramfs", "debian12"))
    assert (debian.release, debian.rebuild) == ("6.1.0-56-amd64", "update-initramfs -u -k all")
    assert debian.listing == f"lsinitramfs {debian.image}"


@run_each(
    ("text", "key"),
    [
        ("enrolled|/var/lib/dkms/mok.pub\n", house.SigningKey("/var/lib/dkms/mok.pub", True, True)),
        ("other|/etc/site/mok.der\n", house.SigningKey("/etc/site/mok.der", False, True)),
        ("missing|/var/lib/shim-signed/mok/MOK.der\n", house.SigningKey("/var/lib/shim-signed/mok/MOK.der")),
        ("", house.SigningKey()),
    ],
)
def test_the_key_that_dkms_signs_with(text: str, key: house.SigningKey) -> None:
    found = house.parse_key(Output(text))
    assert found == key
    assert bool(found) is key.enrolled


@run_each(("case", "on"), [("on", True), ("off", False)])
def test_secure_boot(case: str, on: bool) -> None:
    assert house.parse_secure_boot(captured("secure_boot", case)) is on


def test_no_efi_is_no_secure_boot() -> None:
    assert house.parse_secure_boot(Output("")) is False


def test_secure_boot_that_shim_does_not_heed_is_off(tmp_path: Path) -> None:
    """`mokutil --sb-state` says "SecureBoot validation is disabled in shim" then, and the kernel takes any module."""
    guid = "605dab50-e046-4300-abb6-3dd810dd8b23"
    script = house.SECURE_BOOT.script.replace("/sys/firmware/efi/efivars", str(tmp_path))
    (tmp_path / "SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c").write_bytes(b"\6\0\0\0\1")
    for value, on in ((None, True), (b"\6\0\0\0\0", True), (b"\6\0\0\0\1", False)):
        if value:
            (tmp_path / f"MokSBStateRT-{guid}").write_bytes(value)
        done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True)
        assert house.parse_secure_boot(Output(done.stdout)) is on, value


def test_receipt() -> None:
    text = (
        '{"applied_at": "2025-01-02T03:04:05Z", "gpuprov_version": "0.1.0", "capabilities": {"kernel": '
        '{"digest": "ab"}}}'
    )
    receipt = house.parse_receipt(Output(text))
    assert receipt
    assert receipt.capabilities["kernel"].digest == "ab"
    assert house.parse_receipt(Output("")) is None


@run_each("text", ['{"applied_at": "2025', "[]", '{"capabilities": {"kernel": {}}}', "\x00\x00"])
def test_a_damaged_receipt_says_so(text: str) -> None:
    receipt = house.parse_receipt(Output(text))
    assert receipt
    assert receipt.damaged


@run_each(("made", "damaged"), [("true", False), (": > R", True), ("mkdir R", True)])
def test_a_receipt_without_a_word_is_damaged_and_none_is_none(tmp_path: Path, made: str, damaged: bool) -> None:
    file = tmp_path / "receipt.json"
    script = f"{made.replace('R', str(file))}; {house.RECEIPT.script.replace(house.RECEIPT_FILE, str(file))}"
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True)
    receipt = house.parse_receipt(Output(done.stdout))
    assert bool(receipt and receipt.damaged) == damaged


def test_lock() -> None:
    lock = house.parse_lock(Output('{"user": "ada", "host": "adminbox", "pid": 71, "since": "2025-01-02T03:04:05Z"}'))
    assert lock
    assert (lock.user, lock.pid, lock.damaged) == ("ada", 71, "")
    assert house.parse_lock(Output("")) is None
    without_owner = house.parse_lock(Output("-\n"))
    assert without_owner
    assert without_owner.damaged


def test_reboot_reasons() -> None:
    found = house.parse_reasons(
        Output("kernel|started without iommu=pt\nnvidia_driver|550 is loaded | 535 installed\n")
    )
    assert found == {"kernel": "started without iommu=pt", "nvidia_driver": "550 is loaded | 535 installed"}


def test_facts_parse_once_and_name_what_is_missing() -> None:
    facts = Facts({"os_release": captured("os_release", "debian12")})
    assert facts.get(system.OS_RELEASE) is facts.get(system.OS_RELEASE)
    with pytest.raises(ProbeFailed, match="platform was not read on the host"):
        facts.get(system.PLATFORM)
