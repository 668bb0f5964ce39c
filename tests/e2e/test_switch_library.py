"""DCGM on a simulated HGX board: the library by which it reads NVSwitches comes with the driver's set, moves with it,
and is held."""

from __future__ import annotations

import pytest

from gpuprov.simulate.description import Description, Gpus
from tests.e2e.lab import Lab
from tests.e2e.machine import Machine

pytestmark = [pytest.mark.e2e, pytest.mark.slow]
NAME = "e2e-switches"
HOST = Description(
    distribution="ubuntu2404",
    gpu=Gpus(model="H100-SXM5-80GB", count=2),
    driver="580",
    repositories=("nvidia",),
    nvswitch=3,
)
SEEN = "dcgmi discovery -l | grep NvSwitch"
LIBRARY = "readlink -f /usr/lib/x86_64-linux-gnu/libnvidia-nscq.so.2"
VERSION = "dpkg-query -W -f '${Version}' libnvidia-nscq"


def test_dcgm_sees_the_switches(lab: Lab, site: Machine) -> None:
    spec = {"nouveau": {}, "nvidia_driver": {"version": "580", "source": "nvidia"}, "fabric_manager": {}, "dcgm": {}}
    folder = lab.inventory(spec, site)
    plan = lab.run("plan", folder, "--quick")
    assert "libnvidia-nscq" in plan.text, plan
    done = lab.run("apply", folder, "--yes")
    assert done.code == 0, done
    version = site.sh(VERSION).strip()
    assert site.sh(LIBRARY).strip().endswith(version.rpartition("-")[0])
    assert "libnvidia-nscq" in site.sh("apt-mark showhold")
    assert site.sh(SEEN).startswith("4 NvSwitches found.")

    # What a monitoring image has: everything works, and no switch is seen.
    site.sh("apt-get -y -q --allow-change-held-packages purge libnvidia-nscq; systemctl restart nvidia-dcgm")
    found = lab.run("verify", folder, "--json").failed()
    assert "no libnvidia-nscq: dcgmi discovery -l shows 0 NvSwitches" in found["fabric_manager.query_library"]["found"]
    done = lab.run("apply", folder, "--yes")
    assert done.code == 0, done
    assert site.sh(SEEN).startswith("4 NvSwitches found."), "its host engine was started again"

    # A library of another version lies before it.
    site.sh("cd /usr/lib/x86_64-linux-gnu; cp -L libnvidia-nscq.so.2 libnvidia-nscq.so.525.85.12; "
            "ln -sf libnvidia-nscq.so.525.85.12 libnvidia-nscq.so.2")  # fmt: skip
    found = lab.run("verify", folder, "--json").failed()
    assert "is of version 525.85.12" in found["fabric_manager.query_library"]["found"]
    assert "dcgm.active" in found, "the library that the host engine loads has changed"
    site.sh("rm /usr/lib/x86_64-linux-gnu/libnvidia-nscq.so.525.85.12; ldconfig; systemctl restart nvidia-dcgm")
    assert lab.run("verify", folder).code == 0
    done = lab.run("apply", folder, "--yes")
    assert done.code == 0, done
    assert "unchanged" in done.text or "nothing to do" in done.text.lower(), done
