"""EFA on a simulated container, with a stand-in for AWS's installer: applied, kept across a reboot, what is in its way
found."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gpuprov.host_code.efa import RECORD
from gpuprov.simulate import hosts
from gpuprov.simulate.description import Description, Gpus
from gpuprov.simulate.parts.cloud_rdma import PROGRAM
from gpuprov.simulate.standins import efa as standins_efa
from tests.e2e.lab import Lab
from tests.e2e.machine import Machine

pytestmark = [pytest.mark.e2e, pytest.mark.slow]
NAME = "e2e-efa"
HOST = Description(gpu=Gpus(model="A100-SXM4-40GB"), efa=4)
DEVICES = ["rdmaP2p16s27", "rdmaP2p17s27", "rdmaP2p18s27", "rdmaP2p19s27"]
LOADED = "cat /sys/module/efa/version 2>/dev/null || echo none; ls /sys/class/infiniband"
RAN = f"stat -c %Y {RECORD} /opt/amazon/efa_installed_packages"
OTHER = """mkdir -p /opt/other/lib
cp /opt/amazon/ofi-nccl/lib/libnccl-net.so /opt/other/lib/
echo /opt/other/lib > /etc/ld.so.conf.d/000_other.conf
ldconfig
echo 'FI_PROVIDER="tcp"' >> /etc/environment
echo 'export RDMAV_FORK_SAFE=1' > /etc/profile.d/mpi.sh
"""
OTHER_AWAY = """rm -r /opt/other /etc/ld.so.conf.d/000_other.conf /etc/profile.d/mpi.sh
ldconfig
sed -i /FI_PROVIDER/d /etc/environment
"""
HOLD = "systemd-run --quiet --unit holder sh -c 'exec 3</dev/infiniband/uverbs1; exec sleep infinity'; sleep 1"


def loaded(site: Machine) -> list[str]:
    """The version of the driver that is shown as loaded, and the RDMA devices."""
    return site.sh(LOADED).split()


def inventory(lab: Lab, site: Machine, asked: dict[str, Any]) -> Path:
    return lab.inventory({"rdma": {"fabric": "efa", "efa": asked}}, site)


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The installer, as a spec names it."""
    file, digest = standins_efa.write(tmp_path_factory.mktemp("efa"))
    return {"file": str(file), "sha256": digest}


def test_another_checksum_is_refused_before_anything_is_run(lab: Lab, site: Machine, asked: dict[str, Any]) -> None:
    done = lab.run("apply", inventory(lab, site, {**asked, "sha256": "0" * 64}), "--yes")
    assert done.code == 3, done
    assert f"its SHA-256 is {asked['sha256']}" in done.text
    assert "nothing was changed" in done.text
    assert site.sh("ls /opt/amazon /usr/src 2>/dev/null | grep -E 'efa|ofi' || true") == ""
    assert loaded(site) == ["none"]


@pytest.fixture(scope="module")
def folder(lab: Lab, site: Machine, asked: dict[str, Any]) -> Path:
    """The inventory of a host that had none of it, and to which it was applied."""
    made = inventory(lab, site, asked)
    planned = lab.run("plan", made)
    assert "aws-efa-installer" in planned.text, planned
    done = lab.run("apply", made, "--yes")
    assert done.code == 0, done
    return made


def test_what_the_installer_brings_is_proved_and_outlives_a_reboot(lab: Lab, site: Machine, folder: Path) -> None:
    assert loaded(site) == ["3.1.0g", *DEVICES]
    noted = site.sh("cat /opt/amazon/efa_installed_packages")
    assert noted.startswith(f"# EFA installer version: {standins_efa.VERSION}\n")
    assert "openmpi" not in noted, "mpi: none"
    assert "gpuprov stand-in" in site.sh("modinfo -F description efa")
    results = {row["check"]: row for row in lab.run("verify", folder, "--json").json}
    assert "4 on p4d.24xlarge" in results["rdma.efa_interfaces"]["found"]
    assert "/opt/amazon/ofi-nccl/lib/libnccl-net.so 1.19.0-1" in results["rdma.efa_plugin"]["found"]
    assert results["rdma.efa_libfabric"]["status"] == "pass"

    hosts.reboot(NAME)
    assert loaded(site) == ["3.1.0g", *DEVICES], site.sh("journalctl -b -u gpuprov-sim-cloud-rdma")
    done = lab.run("verify", folder)
    assert done.code == 0, done
    before, ran = site.state(), site.sh(RAN)
    done = lab.run("apply", folder, "--yes", "--full")
    assert done.code == 0, done
    assert site.sh(RAN) == ran, "the installer is not run again"
    assert site.state() == before, "a second run changes nothing"


