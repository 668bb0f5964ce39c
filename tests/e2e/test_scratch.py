"""A scratch file system on a machine's local NVMe disks (QEMU's): made of blank disks, kept over a reboot, made anew
when they came back blank, before the engine that requires it; what holds anything is refused and stays as it is."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from gpuprov.simulate import hosts, inventory, local_disks, machine
from gpuprov.simulate.description import Description
from tests.e2e.booted import Booted, booted

pytestmark = [pytest.mark.e2e, pytest.mark.slow]
NAME = "e2e-scratch1"
DESCRIPTION = Description(kind="machine", memory=1024, nvme=(512, 512, 512))
LINK = "nvme-QEMU_NVMe_Ctrl_gpuprov"
SPEC = {"scratch": {"disks": [f"{LINK}0", f"{LINK}1"], "count": 2, "required_by": ["containerd"]}}
OTHER = {"kernel": {"sysctl": {"vm.swappiness": 10}}}
ALL = {"scratch": {"disks": [f"{LINK}*"]}}
ENGINE = """cat >/etc/systemd/system/containerd.service <<END
[Service]
ExecStart=/bin/sh -c 'touch /scratch/engine; exec sleep infinity'
[Install]
WantedBy=multi-user.target
END
systemctl daemon-reload; systemctl enable containerd 2>/dev/null"""
"""A stand-in of an engine, of which the order of its start alone matters."""
FOREIGN = "command -v sfdisk >/dev/null || { apt-get -qq update; apt-get -qq install -y fdisk >&2; }\n"
FOREIGN += f"mkfs.ext4 -q -L home /dev/disk/by-id/{LINK}2; echo 'label: gpt' | sfdisk -q /dev/disk/by-id/{LINK}1"
SUMS = f"sync; for n in 0 1 2; do dd if=/dev/disk/by-id/{LINK}$n bs=1M count=64 2>/dev/null | sha256sum; done"
TRACES = "ls /etc/gpuprov /var/lib/gpuprov/scratch 2>/dev/null || true; grep -s ^md /proc/mdstat || true"
WHERE = "findmnt -n -o SOURCE,FSTYPE /scratch"
ARRAY = "mdadm --detail --export /dev/md/*gpuprov-scratch | sed -n s/^MD_UUID=//p"
STARTED = "systemctl show -P ActiveEnterTimestampMonotonic"


@pytest.fixture(scope="module", name="host")
def _host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Booted]:
    with booted(tmp_path_factory.mktemp("scratch"), DESCRIPTION, NAME) as made:
        hosts.run(NAME, ENGINE)
        yield made


def replace_disks(host: Booted, *indices: int) -> None:
    """Switch the machine off and on again with blank disks in place of these, as a stop and a start of an instance
    does."""
    for index in indices:
        local_disks.find_file(machine.control(NAME).parent, index).unlink()
    inventory.write([machine.refit(NAME, "bios")], host.folder / "inventory.yaml", DESCRIPTION)


def failing(told: Any) -> set[str]:
    return {row["check"] for row in told if row["status"] == "fail"}


def test_disks_that_hold_something_are_refused_and_stay_as_they_are(host: Booted) -> None:
    host.sh(FOREIGN)
    before = host.sh(SUMS)
    code, told = host.gpuprov("apply", ALL, "--yes")
    assert code == 3
    text = json.dumps(told)
    assert "gpt" in text
    assert "ext4" in text
    assert "home" in text
    assert "wipefs -a /dev/nvme" in text
    assert host.sh(SUMS) == before
    assert host.sh(TRACES) == ""
    replace_disks(host, 0, 1)


def test_blank_disks_are_made_one_file_system_that_is_there_after_a_reboot(host: Booted) -> None:
    _, told = host.gpuprov("plan", SPEC)
    assert "MiB, QEMU NVMe Ctrl, gpuprov0)" in json.dumps(told)
    code, told = host.gpuprov("apply", SPEC, "--yes")
    assert code == 0, told
    assert host.sh(WHERE).split()[1] == "xfs"
    assert host.sh("stat -c %a /scratch").strip() == "1777"
    code, told = host.gpuprov("apply", SPEC, "--yes")
    assert [each["state"] for each in told["hosts"]] == ["unchanged"]
    own = host.sh(f"echo kept >/scratch/file; sync; {ARRAY}")
    hosts.reboot(NAME)
    assert host.sh("cat /scratch/file") == "kept\n"
    assert host.sh(ARRAY) == own
    assert int(host.sh(f"{STARTED} gpuprov-scratch")) <= int(host.sh(f"{STARTED} containerd"))
    assert host.gpuprov("verify", SPEC)[0] == 0


@pytest.mark.parametrize(
    ("plant", "check"),
    [("umount /scratch", "scratch.mounted"), ("chmod 755 /scratch", "scratch.mounted"),
     ("systemctl disable gpuprov-scratch 2>&1", "scratch.enabled")],
)  # fmt: skip
def test_a_fault_is_found_and_apply_mends_it(host: Booted, plant: str, check: str) -> None:
    host.sh(plant)
    code, told = host.gpuprov("verify", SPEC)
    assert code == 1
    assert check in failing(told)
    assert host.gpuprov("apply", SPEC, "--yes")[0] == 0
    assert host.sh("cat /scratch/file") == "kept\n"


def test_the_block_goes_and_the_data_stay(host: Booted) -> None:
    _, told = host.gpuprov("plan", OTHER, "--prune")
    assert "its data on the disks" in json.dumps(told)
    code, told = host.gpuprov("apply", OTHER, "--yes", "--prune")
    assert code == 0, told
    assert host.sh("systemctl list-unit-files gpuprov-scratch.service --no-legend || true") == ""
    assert host.sh("cat /scratch/file") == "kept\n"
    hosts.reboot(NAME)
    assert host.sh(f"{WHERE} || true") == ""
    code, told = host.gpuprov("apply", SPEC, "--yes")
    assert code == 3
    assert "/scratch holds files, which a mount would hide" in json.dumps(told), "the engine wrote to the root disk"
    host.sh("rm /scratch/engine")
    code, told = host.gpuprov("apply", SPEC, "--yes")
    assert code == 0, told
    assert host.sh("cat /scratch/file") == "kept\n"


def test_disks_that_came_back_blank_are_made_anew_before_the_engine(host: Booted) -> None:
    own = host.sh(ARRAY)
    replace_disks(host, 0, 1)
    assert host.sh("ls /scratch").split() == ["engine"]
    assert host.sh(ARRAY) != own
    assert host.sh("systemctl is-active containerd") == "active\n"
    assert host.gpuprov("verify", SPEC)[0] == 0


def test_without_it_the_engine_does_not_start(host: Booted) -> None:
    """One disk of two came back blank: nothing is made, the unit fails, and the engine does not write to the root
    disk."""
    host.sh("umount /scratch; mdadm --stop /dev/md/*gpuprov-scratch 2>&1")
    before = host.sh(SUMS).splitlines()[1]
    replace_disks(host, 0)
    assert host.sh("systemctl is-failed gpuprov-scratch || true") == "failed\n"
    assert host.sh("systemctl is-active containerd || true") != "active\n"
    assert host.sh("ls -A /scratch") == ""
    assert host.sh(SUMS).splitlines()[1] == before
    code, told = host.gpuprov("verify", SPEC)
    assert code == 1
    assert {"scratch.active", "scratch.mounted"} <= failing(told)
    assert "blank" in json.dumps(told)
