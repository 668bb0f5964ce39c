"""Outputs of commands as people save them: one file, several of a host in a folder, folders of many hosts."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest
from click.testing import CliRunner

from gpuprov.cli import cli
from gpuprov.core.errors import GpuprovError
from gpuprov.facts.captures import RecordedFacts, iterate, plain, read, smi_xml
from gpuprov.facts.probes.base import Output
from gpuprov.facts.probes.gpus import gpu_health
from gpuprov.verify import recorded
from gpuprov.verify.evaluate import Result
from tests.facts.captures import reports
from tests.facts.captures.test_reports import specs
from tests.rows import run_each

REAL = Path(__file__).parents[2] / "real"
SPEC = "all: {hosts: {gpu017: {gpuprov: {health: {}}}}}\n"
XML = (Path(__file__).parent / "data" / "nvidia-smi-q-x.xml").read_text(encoding="utf-8")
"""Lines of pro-6000-maxq-blackwell-v13.xml, https://github.com/influxdata/telegraf,
plugins/inputs/nvidia_smi/testdata."""
IBSTAT = (REAL / "mooncake-roce-ibstat" / "ibstat.txt").read_text(encoding="utf-8")
DOWN = "[   10.250000] Linux version 6.1.0-47-amd64\n[   11.250000] systemd[1]: Started.\n"


def found(path: Path) -> dict[str, Result]:
    return {one.check: one for one in recorded.verify(specs(SPEC), read(path))}


def two_ports(state: str) -> str:
    """The real port, and two like it, the last of which is as this says."""
    others = [IBSTAT.replace("mlx5_0", f"mlx5_{number}") for number in (1, 2)]
    others[1] = others[1].replace("State: Active\n", f"State: {state}\n").replace("LinkUp", "Polling")
    return "\n".join((IBSTAT, *others))


def test_the_xml_says_what_the_text_does(tmp_path: Path) -> None:
    (gpu,) = gpu_health.parse(Output(f"@smi\n{smi_xml.convert(XML)}")).gpus
    assert (gpu.address, gpu.name[:20], gpu.ecc, gpu.remapped, gpu.remap_failed) == (
        "0000:61:00.0", "NVIDIA RTX PRO 6000 ", "disabled", 0, False,
    )  # fmt: skip
    assert (gpu.slow, gpu.degrees, gpu.below, gpu.draw, gpu.limit) == ((), 24, 70, 3.97, 300.0)
    assert (gpu.width, gpu.replays, gpu.recovery, gpu.used, gpu.processes) == (16, 0, "None", 65720, False)
    assert (gpu.clocks.most_memory, gpu.vbios, gpu.inforom) == (14001, "98.02.6A.00.03", "G153.0520.00.02")
    path = tmp_path / "smi.xml"
    path.write_text(XML)
    assert found(path)["health.remapped_rows"].status == "pass"
    path.write_text(XML.replace("failure>No", "failure>Yes"))
    assert found(path)["health.remapped_rows"].status == "fail"
    path.write_text(XML.replace("<attached_gpus>1", "<attached_gpus>4"))
    (record,) = read(path)
    assert "4 GPUs are attached, and shows 1" in record.cut


@run_each(
    ("text", "why"),
    [
        (XML[:900], "not well-formed"),
        (XML.replace("<nvidia_smi_log>", "<!ENTITY a 'b'><nvidia_smi_log>", 1), "none of the records"),
        (XML.replace('.dtd">', '.dtd" [<!ENTITY a "b">]>', 1), "declares entities"),
        (XML.replace("00000000:61:00.0", "$(id)"), "a GPU has the id"),
        (XML.replace("<processes>", "<a>" * 40 + "x" + "</a>" * 40 + "<processes>"), "elements in each other"),
        ("61:00.0 3D controller: NVIDIA Corporation Device 2331 (rev a1)\n", "lspci without the ids"),
    ],
)  # fmt: skip
def test_a_file_that_is_not_read_says_why(tmp_path: Path, text: str, why: str) -> None:
    path = tmp_path / "file.txt"
    path.write_text(text)
    with pytest.raises(GpuprovError, match=why):
        read(path)


def test_no_more_is_expanded_than_is_there() -> None:
    bomb = '<!DOCTYPE nvidia_smi_log [<!ENTITY a "ha">' + "".join(
        f'<!ENTITY a{n} "{f"&a{n - 1};" * 10 if n else "&a;"}">' for n in range(30)
    )
    text = f"<nvidia_smi_log><x/>{bomb}]></nvidia_smi_log>"
    with pytest.raises(ValueError, match="declares entities"):
        smi_xml.convert(text)


@run_each(
    ("name", "command"),
    [
        ("mooncake-roce-ibstat/ibstat.txt", plain.IBSTAT),
        ("h100-nvlink-e/nvidia-smi-nvlink-e.txt", plain.NVLINK_ERRORS),
        ("h100-nvlink-s/nvidia-smi-nvlink-s.txt", plain.NVLINK_STATUS),
        ("rtx3090ti-nvlink-inactive/nvidia-smi-nvlink-s.txt", plain.NVLINK_STATUS),
        ("a100-lspci-vv/lspci-nn.txt", plain.LSPCI),
        ("h200-vm-580-alone/nvidia-smi-q.txt", plain.SMI),
    ],
)
def test_real_outputs_are_known_by_what_they_say(name: str, command: str) -> None:
    assert plain.identify((REAL / name).read_text(encoding="utf-8"))[0] == command


def test_ibstat_proves_a_port_that_is_down_and_never_that_all_are_up(tmp_path: Path) -> None:
    path = tmp_path / "ibstat.txt"
    path.write_text(two_ports("Down"))
    result = found(path)["health.port_state"]
    assert result.status == "fail"
    assert "port 1 of mlx5_2 is DOWN (Polling), 2 of its 3 like here are ACTIVE" in result.found
    path.write_text(two_ports("Active"))
    assert found(path)["health.port_state"].status == "skip"


def test_nvlink_status_proves_a_gpu_with_fewer_links(tmp_path: Path) -> None:
    gpu = (REAL / "h100-nvlink-s" / "nvidia-smi-nvlink-s.txt").read_text(encoding="utf-8")
    second = gpu.replace("GPU 0:", "GPU 1:").replace("Link 3: 26.562 GB/s", "Link 3: <inactive>")
    path = tmp_path / "status"
    path.write_text(gpu + second)
    result = found(path)["health.nvlinks"]
    assert (result.status, result.action) == ("fail", "reset")
    assert "GPU1 has 17 NVLinks up; another NVIDIA H100 80GB HBM3 here has 18" in result.found
    path.write_text(gpu)
    assert found(path)["health.nvlinks"].status == "skip"


def test_nvlink_status_that_breaks_off_asks_for_no_reset(tmp_path: Path) -> None:
    gpu = (REAL / "h100-nvlink-s" / "nvidia-smi-nvlink-s.txt").read_text(encoding="utf-8")
    path = tmp_path / "status"
    path.write_text(gpu + gpu.replace("GPU 0:", "GPU 1:").partition("Link 7:")[0] + "Link 7:")
    (record,) = read(path)
    assert record.cut == "nvidia-smi nvlink -s breaks off in GPU 1: 7 of 18 links"
    assert (found(path)["health.nvlinks"].status, found(path)["health.nvlinks"].action) == ("skip", "")


def test_files_of_one_host_in_a_folder_are_one_record(tmp_path: Path) -> None:
    errors = (REAL / "h100-nvlink-e" / "nvidia-smi-nvlink-e.txt").read_text(encoding="utf-8")
    for name, text in (
        ("smi.xml", XML),
        ("nvlink.txt", errors),
        ("ibstat.txt", two_ports("Down")),
        ("notes.txt", "hello\n"),
    ):
        (tmp_path / name).write_text(text)
    (tmp_path / "dmesg.log").write_text(DOWN)
    (record,) = read(tmp_path)
    assert {"kernel_log", "gpu_health", "nvlink_errors", "recorded_ports"} <= record.outputs.keys()
    results = found(tmp_path)
    statuses = {
        name: results[f"health.{name}"].status for name in ("remapped_rows", "nvlink_errors", "port_state", "xid")
    }
    assert statuses == {"remapped_rows": "pass", "nvlink_errors": "pass", "port_state": "fail", "xid": "pass"}


def test_what_lies_beside_a_bug_report_is_of_its_host(tmp_path: Path) -> None:
    (tmp_path / "nvidia-bug-report.log").write_text(reports.bug_report())
    alone = {one.check: one.status for one in recorded.verify(specs(SPEC), read(tmp_path), named=True)}
    (tmp_path / "ibstat.txt").write_text(two_ports("Down"))
    both = {one.check: one.status for one in recorded.verify(specs(SPEC), read(tmp_path), named=True)}
    assert (alone["health.port_state"], both["health.port_state"]) == ("skip", "fail")
    assert {name for name in both if both[name] != alone[name]} == {"health.port_state"}


@pytest.mark.install
def test_a_folder_of_many_hosts_is_one_page_by_cause_in_flat_memory(tmp_path: Path) -> None:
    names = [f"gpu{number:03d}" for number in range(120)]
    folder = tmp_path / "tickets"
    padding = "<!-- " + "x" * 200_000 + " -->\n</nvidia_smi_log>"
    for number, name in enumerate(names):
        (folder / name).mkdir(parents=True)
        text = XML.replace("failure>No", "failure>Yes") if number % 5 == 0 else XML
        (folder / name / "smi.xml").write_text(text.replace("</nvidia_smi_log>", padding))
    tracemalloc.start()
    count = sum(1 for _ in iterate(folder))
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count == 120
    assert most < 75_000_000, "one file may be of 64 MiB; 120 of 200 kB are 24 MB more"
    inventory, page = tmp_path / "inventory.yaml", tmp_path / "page.html"
    inventory.write_text("all: {vars: {gpuprov: {health: {ecc: any}}}, hosts: {'gpu[000:119]': {}}}\n")
    arguments = ["health", str(inventory), "--from", str(folder), "--html", str(page)]
    assert CliRunner().invoke(cli, arguments, standalone_mode=False).return_value == 1
    text = page.read_text(encoding="utf-8")
    assert "24 of 120 hosts are not fit for work" in text
    assert text.count("health.remapped_rows") < 20, "hosts with the same cause are one entry"


def test_a_reason_says_which_of_two_it_is(tmp_path: Path) -> None:
    path = tmp_path / "ibstat.txt"
    path.write_text(IBSTAT)
    (record,) = read(path)
    assert record.kind == "command output"
    assert "not in this command output: kernel_log" in found(path)["health.xid"].found
    assert RecordedFacts(record).outputs().keys() == {"container", "recorded_ports"}


ADAPTER = "5c:00.0 Infiniband controller [0207]: Mellanox Technologies MT2910 Family [ConnectX-7] [15b3:1021]"
SWITCH = "0001:85:00.0 Bridge [0680]: NVIDIA Corporation GH100 [H100 NVSwitch] [10de:22a3]"


@pytest.mark.parametrize("gone", [" (rev ff)", " (rev ff) (prog-if ff)\n\t!!! Unknown header type 7f"])
@pytest.mark.parametrize(
    ("line", "who"),
    [(ADAPTER, "0000:5c:00.0 [15b3:1021]"), (SWITCH, "0001:85:00.0 [10de:22a3]"),
     (ADAPTER.replace("[15b3", "[14e4"), "[14e4:1021]")],
)  # fmt: skip
def test_lspci_proves_that_an_adapter_or_a_switch_does_not_answer(
    tmp_path: Path, line: str, who: str, gone: str
) -> None:
    path = tmp_path / "lspci.txt"
    path.write_text(f"00:1f.0 ISA bridge [0601]: Intel Corporation Device [8086:1b81] (rev 11)\n{line}{gone}\n")
    result = found(path)["health.pcie_links"]
    assert (result.status, result.action) == ("fail", "reboot")
    assert f"{who} does not answer" in result.found
    path.write_text(
        path.read_text().replace("rev ff", "rev a1").replace("!!! Unknown header type 7f", "Flags: fast devsel")
    )
    assert found(path)["health.pcie_links"].status == "skip"


def test_lspci_alone_proves_that_a_gpu_does_not_answer(tmp_path: Path) -> None:
    path = tmp_path / "lspci.txt"
    gpu = "{}:00.0 3D controller [0302]: NVIDIA Corporation GA100 [A100 SXM4 40GB] [10de:20b0] (rev {})\n"
    path.write_text(gpu.format("3b", "a1") + gpu.format("86", "ff"))
    result = found(path)["health.gpus"]
    assert (result.status, result.action) == ("fail", "reboot")
    assert result.found == "0000:86:00.0 on the bus, and does not answer (rev ff)"
    path.write_text(gpu.format("3b", "a1"))
    assert found(path)["health.gpus"].status == "skip"


PORT = """5d:00.0 PCI bridge: Intel Corporation Device 352a (rev 30) (prog-if 00 [Normal decode])
\tBus: primary=5d, secondary=5e, subordinate=5e, sec-latency=0
\t\tLnkCap:\tPort #1, Speed 32GT/s, Width x16, ASPM not supported
\t\tLnkSta:\tSpeed 8GT/s, Width x8
\t\tLnkCap2: Supported Link Speeds: 2.5-32GT/s, Crosslink-
"""
HCA = """5e:00.0 Infiniband controller: Mellanox Technologies MT2910 Family [ConnectX-7]
\tSubsystem: Mellanox Technologies Device 0041
\t\tLnkCap:\tPort #0, Speed 32GT/s, Width x16, ASPM not supported
\t\tLnkSta:\tSpeed 8GT/s (downgraded), Width x8 (downgraded)
"""
IDLE = """5e:00.0 3D controller: NVIDIA Corporation GA100 [A100 SXM4 40GB] (rev a1)
\t\tLnkCap:\tPort #0, Speed 16GT/s, Width x16, ASPM not supported
\t\tLnkSta:\tSpeed 2.5GT/s (downgraded), Width x16
"""


@pytest.mark.parametrize(
    ("shown", "problem"),
    [
        (PORT + HCA, "(Mellanox Technologies MT2910 Family [ConnectX-7]) is 8 GT/s x8, its ends support 32"),
        (PORT + HCA.replace("er: ", "er [0207]: ").replace("X-7]", "X-7] [15b3:1021]"), "is 8 GT/s x8, its ends"),
        (PORT + IDLE, ""),
        (PORT + IDLE.replace("Width x16\n", "Width x8 (downgraded)\n"), "is x8, its ends support x16"),
        (PORT.replace("Width x16", "Width x8").replace("Speed 32GT/s", "Speed 8GT/s") + HCA, ""),
        (HCA, ""),
        (HCA + HCA.replace("5e:", "6e:").replace("x8", "x16") + HCA.replace("5e:", "7e:").replace("x8", "x16"),
         "0000:5e:00.0 (Mellanox Technologies MT2910 Family [ConnectX-7]) is x8, its like here x16"),
        (IDLE.replace("rev a1", "rev ff"), "0000:5e:00.0 [NVIDIA Corporation GA100 [A100 SXM4 40GB]] does not answer"),
    ],
    ids=["HCA", "with ids", "an idle GPU", "GPU", "a slot of x8", "no port above", "its like", "gone"],
)  # fmt: skip
def test_lspci_shows_links_below_what_both_ends_support(tmp_path: Path, shown: str, problem: str) -> None:
    """Without -nn, too."""
    path = tmp_path / "lspci.txt"
    path.write_text(shown)
    result = found(path)["health.pcie_links"]
    assert (result.status, problem in result.found) == ("fail" if problem else "skip", True), result.found


def test_errors_of_nvlinks_are_read_where_packets_come_first(tmp_path: Path) -> None:
    path = tmp_path / "links.txt"
    counters = ("Tx packets: 1000", "Tx bytes: 48000", "Rx packets: 1000", "Malformed packet Errors: 0")
    more = ("Link recovery successful events: 3", "Total link recovery events: 3", "Effective BER: 15e-255")
    shown = "".join(f"\t Link 0: {counter}\n" for counter in (*counters, *more))
    path.write_text(f"GPU 0: NVIDIA GB200 (UUID: GPU-00000001-0000-0000-0000-000000000000)\n{shown}")
    result = found(path)["health.nvlink_errors"]
    assert (result.status, "3 recoveries" in result.found) == ("fail", True)


def test_ports_of_ibstat_are_up_where_the_spec_has_rdma(tmp_path: Path) -> None:
    path = tmp_path / "ibstat.txt"
    path.write_text(IBSTAT.replace("State: Active\n", "State: Initializing\n"))
    asked = SPEC.replace("health: {}", "health: {}, rdma: {fabric: roce}")
    by_check = {one.check: one for one in recorded.verify(specs(asked), read(path))}
    assert (by_check["health.port_state"].status, by_check["health.port_state"].found) == (
        "fail", "port 1 of mlx5_0 is INIT (LinkUp)",
    )  # fmt: skip
    assert "which gpuprov topology may name" in by_check["health.port_state"].fix
    assert found(path)["health.port_state"].status == "skip"
