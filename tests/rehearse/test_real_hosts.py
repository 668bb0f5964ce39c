"""What only the real host has is left out of a rehearsal, each with one sentence."""

from __future__ import annotations

import msgspec

from gpuprov.capabilities.dcgm.fragment import Dcgm
from gpuprov.capabilities.fabric_manager.fragment import FabricManager, Imex
from gpuprov.capabilities.health.fragment import FirmwareVersions, Health
from gpuprov.capabilities.mig.fragment import Mig
from gpuprov.capabilities.nvidia_driver.fragment import NvidiaDriver
from gpuprov.capabilities.persistence import Persistence
from gpuprov.catalog import dcgm as catalogue
from gpuprov.rehearse.connection import pair_of
from gpuprov.rehearse.model import Options
from gpuprov.rehearse.shape import Shape, plan_shapes
from gpuprov.simulate.description import Kind
from gpuprov.simulate.host import SimulatedHost
from gpuprov.spec.kernel import Kernel
from gpuprov.spec.model import Fragment, GpuSpec
from gpuprov.spec.repository import Repository
from tests.rehearse.stage import pair
from tests.rows import run_each

LISTEN = catalogue.LISTEN


def shape(model: str, blocks: dict[str, Fragment], kind: Kind = "container") -> Shape:
    given = pair("gpu01", gpu=GpuSpec(model=model, count=4), capabilities=blocks)
    (made,) = plan_shapes([given], Options(kind=kind), "1f3a")
    return made


def layout(gpus: object) -> Mig:
    return msgspec.convert({"layout": [{"gpus": gpus, "instances": {"1g.10gb": 2}}]}, Mig)


@run_each(
    ("block", "kept", "left"),
    [
        (Kernel(modules_built=("lustre",)), Kernel(), "kernel.modules_built lustre: built by others"),
        (
            Kernel(modules_built=("nvidia_fs", "lustre")),
            Kernel(modules_built=("nvidia_fs",)),
            "kernel.modules_built lustre: built",
        ),
        (Kernel(modules_built=("nvidia_fs",)), Kernel(modules_built=("nvidia_fs",)), ""),
        (Health(cores=96, swap="none"), Health(), "health.cores, swap: of the real host's hardware"),
        (
            Health(firmware_versions=FirmwareVersions(vbios={"a": "1"})),
            Health(),
            "health.firmware_versions: of the real",
        ),
        (Dcgm(listen="192.0.2.7:5555"), Dcgm(listen=LISTEN), "dcgm.listen 192.0.2.7:5555: the simulated host"),
        (Dcgm(listen="ALL:5555"), Dcgm(listen="ALL:5555"), ""),
        (layout(["0000:3b:00.0"]), None, "mig: it names GPU 0000:3b:00.0"),
        (layout(["GPU-5ad1f2c0-0000-1111-2222-333344445555"]), None, "mig: it names GPU GPU-5ad1f2c0"),
        (layout([0]), layout([0]), ""),
        (layout(["A100-SXM4-80GB"]), layout(["A100-SXM4-80GB"]), ""),
    ],
)
def test_what_only_the_real_host_has_is_left_out(block: Fragment, kept: Fragment | None, left: str) -> None:
    name = {Kernel: "kernel", Health: "health", Dcgm: "dcgm", Mig: "mig"}[type(block)]
    made = shape("A100-SXM4-80GB", {"persistence": Persistence(), name: block})
    assert made.spec.capabilities.get(name) == kept
    assert [text for text in made.left_out if text.startswith(left)] == list(made.left_out)
    assert bool(made.left_out) is bool(left)


@run_each(("kind", "address"), [("container", "10.88.0.5"), ("machine", "10.0.2.15")])
def test_a_tray_is_alone_in_its_domain(kind: Kind, address: str) -> None:
    made = shape("GB200", {"fabric_manager": FabricManager(imex=Imex(nodes=("192.0.2.1", "192.0.2.2")))}, kind)
    assert any("alone in its domain" in note for note in made.notes)
    host = SimulatedHost("re-1f3a-gpu01", "10.88.0.5" if kind == "container" else "127.0.0.1", 22, "root", "/key")
    block = pair_of(made, host)[1].capabilities["fabric_manager"]
    assert isinstance(block, FabricManager)
    assert block.imex == Imex(nodes=(address,))


def test_a_stand_in_takes_the_place_of_the_sites_mirror() -> None:
    mirror = Repository(url="https://mirror.example.com/cuda", key_file="keys/mirror.asc")
    made = shape("L40S", {"nvidia_driver": NvidiaDriver(version="580", source="mirror", repository=mirror)})
    assert made.spec.capabilities["nvidia_driver"] == NvidiaDriver(version="580", source="nvidia")
    assert made.description
    assert made.description.repositories == ("distribution", "nvidia")
    assert any("takes the place of the site's mirror" in note for note in made.notes)
