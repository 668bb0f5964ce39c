"""A topology file of NCCL: what it says, whose it is, and what NCCL could not read."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuprov.capabilities.base import Context, Outcome
from gpuprov.capabilities.rdma.fragment import Rdma
from gpuprov.capabilities.rdma.nccl import topology as part
from gpuprov.capabilities.rdma.nccl.fragment import Nccl
from gpuprov.facts.probes.base import Output
from gpuprov.facts.probes.rdma import nccl as probe
from gpuprov.rules import nccl_topology
from gpuprov.rules.nccl_topology import TopologyError
from gpuprov.spec.model import HostSpec
from tests.capabilities import asking
from tests.capabilities.asking import CHECKS
from tests.rows import run_each

GPUS = ("0001:00:00.0", "0002:00:00.0")
ADAPTERS = ("0101:00:00.0", "0102:00:00.0")


def written(gpus: tuple[str, ...] = GPUS, adapters: tuple[str, ...] = ADAPTERS, version: str = "1") -> str:
    """In the form of Azure's files: pairs below bridges that no machine has."""
    rows = "".join(
        f'<pci busid="ffff:ff:{n:02x}.0" class="0x060400" link_width="16">\n'
        f'<pci busid="{gpu.upper()}" class="0x030200"/>\n<pci busid="{nic}" class="0x020700"/></pci>\n'
        for n, (gpu, nic) in enumerate(zip(gpus, adapters, strict=True), 1)
    )
    return f'<system version="{version}">\n<cpu numaid="0" arch="x86_64">\n{rows}</cpu>\n</system>\n'


def test_bridges_count_for_nothing() -> None:
    assert nccl_topology.parse(written()) == nccl_topology.Topology(GPUS, ADAPTERS)


@run_each(
    ("text", "why"),
    [
        ("<system version='1'><cpu></system>", "not well-formed"),
        ("", "not well-formed"),
        (written(version="2"), 'its version is "2"'),
        ("<graphs version='1'/>", "its root is <graphs>"),
        ("<system version='1'/>", "names no PCI function"),
        (written(("GPU0", "GPU1")), "not a PCI address"),
        ("<!DOCTYPE x [<!ENTITY a 'b'>]><system version='1'/>", "DOCTYPE"),
        (" " * (nccl_topology.MOST + 1), "longer than 1 MiB"),
    ],
)
def test_what_nccl_cannot_read(text: str, why: str) -> None:
    with pytest.raises(TopologyError, match=why):
        nccl_topology.parse(text)


def said(text: str | None = None, path: str = "/opt/microsoft/ndv5-topo.xml", digest: str = "ab") -> str:
    rows = [
        f"path|{path}",
        *([f"sum|{digest}  {path}", *(f"text|{line}" for line in text.splitlines())] if text else []),
    ]
    return (
        "\n".join([*rows, *(f"pci|{one}|0x020700" for one in ADAPTERS), *(f"pci|{one}|0x030200" for one in GPUS)])
        + "\n"
    )


BUS = "".join(f"{gpu} 0x10de 0x2330 0x10de 0x16c1 0x030200 nvidia\n" for gpu in GPUS)
HCAS = "".join(
    f"device|ib{n}|{one}|mlx5_core|0x15b3|0x101e|1: CA|0015:5dff:fe33:ff{n}0|28|0|||\n"
    f"port|ib{n}|1|4: ACTIVE|5: LinkUp|InfiniBand|400 Gb/sec (4X NDR)|0x1|0x1\n"
    for n, one in enumerate(ADAPTERS)
)


def ask(found: str, bus: str = BUS, **asked: str) -> Outcome:
    block = Rdma(nccl=Nccl(**({"topo_file": "/opt/microsoft/ndv5-topo.xml"} | asked)))  # type: ignore[arg-type]
    facts = asking.facts(nccl_topology=found, rdma_devices=HCAS, nvidia_functions=bus)
    return CHECKS["rdma.nccl_topology"].run(Context(HostSpec(name="vm1"), block, facts))


def test_a_file_of_this_machine() -> None:
    outcome = ask(said(written()))
    assert outcome.status == "pass", outcome
    assert "2 GPUs, 2 adapters" in outcome.found


@run_each(
    ("found", "told"),
    [
        ("", "names none"),
        (said(written(), "/opt/microsoft/ndv4/topo.xml"), "names /opt/microsoft/ndv4/topo.xml"),
        (said(), "is not there"),
        (said(written()[:200]), "not well-formed"),
        (
            said(written(("0003:00:00.0", "0004:00:00.0"))),
            "names GPUs that the host has not: 0003:00:00.0, 0004:00:00.0",
        ),
        (said(written(("0003:00:00.0", "0004:00:00.0"))), "lacks GPUs of the host"),
        (said(written(adapters=("0107:00:00.0", "0108:00:00.0"))), "names network adapters that the host has not"),
        (said(written(GPUS[:1], ADAPTERS[:1])), "lacks RDMA devices of the host: 0102:00:00.0"),
    ],
)
def test_a_file_of_another_machine(found: str, told: str) -> None:
    outcome = ask(found)
    assert outcome.status == "fail"
    assert told in outcome.found
    assert outcome.fix


def test_the_sites_own_file(tmp_path: Path) -> None:
    import hashlib

    file = tmp_path / "topo.xml"
    file.write_text(written(), encoding="utf-8")
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    assert ask(said(written(), digest=digest), topo_source=str(file)).status == "pass"
    outcome = ask(said(written(), digest="0" * 64), topo_source=str(file))
    assert "is another file than" in outcome.found
    assert outcome.changes
    block = Rdma(nccl=Nccl(topo_source=str(file)))
    assert "goes nowhere" in next(iter(part.rules(block))).message
    file.write_text("<system", encoding="utf-8")
    assert "not well-formed" in next(iter(part.rules(Rdma(nccl=Nccl(topo_file="/x", topo_source=str(file)))))).message
    gone = Rdma(nccl=Nccl(topo_file="/x", topo_source=str(tmp_path / "none")))
    assert "cannot be read" in next(iter(part.rules(gone))).message


def test_without_gpus_or_a_file() -> None:
    assert ask(said(written()), "").status == "skip"
    assert ask("", topo_file="").status == "n/a"


def test_the_probe() -> None:
    assert probe.parse_topology(Output("")) == probe.TopologyFile()
    found = probe.parse_topology(Output(said(written()) + "text|more\n"))
    assert (found.path, found.sha256, found.functions["0101:00:00.0"]) == (
        "/opt/microsoft/ndv5-topo.xml",
        "ab",
        "0x020700",
    )
