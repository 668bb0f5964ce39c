"""Descriptions, devices and faults of simulated hosts: what is refused, and how."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from gpuprov.core.errors import GpuprovError
from gpuprov.explain import all_checks
from gpuprov.simulate import faults
from gpuprov.simulate.description import Description, Gpus, convert, read
from gpuprov.simulate.devices import devices
from gpuprov.simulate.faults.base import Fault
from tests.rows import run_each

H100 = Gpus(model="H100-SXM5-80GB", count=8)


@run_each(
    ("values", "said"),
    [
        ({"kind": "vm"}, "kind"),
        ({"gpu": {"model": "H100-SXM5-80GB", "count": 9}}, r"<= 8.*gpu\.count"),
        ({"gpu": {"model": "H100-SXM5-80G"}}, 'gpu.model is "H100-SXM5-80G", which is not in the catalogue'),
        ({"gpus": 8}, "gpus"),
        ({"nvswitch": 5}, "nvswitch"),
        ({"kernel": "newest"}, "kernel"),
        ({"cgpu": True}, "cgpu is true and there is no gpu"),
        ({"cgpu": True, "kind": "machine", "gpu": {"model": "T4"}}, 'cgpu is true and kind is "machine"'),
        ({"hcas": 8}, "hcas is 8 and there is no gpu"),
        ({"nvme": [512]}, 'nvme has disks and kind is "container"'),
        ({"nvme": [8], "kind": "machine"}, "nvme"),
        ({"gpu": {"model": "T4"}, "rate": 56}, "Invalid enum value 56.*rate"),
        ({"gpu": {"model": "T4"}, "fabric": "omnipath"}, "Invalid enum value 'omnipath'.*fabric"),
        ({"gpu": {"model": "T4"}, "kind": "machine", "fabric": "roce"}, 'fabric is "roce" and kind is "machine"'),
        ([], "object"),
    ],
)
def test_bad_descriptions(values: object, said: str) -> None:
    with pytest.raises(GpuprovError, match=said) as caught:
        convert(values, "host.yaml")
    assert str(caught.value).startswith("host.yaml: ")
    assert caught.value.fix


def test_file_that_is_no_yaml(tmp_path: Path) -> None:
    (tmp_path / "d.yaml").write_text("kind: [", encoding="utf-8")
    with pytest.raises(GpuprovError, match=r"d\.yaml: cannot be read: .*expected"):
        read(tmp_path / "d.yaml")


def test_devices_are_distinct_and_repeatable() -> None:
    description = Description(gpu=H100, nvswitch=3, hcas=8)
    made = devices("gpu01", description)
    assert made == devices("gpu01", description)
    assert [device.role for device in made] == ["gpu", "hca"] * 8 + ["nvswitch"] * 4
    assert len({device.address for device in made}) == 20
    assert len({device.uuid for device in made if device.role == "gpu"}) == 8
    assert {device.uuid for device in devices("gpu02", description)}.isdisjoint(d.uuid for d in made if d.uuid)
    assert {device.numa_node for device in made if device.role == "hca"} == {0, 1}


@run_each("fault", faults.TABLE, ids=lambda fault: fault.name)
def test_the_scripts_of_a_fault_are_shell(fault: Fault) -> None:
    done = subprocess.run(
        ["bash", "-n"], input=f"{fault.plant}\n{fault.heal}\n", text=True, capture_output=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_every_fault_is_found_by_a_check_that_exists() -> None:
    known = {check.id for check in all_checks()}
    assert {fault.caught_by for fault in faults.TABLE if fault.moment != "apply"} <= known


@run_each(
    ("description", "said"),
    [
        (Description(faults=("gpu-lots",)), 'fault is "gpu-lots"; allowed: gpu-lost'),
        (Description(gpu=H100, faults=("nouveau-bound",)),
         'fault "nouveau-bound" needs a machine, the host is a container'),
        (Description(gpu=H100, faults=("cgpu-forgets",)), 'fault "cgpu-forgets" needs a host with cGPU'),
        (Description(gpu=Gpus(model="L40S"), faults=("mig-mode-off",)), "needs GPUs with MIG, L40S has none"),
        (Description(faults=("gpu-lost=1",)), 'fault "gpu-lost" needs a host with simulated GPUs'),
        (Description(gpu=H100, faults=("hca-missing",)), 'fault "hca-missing" needs a host with HCAs'),
        (Description(gpu=H100, hcas=2, faults=("hca-missing=2",)), "allowed: an index from 0 to 1"),
        (Description(gpu=H100, hcas=2, faults=("roce-gid-missing",)),
         "needs HCAs on roce, the host has fabric: infiniband"),
        (Description(gpu=H100, hcas=2, fabric="roce", faults=("ib-port-init",)), "needs HCAs on infiniband"),
        (Description(gpu=H100, hcas=2, faults=("pcie-link-narrow=3",)), "allowed: gpu or hca and an index"),
        (Description(kind="machine", gpu=H100, hcas=2, faults=("ib-port-down",)), "needs a container"),
    ],
)  # fmt: skip
def test_faults_that_cannot_be(description: Description, said: str) -> None:
    with pytest.raises(GpuprovError, match=said):
        faults.check(description)


def test_a_fault_parameter_cannot_leave_its_quotes() -> None:
    with pytest.raises(GpuprovError, match="fault parameter is"):
        faults.plant("gpu01", "gpu-lost=0'; reboot #", lambda _host, _script: pytest.fail("must not run"))
