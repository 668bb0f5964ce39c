"""What specs with RDMA make of their simulated hosts."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

from gpuprov.capabilities.gpudirect_rdma.fragment import GpudirectRdma
from gpuprov.capabilities.pcie.fragment import Pcie
from gpuprov.capabilities.rdma.erdma.fragment import Erdma
from gpuprov.capabilities.rdma.fragment import Opensm, Rdma, Selector
from gpuprov.capabilities.rdma.ofed.fragment import Ofed
from gpuprov.capabilities.topology.fragment import Topology
from gpuprov.plan.read import Pair
from gpuprov.rehearse.model import Options
from gpuprov.rehearse.reality import build_table
from gpuprov.rehearse.shape import Shape, plan_shapes
from gpuprov.simulate import image
from gpuprov.simulate.description import Description, Gpus
from gpuprov.spec.model import Fragment, GpuSpec
from tests.rehearse.stage import pair
from tests.rows import run_each


def given(block: Rdma, **more: Any) -> Pair:
    capabilities: dict[str, Fragment] = {"rdma": block}
    return pair("gpu01", gpu=GpuSpec(model="H100-SXM5-80GB", count=8), capabilities=capabilities, **more)


def shape(of: Pair, **options: Any) -> Shape:
    (made,) = plan_shapes([of], Options(**options), "1f3a")
    return made


@run_each(
    ("block", "shown"),
    [
        (Rdma(fabric="infiniband"), (8, "infiniband", 400)),
        (Rdma(fabric="infiniband", count=4, rate=200), (4, "infiniband", 200)),
        (Rdma(fabric="roce", count=2, rate=50), (2, "roce", 100)),
        (Rdma(fabric="roce", count=64), (16, "roce", 400)),
        (Rdma(fabric="infiniband", count=8, rate=1600), (8, "infiniband", 800)),
    ],
)
def test_hcas_are_those_that_the_spec_asks_for(block: Rdma, shown: tuple[int, str, int]) -> None:
    made = shape(given(block))
    assert made.description
    assert (made.description.hcas, made.description.fabric, made.description.rate) == shown
    assert any("no number of HCAs" in note for note in made.notes) is (block.count == 0)
    block_made = made.spec.capabilities["rdma"]
    assert isinstance(block_made, Rdma)
    assert (block_made.count, "rdma.count 64: 16 HCAs are simulated" in made.left_out) == (
        min(block.count, 16),
        block.count == 64,
    )


def test_hcas_of_another_fabric_are_left_out() -> None:
    """Eight of InfiniBand beside one of storage's Ethernet: all simulated HCAs are of one fabric."""
    of = given(Rdma(fabric="infiniband", count=8))
    of[1].capabilities["topology"] = Topology(gpu_hca="PIX", hcas=9)
    made = shape(of)
    block = made.spec.capabilities["topology"]
    assert isinstance(block, Topology)
    assert (block.hcas, block.gpu_hca) == (8, "PIX")
    assert made.left_out == ("topology.hcas 9: 8 HCAs are simulated, all of fabric infiniband",)


def test_the_source_of_doca_ofed_is_a_stand_in() -> None:
    ofed = Ofed(version="25.10", url="https://example.com/doca-host.deb", sha256="0" * 64, hold=False)
    made = shape(given(Rdma(fabric="infiniband", stack="doca-ofed", ofed=ofed)))
    assert made.description
    assert made.description.ofed
    block = made.spec.capabilities["rdma"]
    assert isinstance(block, Rdma)
    assert block.ofed == Ofed(hold=False)
    assert any("a stand-in of NVIDIA's doca-host" in note for note in made.notes)
    made = shape(given(Rdma(fabric="infiniband")))
    assert made.description
    assert not made.description.ofed


def test_the_driver_of_erdma_comes_from_a_stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image, "cache_dir", lambda: tmp_path)
    asked = Erdma(installer="1.5.7", compat_mode=True, mtu="jumbo")
    made = shape(given(Rdma(fabric="erdma", count=2, erdma=asked)))
    block = made.spec.capabilities["rdma"]
    assert isinstance(block, Rdma)
    assert (block.count, block.erdma.installer, block.erdma.mtu) == (1, "", "jumbo")
    archive = Path(block.erdma.file)
    assert hashlib.sha256(archive.read_bytes()).hexdigest() == block.erdma.sha256
    assert any("a stand-in of Alibaba's installer" in note for note in made.notes)
    assert made.left_out == ("rdma.count 2: one eRDMA interface is simulated",)
    before = archive.stat().st_mtime_ns
    shape(given(Rdma(fabric="erdma", erdma=asked)))
    assert archive.stat().st_mtime_ns == before, "another rehearsal may be reading it"
    made = shape(given(Rdma(fabric="erdma", erdma=asked)), distribution="amazon2023")
    assert "a package for apt" in made.problem


def test_the_inventory_has_the_last_word() -> None:
    made = shape(given(Rdma(fabric="infiniband", count=4), connection={"simulated_host": {"hcas": 2, "rate": 800}}))
    assert made.description
    assert (made.description.hcas, made.description.rate) == (2, 800)


