"""Of real hosts' links and ports nothing is called a defect that a person does not call one."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from gpuprov.cli import cli
from gpuprov.facts.probes import rdma
from gpuprov.facts.probes.base import Output, ProbeFailed
from gpuprov.facts.probes.gpus import fabric, topology
from gpuprov.facts.probes.gpus.nvlink import NvLinks
from gpuprov.hardware.topology import defects
from gpuprov.hardware.topology.fabric import explain_unregistered
from gpuprov.hardware.topology.model import build_wiring
from tests.real.corpus import HERE, Capture, captures, command_of
from tests.real.scripts import SCRIPTS, pieces_of, printed

BUS = {"lspci-vv", "lspci-nn", "nccl-topo"}
DEVICES = {"ibstat", "ibv-devinfo", "show-gids", "ibdev2netdev"}


def said(capture: Capture, probe: str, pieces: set[str]) -> Output:
    """What the probe prints on the capture's host; nothing where no piece of it is there."""
    if not pieces & pieces_of(capture.about.commands, capture.files):
        return Output("")
    (script,) = [one for one in SCRIPTS if one.probe.name == probe]
    kernel = capture.about.kernel if re.fullmatch(r"\S+", capture.about.kernel) else ""
    return printed(script, HERE / capture.name, kernel, "debian", tuple(capture.about.commands.items()))


@pytest.mark.install
def test_links_and_ports_of_real_hosts() -> None:
    judged, wrong = 0, []
    for capture in captures():
        tree = topology.parse(said(capture, "topology_pci", BUS))
        devices = rdma.parse(said(capture, "rdma_devices", DEVICES))
        judged += bool(tree.functions or devices)
        found = build_wiring(tree, devices, NvLinks(complaint="nothing is told"))
        if "health" not in capture.about.facts:
            wrong += [
                f"{capture.name}: {one.message}"
                for one in (*defects.find_narrow_links(found), *defects.list_bad_ports(found))
                if not one.unproven
            ]
    assert judged > 15
    assert not wrong, "\n" + "\n".join(wrong)


def test_the_fabric_of_real_hosts() -> None:
    verdicts = {}
    for capture in captures():
        for name, output in capture.files.items():
            if command_of(name) not in ("nvidia-smi-q", "nvidia-smi-q-block"):
                continue
            try:
                states = fabric.parse_state(Output(output.text))
            except ProbeFailed:
                continue
            known = [one for one in states if one.state not in fabric.NOTHING]
            if known:
                verdicts[capture.name] = any(explain_unregistered(one) for one in known)
    assert verdicts
    for name, bad in verdicts.items():
        about = next(one.about for one in captures() if one.name == name)
        assert bad == (about.facts.get("health") == "unhealthy"), name


def test_health_of_whole_outputs_says_what_a_person_would(tmp_path: Path) -> None:
    """`unfit`: the checks that fail by a person's reading of the output."""
    true = {}
    for capture in captures():
        for name, output in capture.files.items():
            if command_of(name) in ("nvidia-smi-q", "nvidia-smi-q-x") and not capture.about.partial:
                (tmp_path / f"{capture.name}.smi.txt").write_text(output.text, encoding="utf-8")
                true[capture.name] = capture.about.facts.get("unfit", [])
    done = CliRunner().invoke(cli, ["health", "--from", str(tmp_path), "--json"])
    hosts = json.loads(done.stdout)["hosts"]
    found = {one["host"]: [cause["check"] for cause in one["causes"]] for one in hosts}
    assert len(true) > 20
    assert found == true
