"""HPC-X on a simulated host with two HCAs, from a stand-in of its archive: SHARP's plugin, and faults that verify
names."""

from __future__ import annotations

from typing import Any

import pytest

from gpuprov.simulate import faults, hosts
from gpuprov.simulate.description import Description, Gpus
from gpuprov.simulate.standins import hpcx
from tests.e2e.lab import Lab
from tests.e2e.machine import Machine

pytestmark = [pytest.mark.e2e, pytest.mark.slow]
NAME = "e2e-hpc"
HOST = Description(gpu=Gpus(model="H100-SXM5-80GB", count=2), hcas=2)
INBOX = hpcx.FOLDER.replace("doca_ofed", "inbox")


def test_hpcx(lab: Lab, site: Machine, tmp_path_factory: pytest.TempPathFactory) -> None:
    file, digest = hpcx.write(tmp_path_factory.mktemp("hpcx"), INBOX)
    rdma = {"fabric": "infiniband", "count": 2, "opensm": {"elsewhere": True}, "nccl": {"sharp": True}}
    asked: dict[str, Any] = {"hpcx": {"file": str(file), "sha256": digest}, "cuda_aware": True}
    folder = lab.inventory({"rdma": rdma, "hpc": asked}, site)
    planned = lab.run("plan", folder)
    assert INBOX in planned.text, planned
    done = lab.run("apply", folder, "--yes")
    assert done.code == 0, done
    assert site.sh("readlink /opt/hpcx").strip() == INBOX
    assert "/opt/hpcx/nccl_rdma_sharp_plugin/lib/libnccl-net.so" in site.sh("ldconfig -p")
    assert "NCCL_COLLNET_ENABLE=1" in site.sh("cat /etc/nccl.conf")
    assert lab.run("apply", folder, "--yes", "--json").json["hosts"][0]["state"] == "unchanged"
    for name in ("hpc-plugin-missing", "hpc-other-cuda", "hpc-ucx-foreign"):
        fault = faults.plant(NAME, name, hosts.run)
        assert fault.caught_by in lab.run("verify", folder, "--json").failed(), name
        faults.heal(NAME, name, hosts.run)
    done = lab.run("verify", folder)
    assert done.code == 0, done
    asked["hpcx"]["sha256"] = "0" * 64
    done = lab.run("apply", lab.inventory({"rdma": rdma, "hpc": asked}, site), "--yes")
    assert done.code == 2, done