@run_each(
    ("block", "kind", "why"),
    [
        (Rdma(fabric="soft"), "container", "it needs a kernel of the host's own; --kind machine"),
        (Rdma(fabric="infiniband"), "machine", "PCI functions without RDMA devices; --kind container"),
        (Rdma(fabric="roce"), "machine", "PCI functions without RDMA devices; --kind container"),
        (Rdma(fabric="erdma"), "machine", "PCI functions without RDMA devices; --kind container"),
        (Rdma(fabric="efa"), "container", "AWS's own installer and libfabric"),
        (Rdma(fabric="iwarp"), "container", "no simulated host has its devices"),
    ],
)
def test_rdma_that_a_kind_of_host_has_not_is_left_out_with_what_presupposes_it(
    block: Rdma, kind: str, why: str
) -> None:
    blocks: dict[str, Fragment] = {
        "rdma": block,
        "gpudirect_rdma": GpudirectRdma(),
        "topology": Topology(hcas=8, rails="matched"),
        "pcie": Pcie(affinity="local"),
    }
    made = shape(pair("gpu01", gpu=GpuSpec(model="H100-SXM5-80GB", count=8), capabilities=blocks), kind=kind)
    assert made.description, made.problem
    assert set(made.spec.capabilities) == {"topology", "pcie"}
    assert made.spec.capabilities["pcie"] == Pcie()
    on_bus = block.fabric in ("infiniband", "roce")
    assert made.spec.capabilities["topology"] == (blocks["topology"] if on_bus else Topology())
    assert made.description.hcas == (8 if on_bus else 0)
    rdma, *others = made.left_out
    assert rdma.startswith(f"rdma: fabric {block.fabric}: ")
    assert why in rdma
    places = ["gpudirect_rdma", *["topology.rails, hcas"] * (not on_bus), "pcie.affinity"]
    assert [entry.partition(":")[0] for entry in others] == places


def test_a_spec_of_which_nothing_would_be_left_is_refused() -> None:
    made = shape(pair("gpu01", capabilities={"rdma": Rdma(fabric="efa")}))
    assert made.description is None
    assert "gpu01: nothing of its spec can be rehearsed: rdma: fabric efa" in made.problem


def test_a_rate_beyond_the_simulated_ports_is_asked_for_as_far_as_they_go() -> None:
    made = shape(given(Rdma(fabric="infiniband", rate=1600)))
    assert made.spec.capabilities["rdma"] == Rdma(fabric="infiniband", rate=800)
    assert made.left_out == ("rdma.rate 1600: simulated ports have up to 800 Gb/s, which is asked for instead",)


def test_erdma_is_an_interface_of_its_own() -> None:
    made = shape(given(Rdma(fabric="erdma")))
    assert made.description
    assert (made.description.erdma, made.description.hcas) == (True, 0)


def test_software_devices_are_the_machines_own() -> None:
    made = shape(pair("gpu01", capabilities={"rdma": Rdma(fabric="soft")}), kind="machine")
    assert made.description
    assert (made.description.hcas, made.description.gpu) == (0, None)


def test_hcas_bring_a_gpu_where_the_spec_names_none() -> None:
    made = shape(pair("gpu01", capabilities={"rdma": Rdma(fabric="infiniband", count=2)}))
    assert made.description
    assert made.description.gpu
    assert made.description.hcas == 2


@run_each(
    ("block", "hcas"),
    [(Topology(hcas=4), 4), (Topology(rails="matched"), 8), (Topology(same_socket=True), 8), (Topology(), 0)],
)
def test_a_topology_relies_on_hcas(block: Topology, hcas: int) -> None:
    made = shape(pair("gpu01", gpu=GpuSpec(model="H100-SXM5-80GB", count=8), capabilities={"topology": block}))
    assert made.description
    assert made.description.hcas == hcas


def test_places_of_real_devices_are_left_out() -> None:
    made = shape(given(Rdma(fabric="infiniband", devices=(Selector(pci="0000:3b:00.0"),))))
    left = made.spec.capabilities["rdma"]
    assert isinstance(left, Rdma)
    assert left.devices == ()
    assert any("all HCAs are meant" in note for note in made.notes)
    kept = shape(given(Rdma(fabric="infiniband", devices=(Selector(driver="mlx5_core"),)))).spec.capabilities["rdma"]
    assert isinstance(kept, Rdma)
    assert kept.devices == (Selector(driver="mlx5_core"),)


def test_what_needs_a_live_fabric_is_left_out() -> None:
    made = shape(given(Rdma(fabric="infiniband", ipoib=True, opensm=Opensm(hosts=("gpu01",)))))
    left = made.spec.capabilities["rdma"]
    assert isinstance(left, Rdma)
    assert (left.ipoib, left.opensm) == (False, Opensm(elsewhere=True))
    assert [entry.partition(":")[0] for entry in made.left_out] == ["rdma.ipoib", "rdma.opensm.hosts"]


def test_what_is_simulated_is_told() -> None:
    gpu = Gpus(model="H100-SXM5-80GB", count=8)
    told = {row.thing: row for row in build_table([Description(gpu=gpu, hcas=8, fabric="roce")])}
    assert "no verbs" in told["RoCE HCAs"].detail
    assert "PCIe switches and links" in told
    machine = {row.thing: row for row in build_table([Description(kind="machine", gpu=gpu, hcas=8)])}
    assert "no RDMA device" in machine["HCAs"].detail
    assert "PCIe switches and links" not in machine
