"""GPUDirect Storage on a simulated host with two L40S: installed, configured, kept, and faults that verify names."""

from __future__ import annotations

from typing import Any

import pytest

from gpuprov.simulate import faults, hosts
from gpuprov.simulate.description import Description, Gpus
from tests.e2e.lab import Lab
from tests.e2e.machine import Machine

pytestmark = [pytest.mark.e2e, pytest.mark.slow]
NAME = "e2e-gds"
HOST = Description(gpu=Gpus(model="L40S", count=2), driver="580", repositories=("distribution", "nvidia"))
SPEC: dict[str, Any] = {
    "nvidia_driver": {"version": "580", "kernel_modules": "open", "source": "nvidia"},
    "rdma": False,
    "gds": {
        "toolkit": "12.8",
        "file_systems": ["nvme"],
        "compat_mode": "deny",
        "cufile": {"properties.max_direct_io_size_kb": 8192},
    },
}
FILE = "/usr/local/cuda-12.8/gds/cufile.json"


def test_gds(lab: Lab, site: Machine) -> None:
    folder = lab.inventory(SPEC, site)
    done = lab.run("apply", folder, "--yes")
    assert done.code == 0, done
    text = site.sh(f"cat {FILE}")
    assert '"max_direct_io_size_kb" : 8192' in text
    assert '// "dir": "/home/<xxxx>"' in text, "comments stay"
    assert site.sh("readlink -f /etc/cufile.json").strip() == FILE
    assert "stand-in" in site.sh("/usr/local/cuda-12.8/gds/tools/gdscheck -p")
    assert lab.run("apply", folder, "--yes", "--json").json["hosts"][0]["state"] == "unchanged"
    hosts.reboot(NAME)  # which loads the driver, as far as a container can
    for name in ("gds-through-cpu", "gds-compat-mode"):
        fault = faults.plant(NAME, name, hosts.run)
        assert fault.caught_by in lab.run("verify", folder, "--json").failed(), name
        faults.heal(NAME, name, hosts.run)
    done = lab.run("verify", folder)
    assert done.code == 0, done
