"""Hosts of one rack: whose GPU reported the fatal NVLink error first, who followed, and what is done once for all.

The lines are of public threads (https://github.com/leptonai/gpud/pull/1160 and
https://github.com/NVIDIA/open-gpu-kernel-modules/issues/1150) and of NVIDIA's table of Xids 144 to 150; only the times
are made.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from click.testing import CliRunner

from gpuprov.capabilities.health.fragment import Health
from gpuprov.catalog.xids import blames_peer
from gpuprov.cli import cli
from gpuprov.facts.probes.base import Facts, Output
from gpuprov.report import health_page
from gpuprov.report.health import as_text, build_document
from gpuprov.spec.model import HostSpec
from gpuprov.verify.evaluate import Result, evaluate
from gpuprov.verify.racks import Rack, compare_hosts, find_racks
from tests.capabilities.asking import good
from tests.capabilities.health_host import NOW, WELL, log, smi
from tests.rows import run_each

REAL = Path(__file__).parents[1] / "real"
UUID = "9c6f5af3-53bf-49b5-a436-b66766c413c3"
OWN = "149, NETIR_LINK_EVT Fatal XC0 i0 Link 00 (0x002001c6 0x00000000 0x00000000 0x00000000 0x00000000 0x00000000)"
"""INVESTIGATE_LINK_SI."""
PEER = "149, NETIR_LINK_EVT Fatal XC0 i0 Link 00 (0x025001c6 0x00000000 0x00000000 0x00000000 0x00000000 0x00000000)"
"""INVESTIGATE_PEER_DEVICE."""
RLW = "145, RLW_REMAP Fatal XC1 i0 Link 02 (0x00000004 0x00000080 0x00000000 0x00000000 0x00000000 0x00000000)"
NEEDS = "154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)"
IMEX = "154, GPU recovery action changed from 0x0 (None) to 0x5 (Recover IMEX Domain)"


def fabric(cluster: str = UUID, clique: int = 4026) -> str:
    fields = {"State": "Completed", "Status": "Success", "CliqueId": clique, "ClusterUUID": cluster}
    return "GPU 00000000:19:00.0\n    Fabric\n" + "".join(f"        {key} : {value}\n" for key, value in fields.items())


def tray(name: str, *xids: str, at: float = 0, **changed: str) -> list[Result]:
    lines = [f"NVRM: Xid (PCI:0000:19:00): {xid}" for xid in xids]
    texts = {**good(), "fabric_state": fabric(), "kernel_log": log(*lines, at=NOW - 3600 + int(at)), **changed}
    outputs = {probe: value if isinstance(value, Output) else Output(value) for probe, value in texts.items()}
    results = evaluate(HostSpec(name=name, capabilities={"health": Health()}), Facts(outputs))
    return [result for result in results if result.capability == "health"]


def only(*trays: Sequence[Result]) -> Rack:
    (rack,) = find_racks([result for results in trays for result in results])
    return rack


def test_the_first_to_report_is_named_and_the_others_follow() -> None:
    rack = only(tray("gpu1"), tray("gpu2", OWN, at=20), tray("gpu3", OWN, at=7), tray("gpu4", PEER, at=5))
    assert (rack.first, rack.followers, rack.source) == (("gpu3",), ("gpu4", "gpu2"), "host")
    assert "gpu3 reported a fatal NVLink error first" in rack.words
    assert "look at gpu3 first" in rack.fix


def test_errors_that_blame_the_other_end_alone_are_of_the_switches() -> None:
    rack = only(*(tray(f"gpu{number}", PEER, at=number) for number in range(3)))
    assert (rack.source, rack.first, rack.followers) == ("peer", (), ("gpu0", "gpu1", "gpu2"))
    assert "switch trays" in rack.fix


def test_within_a_second_nobody_is_first() -> None:
    rack = only(tray("gpu1", OWN), tray("gpu2", OWN), tray("gpu3", OWN, at=9))
    assert (rack.first, rack.followers) == (("gpu1", "gpu2"), ("gpu3",))
    assert "as far as their clocks tell" in rack.words


def test_an_xid_154_does_not_hide_what_began_it() -> None:
    rack = only(tray("gpu1", OWN, NEEDS), tray("gpu2", RLW, NEEDS, at=30))
    assert (rack.first, rack.followers) == (("gpu1",), ("gpu2",))


@run_each(
    "trays",
    [
        (tray("gpu1", OWN), tray("gpu2")),
        (tray("gpu1", OWN), tray("gpu2", OWN, at=600)),
        (tray("gpu1", OWN), tray("gpu2", OWN, fabric_state=fabric(clique=4027))),
        tuple(
            tray(name, OWN, fabric_state=fabric("00000001-0000-0000-0000-000000000000", 0)) for name in ("gpu1", "gpu2")
        ),
        (tray("gpu1", OWN, fabric_state=""), tray("gpu2", OWN, fabric_state="")),
        (tray("gpu1", IMEX), tray("gpu2", OWN)),
    ],
)
def test_what_is_no_matter_of_a_rack(trays: Sequence[Sequence[Result]]) -> None:
    assert find_racks([result for results in trays for result in results]) == ()


def test_the_imex_domain_is_recovered_once() -> None:
    results = [*tray("gpu1", IMEX), *tray("gpu2", IMEX, at=3), *tray("gpu3", PEER, at=2), *tray("gpu4", OWN)]
    compared = compare_hosts(results)
    (rack,) = find_racks(compared)
    assert (rack.recover, rack.first, rack.followers) == (("gpu1", "gpu2"), ("gpu4",), ("gpu3",))
    shown = as_text(compared, width=500)
    assert shown.count("systemctl restart nvidia-imex") == 1
    assert shown.count(f"recover the IMEX domain of rack {UUID}.4026, once for all of it") == 1


def test_what_nvidia_smi_says_of_the_domain_counts_too() -> None:
    needs = smi(text=f"{WELL}\n    GPU Recovery Action : Recover IMEX Domain\n")
    rack = only(*(tray(f"gpu{number}", gpu_health=needs) for number in (1, 2)))
    assert rack.recover == ("gpu1", "gpu2")
    assert "once for the rack" in rack.fix


def test_text_json_and_page_say_the_same() -> None:
    results = compare_hosts([*tray("gpu1", OWN), *tray("gpu2", PEER, at=4)])
    (rack,) = find_racks(results)
    assert as_text(results).startswith(f"rack {UUID}.4026: {rack.words}\n")
    assert build_document(results).racks == (rack,)
    page = health_page.render(results)
    assert rack.words in page
    assert "Racks" in page
    assert "Racks" not in health_page.render(tray("gpu1", OWN))


def test_records_of_a_racks_hosts_tell_it(tmp_path: Path) -> None:
    (tmp_path / "tickets").mkdir()
    for number, (xid, second) in enumerate(((PEER, 12), (OWN, 9), (PEER, 14)), 1):
        folder = tmp_path / "tickets" / f"gpu{number}"
        folder.mkdir()
        line = f"2026-11-23T22:41:{second:02}.000000+00:00 gpu{number} kernel: NVRM: Xid (PCI:0008:01:00): {xid}\n"
        (folder / "journal.txt").write_text(
            line.replace(f": NVRM: Xid (PCI:0008:01:00): {xid}", ": Linux version 6.8") + line
        )
        text = (REAL / "h200-vm-580-alone" / "nvidia-smi-q.txt").read_text()
        for name, value in (("CliqueId", "4026"), ("ClusterUUID", UUID)):
            text = re.sub(rf"({name} +: ).*", rf"\g<1>{value}", text)
        (folder / "nvidia-smi-q.txt").write_text(text)
    inventory = tmp_path / "inventory.yaml"
    inventory.write_text('all: {hosts: {"gpu[1:3]": {gpuprov: {health: {}}}}}\n')
    done = CliRunner().invoke(cli, ["health", str(inventory), "--from", str(tmp_path / "tickets")])
    assert f"rack {UUID}.4026: gpu2 reported a fatal NVLink error first, gpu1, gpu3 followed" in done.output, (
        done.output
    )


def test_only_nvidias_table_says_that_an_error_began_elsewhere() -> None:
    assert blames_peer(149, PEER[5:])
    assert not blames_peer(149, OWN[5:])
    assert not blames_peer(149, "NETIR_LINK_EVT Fatal XC0 i0 Link 00 (0x0)")
    assert not blames_peer(145, RLW[5:])
