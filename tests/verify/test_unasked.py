"""verify tells a defect of the hardware that no block of the spec asks about, and does not fail by it."""

from __future__ import annotations

import pytest

from gpuprov.capabilities.health.fragment import Health
from gpuprov.capabilities.rdma.fragment import Rdma
from gpuprov.capabilities.topology.fragment import Topology
from gpuprov.core.errors import UnreachableError
from gpuprov.facts.probes.base import Facts, Output
from gpuprov.spec.model import Fragment, HostSpec, RawHost
from gpuprov.verify.unasked import PROBES, Unasked
from tests.capabilities.test_health_wiring import GUEST, METAL, cards, ports, wired
from tests.hardware.topology.machines import Machine, hgx_h100

NARROW = "16.0 GT/s PCIe x8 of 16.0 GT/s PCIe x16"


def said(capsys: pytest.CaptureFixture[str], machine: Machine, kind: str = METAL, **blocks: Fragment) -> str:
    """What verify warns of two hosts that are this machine, with a spec of these blocks."""
    names = {probe.name for probe in PROBES}
    texts = {key: text for key, text in wired(machine, kind).items() if key in names}
    facts = Facts({name: text if isinstance(text, Output) else Output(text) for name, text in texts.items()})
    hosts = [(RawHost(name=name), HostSpec(name=name, capabilities=blocks)) for name in ("gpu01", "gpu02")]
    beside = Unasked(hosts)
    for raw, _ in hosts:
        beside.note(raw.name, facts)
    beside.tell()
    return " ".join(capsys.readouterr().err.split())


def test_a_narrow_link_and_a_dead_port_are_told_once_for_all_hosts(capsys: pytest.CaptureFixture[str]) -> None:
    told = said(capsys, hgx_h100(narrow=True))
    assert told.count("warning: gpu01, gpu02: the PCIe link of GPU5 (0000:bc:00.0) is 32 GT/s x8") == 1
    assert "The spec does not ask about it; gpuprov health judges it" in told
    dead = said(capsys, ports("ACTIVE", "ACTIVE", "ACTIVE", "DOWN"))
    assert "port 1 of mlx5_3_0" in dead


def test_what_the_spec_asks_about_is_judged_by_its_checks_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, hgx_h100(narrow=True), topology=Topology()) == ""
    assert said(capsys, hgx_h100(narrow=True), health=Health()) == ""
    assert said(capsys, ports("ACTIVE", "ACTIVE", "ACTIVE", "DOWN"), rdma=Rdma()) == ""


def test_sound_machines_guests_and_hosts_that_were_not_read_are_silent(capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, hgx_h100()) == ""
    assert said(capsys, cards(NARROW), GUEST) == ""
    beside = Unasked([(RawHost(name="gone"), HostSpec(name="gone"))])
    beside.note("gone", UnreachableError("refused"))
    beside.note("gone", Facts({}))
    beside.tell()
    assert capsys.readouterr().err == ""
