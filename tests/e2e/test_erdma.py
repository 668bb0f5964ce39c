"""eRDMA on a simulated container, with a stand-in for Alibaba's installer: applied, kept across a reboot, its wrong
default found."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuprov.simulate import hosts
from gpuprov.simulate.description import Description, Gpus
from gpuprov.simulate.standins import erdma as standins_erdma
from tests.e2e.lab import Lab
from tests.e2e.machine import Machine

pytestmark = [pytest.mark.e2e, pytest.mark.slow]
NAME = "e2e-erdma"
HOST = Description(gpu=Gpus(model="T4"), erdma=True)
CONF = ["NCCL_IB_HCA==erdma_0", "NCCL_IB_GID_INDEX=-1", "NCCL_IB_ADDR_FAMILY=AF_INET", "NCCL_IB_ROCE_VERSION_NUM=2"]
STATE = "cat /sys/module/erdma/parameters/compat_mode /sys/class/net/eth1/mtu /sys/class/infiniband/erdma_0/node_type"


def test_erdma(lab: Lab, site: Machine, tmp_path: Path) -> None:
    file, digest = standins_erdma.write(tmp_path)
    asked = {"file": str(file), "sha256": digest, "compat_mode": True, "mtu": "jumbo"}
    spec = {"rdma": {"fabric": "erdma", "erdma": asked}}

    # Another checksum: nothing of the archive is run, and nothing is changed.
    folder = lab.inventory({"rdma": {"fabric": "erdma", "erdma": {**asked, "sha256": "0" * 64}}}, site)
    done = lab.run("apply", folder, "--yes")
    assert done.code == 3, done
    assert f"its SHA-256 is {digest}" in done.text
    assert "nothing was changed" in done.text
    assert site.sh("ls /usr/src | grep erdma || true") == ""

    # What an image may have: a driver that was built without OFED, whose mode is its default, and NCCL told of other
    # devices.
    site.sh("echo NCCL_IB_HCA=mlx5 > /etc/nccl.conf")
    folder = lab.inventory(spec, site)
    done = lab.run("apply", folder, "--yes")
    assert done.code == 0, done
    assert site.sh(STATE).split("\n")[:3] == ["Y", "8500", "1: CA"]
    assert [line for line in site.sh("cat /etc/nccl.conf").splitlines() if line.startswith("NCCL")] == CONF
    assert "NCCL_IB_HCA=mlx5" in site.sh("cat /etc/nccl.conf.*")
    assert "softdep erdma pre: ib_uverbs" in site.sh("cat /etc/modprobe.d/erdma.conf")

    hosts.reboot(NAME)
    assert site.sh(STATE).split("\n")[:3] == ["Y", "8500", "1: CA"], site.sh("journalctl -b -u gpuprov-erdma")
    done = lab.run("verify", folder)
    assert done.code == 0, done
    done = lab.run("apply", folder, "--yes", "--full")
    assert done.code == 0, done
    again = site.sh("ls /etc/nccl.conf.* | wc -l; dkms status erdma").split("\n")
    assert again[0] == "1", "a second run changes nothing"

    # The driver's own default, as it is without OFED and without options; the popular recipe; an MTU that somebody set.
    site.sh(
        "rm /etc/modprobe.d/gpuprov-erdma.conf; rmmod erdma; modprobe erdma compat_mode=N; ip link set eth1 mtu 1500"
    )
    site.sh("echo 'options erdma compat_mode=N' > /etc/modprobe.d/erdma.conf")
    found = lab.run("verify", folder, "--json").failed()
    assert "compat_mode is N" in found["rdma.erdma_mode"]["found"]
    assert "compat_mode is N" in found["rdma.erdma_options"]["found"]
    assert "eth1 of erdma_0 has MTU 1500" in found["rdma.erdma_mtu"]["found"]
    assert "LL128" in found["rdma.erdma_mtu"]["fix"]
    assert "NCCL_IB_DISABLE=1" in found["rdma.nccl_file"]["expected"], "the device is iWARP now"

    # A process that holds a device is named, and nothing is changed.
    site.sh("systemd-run --quiet --unit holder sh -c 'exec 3</dev/infiniband/uverbs0; exec sleep infinity'; sleep 1")
    done = lab.run("apply", folder, "--yes")
    assert "sleep (" in done.text, done
    assert "compat_mode must change" in done.text
    site.sh("systemctl stop holder")
    done = lab.run("apply", folder, "--yes")
    assert site.sh(STATE).split("\n")[:3] == ["Y", "8500", "1: CA"], done
    assert "rdma.erdma_options" in done.text, "the driver package's file is still without its softdep"
    site.sh("echo 'softdep erdma pre: ib_uverbs' > /etc/modprobe.d/erdma.conf")
    assert lab.run("verify", folder).code == 0
