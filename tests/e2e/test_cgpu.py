"""cGPU on a simulated host with two T4: set, kept across a reboot, and refused where it is not there or takes no
value."""

from __future__ import annotations

from typing import Any

import pytest

from gpuprov.simulate import hosts
from gpuprov.simulate.description import Description, Gpus
from tests.e2e.lab import Lab
from tests.e2e.machine import Machine

pytestmark = [pytest.mark.e2e, pytest.mark.slow]
NAME = "e2e-cgpu"
HOST = Description(gpu=Gpus(model="T4", count=2), cgpu=True)
SPEC: dict[str, Any] = {"cgpu": {"policy": 1, "max_inst": 10, "gpus": {"1": {"policy": 3}}}}
VALUES = "cat /proc/cgpu_km/[01]/policy /proc/cgpu_km/[01]/max_inst"
FILES = "/run/gpuprov-sim/cgpu_km"


def test_cgpu(lab: Lab, site: Machine) -> None:
    folder = lab.inventory(SPEC, site)
    done = lab.run("apply", folder, "--yes")
    assert done.code == 0, done
    assert site.sh(VALUES).split() == ["1", "3", "10", "10"]

    hosts.reboot(NAME)
    assert site.sh(VALUES).split() == ["1", "3", "10", "10"], site.sh("journalctl -b -u gpuprov-cgpu")
    done = lab.run("verify", folder)
    assert done.code == 0, done

    # A value that the module does not take.
    site.sh(f"rm {FILES}/0/max_inst; mkdir {FILES}/0/max_inst {FILES}/0/012b2edccd7a")
    done = lab.run("apply", folder, "--yes")
    assert done.code == 3, done
    assert "/proc/cgpu_km/0/max_inst stays empty, expected 10" in done.text
    assert "012b2edccd7a" in done.text

    # A host without cGPU: the boot unit says so, and apply refuses before anything is changed.
    site.sh(f"rm -r {FILES}; systemctl restart gpuprov-cgpu || true")
    done = lab.run("verify", folder, "--json")
    failed = done.failed()
    assert "cGPU is not installed" in failed["cgpu.active"]["found"], done
    done = lab.run("apply", folder, "--yes")
    assert "cgpu.module" in done.text, done
    assert "ack.node.gpu.schedule=cgpu" in done.text
