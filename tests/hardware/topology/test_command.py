"""`gpuprov topology` as a user sees it: text, JSON, picture, exit codes."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from gpuprov.cli import cli
from gpuprov.core.errors import GpuprovError, UnreachableError
from gpuprov.facts.probes.base import Facts, Output, Probe
from gpuprov.hardware.topology.judge import list_findings
from gpuprov.hardware.topology.model import Gpu, Hca
from gpuprov.hardware.topology.svg import draw_svg
from gpuprov.hardware.topology.text import format_text
from gpuprov.spec.model import RawHost
from gpuprov.spec.problem import SpecError
from tests import documents
from tests.hardware.topology.machines import Machine, hgx_h100
from tests.hardware.topology.others import dgx2, dgx_a100, grace, hgx_b200, l40s, vm
from tests.rows import run_each

HOSTS = "all: {hosts: {gpu1: {}, gpu2: {}, other: {}}}\n"


@pytest.fixture
def ask(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    """Run the command where each host is this machine (None: it cannot be reached); the exit code, and what was
    printed."""
    inventory = tmp_path / "inventory.yaml"
    inventory.write_text(HOSTS)
    monkeypatch.setattr("gpuprov.hardware.topology.command.is_plain", lambda: False)

    def run(
        host: str, *more: str, machine: Machine | None = None, texts: dict[str, Output] | None = None
    ) -> tuple[int, str, str]:
        def gather(
            hosts: Sequence[tuple[RawHost, tuple[Probe[Any], ...]]], timeout: float = 0, **_given: Any
        ) -> dict[str, Facts | UnreachableError]:
            assert {probe.name for _, probes in hosts for probe in probes} == {
                "topology_pci",
                "rdma_devices",
                "topology_nvlinks",
                "nccl_topology",
                "machine",
                "far_ends",
            }
            told = (
                texts
                if texts is not None
                else {**machine.texts, "nccl_topology": Output(machine.nccl)}
                if machine
                else None
            )
            return {
                raw.name: Facts(told) if told is not None else UnreachableError(f"{raw.name}: refused")
                for raw, _ in hosts
            }

        monkeypatch.setattr("gpuprov.facts.collect.gather", gather)
        code: int = cli.main(["topology", host, str(inventory), "--no-cache", *more], standalone_mode=False)
        out, err = capsys.readouterr()
        return code, out, err

    return run


def test_a_pcie_host(ask: Callable[..., tuple[int, str, str]]) -> None:
    code, out, err = ask("gpu1", machine=l40s())
    assert (code, err) == (0, "")
    assert out == (
        """gpu1: 4 x L40S, 2 HCAs, 2 sockets

socket 0, NUMA node 0
├─ host bridge 0000:16
│  ├─ root port 0000:16:01.0
│  │  └─ GPU0    0000:17:00.0  2.5 GT/s x16  L40S
│  └─ root port 0000:16:03.0
│     └─ mlx5_0  0000:1f:00.0  32 GT/s x16   Ethernet 400 Gb/s ACTIVE
└─ host bridge 0000:38, root port 0000:38:01.0
   └─ GPU1    0000:39:00.0  2.5 GT/s x16  L40S

socket 1, NUMA node 1
├─ host bridge 0000:97
│  ├─ root port 0000:97:01.0
│  │  └─ GPU2    0000:98:00.0  2.5 GT/s x16  L40S
│  └─ root port 0000:97:03.0
│     └─ mlx5_1  0000:a0:00.0  32 GT/s x16   Ethernet 400 Gb/s ACTIVE
└─ host bridge 0000:c8, root port 0000:c8:01.0
   └─ GPU3    0000:c9:00.0  2.5 GT/s x16  L40S

GPU   nearest HCA  distance  netdev
GPU0  mlx5_0       PHB
GPU1  mlx5_0       NODE
GPU2  mlx5_1       PHB
GPU3  mlx5_1       NODE

      GPU0  GPU1  GPU2  GPU3
GPU0  X     NODE  SYS   SYS
GPU1  NODE  X     SYS   SYS
GPU2  SYS   SYS   X     NODE
GPU3  SYS   SYS   NODE  X

      mlx5_0  mlx5_1
GPU0  PHB     SYS
GPU1  NODE    SYS
GPU2  SYS     PHB
GPU3  SYS     NODE

PIX: one PCIe switch; PXB: several; PHB: a host bridge; NODE: two of a NUMA node; SYS: two NUMA nodes; NV#: # NVLinks

