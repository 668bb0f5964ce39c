"""DOCA-OFED and RoCE on a simulated host with two HCAs: installed, set, kept across a reboot; faults found by the right
check."""

from __future__ import annotations

from typing import Any

import pytest

from gpuprov.simulate import hosts
from gpuprov.simulate.description import Description, Gpus
from gpuprov.simulate.parts.packages import URL
from tests.e2e.lab import Lab
from tests.e2e.machine import Machine

pytestmark = [pytest.mark.e2e, pytest.mark.slow]
NAME = "e2e-roce"
HOST = Description(gpu=Gpus(model="H100-SXM5-80GB", count=1), hcas=2, fabric="roce", ofed=True)
ROCE: dict[str, Any] = {
    "trust": "dscp", "pfc": [3], "dscp2prio": {"26": 3}, "mode": "v2", "tos": 106, "traffic_class": 106, "ecn": [3],
    "cnp_dscp": 46, "cnp_802p_prio": 6, "mtu": 4200,
}  # fmt: skip
PLACE = "/usr/share/gpuprov-sim/repository/doca"
PORTS = "for d in /sys/class/infiniband/*; do cat $d/ports/1/gid_attrs/ndevs/1; done"


def spec(site: Machine, **roce: Any) -> dict[str, Any]:
    digest, file = site.sh(f"cat {PLACE}/*.sha256").split()
    ofed = {"version": "25.10", "url": f"{URL}/doca/{file}", "sha256": digest, "openib_conf": {"SRP_LOAD": False}}
    block = {"fabric": "roce", "stack": "doca-ofed", "count": 2, "ofed": ofed, "roce": {**ROCE, **roce}}
    return {"rdma": block}


def failures(lab: Lab, folder: Any) -> dict[str, dict[str, Any]]:
    return lab.run("verify", folder, "--json").failed()


def test_inbox_refuses_what_nothing_sets(lab: Lab, site: Machine) -> None:
    asked = {"rdma": {"fabric": "roce", "stack": "inbox", "roce": {"tos": 106, "ecn": [3]}}}
    done = lab.run("apply", lab.inventory(asked, site), "--yes")
    assert done.code == 3, done
    assert "nothing sets ecn of" in done.text
    assert "stack: doca-ofed has all; or leave ecn out" in done.text
    assert "doca" not in site.sh("ls /etc/apt/sources.list.d")


def test_ofed_and_its_settings(lab: Lab, site: Machine) -> None:
    wrong = spec(site)
    wrong["rdma"]["ofed"]["sha256"] = "0" * 64
    done = lab.run("apply", lab.inventory(wrong, site), "--yes")
    assert done.code == 3, done
    assert "doca" not in site.sh("ls /etc/apt/sources.list.d"), "a package with another checksum is not installed"

    folder = lab.inventory(spec(site), site)
    done = lab.run("apply", folder, "--yes")
    assert done.code == 0, done
    assert "OFED-internal-25.10-1.7.1" in site.sh("ofed_info -s")
    assert not site.sh("dpkg-query -W -f '${Version}' dkms").startswith("9.9"), "the distribution's dkms, not DOCA's"
    assert "SRP_LOAD=no" in site.sh("cat /etc/infiniband/openib.conf")
    done = lab.run("apply", folder, "--yes")
    assert "1 unchanged" in done.text, done

    hosts.reboot(NAME)
    assert not failures(lab, folder), site.sh("journalctl -b -u gpuprov-roce -u openibd --no-pager")


def test_faults(lab: Lab, site: Machine) -> None:
    folder = lab.inventory(spec(site), site)
    first, *_ = site.sh(PORTS).split()

    site.sh(f"mlnx_qos -i {first} --pfc 0,0,0,0,0,0,0,0")
    found = failures(lab, folder)
    assert set(found) == {"rdma.roce_settings"}
    assert f"({first}) pfc is none" in found["rdma.roce_settings"]["found"]
    assert "systemctl restart gpuprov-roce.service" in found["rdma.roce_settings"]["fix"]
    site.sh("systemctl restart gpuprov-roce")
    assert not failures(lab, folder)

    # What a restart of openibd takes away, the unit sets again.
    site.sh("systemctl restart openibd")
    assert not failures(lab, folder), site.sh("journalctl -b -u gpuprov-roce -u openibd --no-pager")

    # A port that does not take a setting: the unit says which, and apply tells it.
    site.sh(f"mlnx_qos -i {first} --pfc 0,0,0,0,0,0,0,0; touch /var/lib/gpuprov-sim/faults/roce-pfc-refused")
    done = lab.run("apply", folder, "--yes")
    assert done.code == 3, done
    assert "pfc is none, expected 3 (mlnx_qos: Error setting pfc:[Errno 22] Invalid argument)" in done.text
    assert "gpuprov-roce.service is failed" in failures(lab, folder)["rdma.active"]["found"]
    site.sh("rm /var/lib/gpuprov-sim/faults/roce-pfc-refused; systemctl restart gpuprov-roce")

    site.sh("sed -i 's/^ONBOOT=.*/ONBOOT=no/' /etc/infiniband/openib.conf; apt-mark unhold mlnx-tools")
    found = failures(lab, folder)
    assert set(found) == {"rdma.files", "rdma.ofed_held"}
    assert "ONBOOT=no" in found["rdma.files"]["found"]


def test_settings_that_are_asked_for_no_more(lab: Lab, site: Machine) -> None:
    asked = spec(site)
    asked["rdma"]["roce"] = {}
    done = lab.run("apply", lab.inventory(asked, site), "--yes")
    assert done.code == 0, done
    assert "gpuprov-roce" not in site.sh("systemctl list-unit-files 'gpuprov-*' --no-legend")
