"""Bugs of MIG: set up once and gone, held by somebody, counted by index, unknown to containers."""

from __future__ import annotations

from typing import Any

from gpuprov.capabilities.container_toolkit.fragment import ContainerToolkit
from gpuprov.capabilities.mig.fragment import Mig
from gpuprov.facts.probes.base import Output
from gpuprov.facts.probes.gpus.mig import UNIT
from gpuprov.host_code.mig_program import WANTED
from gpuprov.spec.model import HostSpec
from tests.capabilities import contents_host, toolkit_host
from tests.capabilities import mig_host as mh
from tests.capabilities.asking import H100
from tests.historic.listed import caught

WHOLE: mh.Cut = ("3g.40gb", 0, (3,))
OTHER: mh.Cut = ("3g.40gb", 4, (3,))
TWO: Any = [{"gpus": "all", "instances": {"3g.40gb": 2}}]
FILES = [f"gpu0/mig/gi{number}/{part}access" for number in (1, 2) for part in ("", "ci0/")]
HOST: dict[str, Output | str] = {
    **toolkit_host.GOOD,
    "nvidia_functions": H100,
    "mig": mh.state(mh.gpu(WHOLE, OTHER)),
    "contents": contents_host.Also(),
    "mig_capabilities": mh.capabilities(*FILES),
    "gpu_devices": toolkit_host.MIG,
    "cdi_specifications": toolkit_host.cdi("0:0", "0:1"),
}
HELD = "4211| /dev/nvidia0 /dev/nvidiactl /dev/nvidia-uvm|python3|session-1.scope\n"


def mig_caught(identifier: str, *checks: str, along: Any = (), **planted: Any) -> Any:
    """Plant the bug on a host whose GPU is cut up as asked, for containers too: exactly `checks` and `along` fail."""
    blocks = {"container_toolkit": ContainerToolkit(runtimes=("docker",)), "mig": Mig(layout=TWO)}
    return caught(
        identifier, *checks, base=HOST, asked=HostSpec(name="gpu1", capabilities=blocks), along=along, **planted
    )


def test_16_setting_up_mig_needs_a_unit_and_a_file() -> None:
    mig_caught(
        "16", "mig.files", "mig.enabled", along=["mig.active"], contents=contents_host.unit(UNIT, "inactive", "")
    )
    mig_caught("16", "mig.files", contents=contents_host.Also(f"sum|0  {WANTED}\n"))


def test_17_the_layout_is_gone_after_a_reboot() -> None:
    hopper = {"mig": mh.state(mh.gpu(on=False)), "mig_capabilities": "", "gpu_devices": toolkit_host.GPU}
    mig_caught("17", "mig.mode", "mig.instances", along=["container_toolkit.cdi"], **hopper)
    mig_caught("17", "mig.instances", mig=mh.state(mh.gpu()), mig_capabilities="")
    mig_caught("17", "mig.enabled", contents=contents_host.unit(UNIT, "active", "disabled"))


def test_17_the_mode_waits_for_a_reboot_that_nobody_did() -> None:
    told = mig_caught("17", "mig.mode", mig=mh.state(mh.gpu(WHOLE, OTHER, pending=False)))
    assert "disabled is pending" in told["mig.mode"].found


def test_18_a_client_holds_the_instance() -> None:
    other = mh.state(mh.gpu(WHOLE, ("1g.10gb", 6, (1,)), processes=[{"pid": 4211, "instance": 2, "part": 0}]))
    told = mig_caught("18", "mig.clients", along=["mig.instances"], mig=other, mig_holders=HELD)
    assert "python3 (pid 4211, session-1.scope)" in told["mig.clients"].found


def test_19_a_gpu_is_named_by_its_address() -> None:
    layout: Any = [{"gpus": ["0000:29:00.0"], "instances": {"3g.40gb": 2}}, {"gpus": ["0000:19:00.0"], "instances": {}}]
    right = {
        **HOST,
        "mig": mh.state(mh.gpu(), mh.gpu(WHOLE, OTHER, index=1)),
        "mig_capabilities": mh.capabilities(*(file.replace("gpu0", "gpu1") for file in FILES)),
    }
    swapped: Any = {"mig": mh.state(mh.gpu(WHOLE, OTHER), mh.gpu(index=1)), "mig_capabilities": mh.capabilities(*FILES)}
    asked = HostSpec(name="gpu1", capabilities={"mig": Mig(layout=layout)})
    told = caught("19", "mig.instances", base=right, asked=asked, **swapped)
    assert "GPU 1 (0000:29:00.0): no instance" in told["mig.instances"].found


def test_23_the_cdi_specification_knows_no_mig_device() -> None:
    mig_caught("23", "mig.cdi", along=["container_toolkit.cdi"], cdi_specifications=toolkit_host.cdi())