note: no HCA is below the same PCIe switch as a GPU: data between them passes the CPU
note: GPUs on different sockets without NVLink between them: GPU0-GPU2, GPU0-GPU3, GPU1-GPU2, GPU1-GPU3
note: the PCIe links of GPU0, GPU1, GPU2, GPU3 are slow while the GPUs are idle, which says nothing
  read it again while they work
"""
    )


def test_json(ask: Callable[..., tuple[int, str, str]]) -> None:
    code, out, _ = ask("gpu1", "--json", machine=hgx_h100(misplaced=True))
    assert code == 0
    host = documents.judged("topology", out)["hosts"]["gpu1"]
    assert [gpu["nearest"] for gpu in host["gpus"]][2:5] == ["ibp75s0", "ibp111s0", "ibp154s0"]
    assert [gpu["distance"] for gpu in host["gpus"]][2:5] == ["PIX", "NODE", "PIX"]
    assert host["gpus"][0] | {"distances": {}} == {
        "name": "GPU0",
        "address": "0000:1a:00.0",
        "model": "H100-SXM5-80GB",
        "numa_node": 0,
        "socket": 0,
        "bridges": ["0000:15:01.0", "0000:16:00.0", "0000:17:03.0"],
        "link": "32 GT/s x16",
        "nvlinks": 18,
        "nearest": "ibp24s0",
        "distance": "PIX",
        "distances": {},
    }
    assert host["gpus"][0]["distances"]["GPU7"] == "NV18"
    assert host["hcas"][0]["ports"] == [{"number": 1, "state": "ACTIVE", "link_layer": "InfiniBand", "rate": 400.0}]
    assert host["nvswitches"][0] == "0000:05:00.0"
    assert [(one["severity"], one["kind"]) for one in host["findings"]] == [("warning", "rail")] * 2


def test_several_hosts_and_one_that_cannot_be_reached(ask: Callable[..., tuple[int, str, str]]) -> None:
    code, out, _ = ask("gpu*", "--json", machine=vm())
    assert (code, list(documents.judged("topology", out)["hosts"])) == (0, ["gpu1", "gpu2"])
    code, out, _ = ask("gpu*", "--json", "--limit", "gpu2,other", machine=vm())
    assert (code, list(documents.judged("topology", out)["hosts"])) == (0, ["gpu2"])
    code, out, err = ask("gpu1")
    assert (code, out, err) == (4, "", "gpu1: refused\n")
    code, out, err = ask("gpu1", "--json")
    found = documents.judged("topology", out)
    assert (code, found["hosts"], found["unread"]) == (4, {}, {"gpu1": "gpu1: refused"})


def test_a_host_whose_answer_makes_no_sense(ask: Callable[..., tuple[int, str, str]], tmp_path: Path) -> None:
    texts = {**vm().texts, "topology_pci": Output("function|half\n")}
    code, out, err = ask("gpu1", "--svg", str(tmp_path / "x.svg"), texts=texts)
    assert (code, out) == (1, "")
    assert err.startswith("gpu1: topology_pci cannot be read")
    assert not (tmp_path / "x.svg").exists()


def test_what_is_refused(ask: Callable[..., tuple[int, str, str]], tmp_path: Path) -> None:
    with pytest.raises(GpuprovError, match='HOST "gpu1" and --limit "other" have no host in common'):
        ask("gpu1", "--limit", "other")
    with pytest.raises(SpecError, match="HOST") as caught:
        ask("gpu9")
    assert "--limit" not in str(caught.value)
    with pytest.raises(GpuprovError, match="--svg draws one host, and HOST means 3: gpu1, gpu2, other"):
        ask("all", "--svg", str(tmp_path / "x.svg"))
    with pytest.raises(GpuprovError, match="cannot be written"):
        ask("gpu1", "--svg", str(tmp_path / "no" / "x.svg"))


def test_the_picture_is_written(ask: Callable[..., tuple[int, str, str]], tmp_path: Path) -> None:
    file = tmp_path / "gpu1.svg"
    code, _, _ = ask("gpu1", "--svg", str(file), machine=hgx_h100())
    assert code == 0
    assert file.read_text() == draw_svg("gpu1", hgx_h100().read(), ())


MACHINES = [hgx_h100, hgx_b200, dgx2, dgx_a100, l40s, vm, grace, Machine, lambda: Machine(sockets={})]


@run_each("make", MACHINES)
def test_a_picture_is_whole_and_refers_to_nothing_else(make: Callable[[], Machine]) -> None:
    wiring = make().read()
    picture = draw_svg("gpu1", wiring, list_findings(wiring))
    root = ElementTree.fromstring(picture)
    words = " ".join(root.itertext())
    ends: tuple[Gpu | Hca, ...] = (*wiring.gpus, *wiring.hcas)
    for one in ends:
        assert one.name in words
        assert one.function.address in words
    for switch in wiring.nvswitches:
        assert switch.address in words
    assert not re.search(r"href|url\(|@import|<image|<script", picture)
    assert picture.count("http") == 1, "the namespace only"
    width, height = (float(root.attrib[key]) for key in ("width", "height"))
    for shape in root.iter("{http://www.w3.org/2000/svg}rect"):
        x, y, wide, high = (float(shape.attrib[key]) for key in ("x", "y", "width", "height"))
        assert 0 <= x <= x + wide <= width
        assert 0 <= y <= y + high <= height


def test_boxes_do_not_overlap() -> None:
    root = ElementTree.fromstring(draw_svg("gpu1", hgx_b200(lost=(2,)).read(), ()))
    boxes = [
        tuple(float(shape.attrib[key]) for key in ("x", "y", "width", "height"))
        for shape in root.iter("{http://www.w3.org/2000/svg}rect")
        if shape.attrib["class"] != "paper"
    ]
    for number, (x, y, wide, high) in enumerate(boxes):
        for other_x, other_y, other_wide, other_high in boxes[number + 1 :]:
            apart = x + wide <= other_x or other_x + other_wide <= x or y + high <= other_y or other_y + other_high <= y
            assert apart


def test_a_faulty_device_is_marked() -> None:
    wiring = hgx_h100(misplaced=True, narrow=True).read()
    picture = draw_svg("gpu1", wiring, list_findings(wiring))
    marked = re.findall(r"<title>(\w+)\n[^<]*</title>\n<rect class=\"b \w+ bad\"", picture)
    assert marked == ["GPU3", "ibp111s0", "GPU5"]
    assert picture.index("warning: GPU3 has no HCA of its own") < picture.index(">socket 0"), (
        "what is wrong comes first"
    )


def test_what_is_only_to_be_known_stands_below_the_picture() -> None:
    picture = draw_svg("gpu1", vm().read(), list_findings(vm().read()))
    assert picture.index(">GPU0<") < picture.index(">note: ")


def test_names_are_escaped() -> None:
    root = ElementTree.fromstring(draw_svg("<a&b>", vm().read(), ()))
    assert "<a&b>" in " ".join(root.itertext())


@run_each("make", MACHINES)
def test_text_in_ascii_where_asked(make: Callable[[], Machine]) -> None:
    wiring = make().read()
    text = format_text("gpu1", wiring, list_findings(wiring), plain=True)
    assert text.isascii()
    assert all(gpu.name in text for gpu in wiring.gpus)
    assert not [line for line in text.splitlines() if line != line.rstrip()]


@run_each("width", [80, 120])
def test_no_line_is_wider_than_the_terminal_and_no_word_is_broken(width: int) -> None:
    wiring = hgx_h100(misplaced=True, narrow=True).read()
    whole = format_text("gpu1", wiring, list_findings(wiring), plain=False)
    broken = format_text("gpu1", wiring, list_findings(wiring), plain=False, width=width)
    assert whole.startswith("gpu1: 8 x H100-SXM5-80GB, 8 HCAs, 4 NVSwitches, 2 sockets; 3 warnings, at the end\n")
    assert max(map(len, whole.splitlines())) > width >= max(map(len, broken.splitlines()))
    assert {*broken.split()} == {*whole.split()}


def test_a_host_with_nothing_is_one_line() -> None:
    wiring = Machine(sockets={}).read()
    assert format_text("gpu1", wiring, list_findings(wiring), plain=True) == "gpu1: no GPU, no HCAs"


def test_nvlink_bridges_are_no_hcas() -> None:
    wiring = hgx_b200().read()
    text = format_text("gpu1", wiring, list_findings(wiring), plain=True)
    assert text.startswith("gpu1: 8 x B200, 12 HCAs, 4 NVLink bridges, 2 sockets")
    assert text.count("NVLink bridge, no HCA") == 4
    matrix = text[text.index("nearest HCA") :]
    assert not any(f"mlx5_{number}" in matrix for number in range(12, 16))