def test_what_makes_nccl_take_tcp_sockets_is_found(lab: Lab, site: Machine, folder: Path) -> None:
    """Files of the site are left to the site."""
    site.sh(OTHER)
    found = lab.run("verify", folder, "--json").failed()
    assert set(found) == {"rdma.efa_plugin", "rdma.efa_environment"}
    assert "/opt/other/lib/libnccl-net.so comes first" in found["rdma.efa_plugin"]["found"]
    assert "/etc/environment says FI_PROVIDER=tcp" in found["rdma.efa_environment"]["found"]
    assert "/etc/profile.d/mpi.sh says RDMAV_FORK_SAFE=1" in found["rdma.efa_environment"]["found"]
    done = lab.run("apply", folder, "--yes")
    assert done.code == 1, done
    assert "take the line out of /etc/environment" in done.text
    site.sh(OTHER_AWAY)
    assert lab.run("verify", folder).code == 0


def test_a_device_without_driver_and_the_kernels_own_driver(lab: Lab, site: Machine, folder: Path) -> None:
    site.sh(f"{PROGRAM} unbind 0002:11:1b.0")
    found = lab.run("verify", folder, "--json").failed()
    assert set(found) == {"rdma.efa_driver", "rdma.efa_interfaces"}
    assert "not bound: 0002:11:1b.0" in found["rdma.efa_driver"]["found"]
    assert found["rdma.efa_interfaces"]["found"] == "3"

    # As an old initramfs may bring it: apply has AWS's loaded in its place, and runs no installer for it.
    ran = site.sh(RAN)
    site.sh(f"rmmod efa; {PROGRAM} own")
    found = lab.run("verify", folder, "--json").failed()
    assert "the kernel's own" in found["rdma.efa_driver"]["found"]
    done = lab.run("apply", folder, "--yes")
    assert done.code == 0, done
    assert loaded(site) == ["3.1.0g", *DEVICES]
    assert site.sh(RAN) == ran


def test_a_driver_in_use_stays_until_a_reboot(lab: Lab, site: Machine, folder: Path) -> None:
    site.sh(f"rmmod efa; {PROGRAM} own; {HOLD}")
    found = lab.run("verify", folder, "--json").failed()
    assert "the kernel's own, and another is on disk; in use by sleep (" in found["rdma.efa_driver"]["found"]
    done = lab.run("apply", folder, "--yes")
    assert "another build of efa is loaded" in done.text, done
    assert "sleep (" in done.text
    assert done.code == 1, done
    assert loaded(site)[0] == "none", "the kernel's own is still there"
    hosts.reboot(NAME)
    done = lab.run("verify", folder)
    assert done.code == 0, done


def test_other_options_are_another_run(lab: Lab, site: Machine, asked: dict[str, Any], folder: Path) -> None:
    direct = lab.run("verify", inventory(lab, site, {**asked, "gpudirect": True}), "--json").failed()
    assert set(direct) == {"rdma.efa_gpudirect"}
    assert "NVIDIA's driver is not loaded" in direct["rdma.efa_gpudirect"]["found"]
    done = lab.run("apply", inventory(lab, site, {**asked, "mpi": "openmpi5"}), "--yes")
    assert done.code == 0, done
    assert "stand-in" in site.sh("/opt/amazon/openmpi5/bin/mpirun")
    found = lab.run("verify", folder, "--json").failed()
    assert "it ran with -y --no-verify --skip-limit-conf --mpi=openmpi5" in found["rdma.efa_source"]["found"]
