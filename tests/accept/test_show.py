"""What an acceptance shows: the picture, the page, JSON, JUnit, words; and the tests of one host's GPUs."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner

from gpuprov.accept import document as as_document
from gpuprov.accept import maps, show
from gpuprov.accept.maps import Cell, Level, Map
from gpuprov.accept.model import Options, Outcome, Ran, Status, Step
from gpuprov.accept.page import page
from gpuprov.accept.picture import document
from gpuprov.capabilities.acceptance.fragment import Acceptance, Nccl, NvBandwidth, RdmaTests, Source, Stream
from gpuprov.catalog.acceptance import RESULT
from gpuprov.cli import cli
from gpuprov.core.errors import GpuprovError
from tests import documents
from tests.accept.fleet import ALL_TOOLS, Fleet, bandwidth, data, facts, gone, run
from tests.accept.test_outputs import COPIES, DIAG_3, DIAG_4, NCCL, NETWORK, STREAM
from tests.rows import run_each

SVG = "{http://www.w3.org/2000/svg}"
GPUS = "".join(f"00000000:{n:02x}:00.0, NVIDIA H100 80GB HBM3, GPU-{n}, 570.133.20, Enabled\n" for n in range(1, 9))
BLOCK = Acceptance(
    rdma=RdmaTests(tests=("write_bw", "ping")),
    nccl=Nccl(busbw=470),
    nvbandwidth=NvBandwidth(tests=("host_to_device_memcpy_ce", "multinode_device_to_device_memcpy_read_ce")),
)


def outcome(**answers: str) -> Outcome:
    """Three hosts with eight H100 each: one slow pair, one host lost."""
    good = {
        "ib_write_bw": bandwidth(391.2),
        "ibping": data("ibping"),
        "all_reduce_perf": NCCL,
        "nvbandwidth": json.dumps(COPIES),
        "dcgmi": json.dumps(DIAG_3),
    }
    fleet = Fleet(**(good | answers))
    fleet.pairs["gpu1", "10.0.0.2"] = bandwidth(377.6)
    found = {f"gpu{n}": facts(n, nvidia_smi=GPUS) for n in (1, 2, 3)} | {"gpu4": gone("gpu4")}
    return run(fleet, 4, BLOCK, options=Options(yes=True), found=found)


def cells(text: str) -> list[str]:
    return [
        one.text or ""
        for one in ElementTree.fromstring(text).iter(f"{SVG}text")
        if "c" in (one.get("class") or "").split()
    ]


def test_the_picture_has_each_pairs_number_and_marks_what_was_missed() -> None:
    drawn = document(maps.maps(outcome()))
    assert cells(drawn).count("391") == 5
    assert "378 !" in cells(drawn)
    assert cells(drawn).count("0") == 6, "pings both ways"
    titles = [one.text for one in ElementTree.fromstring(drawn).iter(f"{SVG}title")]
    assert "gpu1 mlx5_0 to gpu2 mlx5_0: 377.6 Gb/s" in titles


def test_the_picture_loads_nothing_and_escapes_names() -> None:
    one = Map(title="<b>&", unit="Gb/s", hosts=("<a>", 'b"'), cells={("<a>", 'b"'): Cell(9.5, "pass", "<script>")})
    drawn = document([one])
    ElementTree.fromstring(drawn)
    assert "<script>" not in drawn
    assert "href" not in drawn
    assert document([one]) == drawn


def test_a_pair_without_a_figure_and_one_that_was_not_tested() -> None:
    hosts = ("a", "b", "c")
    drawn = document(
        [Map(title="t", unit="us", hosts=hosts, cells={("a", "b"): Cell(None, "error", "it died")}, less=True)]
    )
    assert cells(drawn).count("none") == 1
    assert cells(drawn).count("-") == 5
    assert "no figure" in drawn


@run_each(
    ("value", "status", "less", "level"),
    [
        (391, "pass", False, "met"),
        (350, "pass", False, "slow"),
        (389, "fail", False, "missed"),
        (351, "fail", False, "far"),
        (2.1, "pass", True, "met"),
        (2.4, "pass", True, "slow"),
        (3.1, "fail", True, "missed"),
        (3.3, "fail", True, "far"),
        (None, "error", False, "none"),
        (None, "skip", False, "skipped"),
    ],
)
def test_levels_say_how_good_a_figure_is(value: float | None, status: Status, less: bool, level: Level) -> None:
    usual, threshold = (2.0, 3.0) if less else (391.0, 390.0)
    cells = {("a", str(n)): Cell(usual, "pass", "") for n in range(5)}
    cell = Cell(value, status, "", threshold)
    one = Map(title="t", unit="x", hosts=("a", "b"), cells=cells | {("a", "b"): cell}, threshold=threshold, less=less)
    assert one.level(cell) == level
    assert level in [name for name, _ in one.legend()] or level == "skipped"


def test_lost_pings_are_bad_where_none_is_usual() -> None:
    lost = Cell(20, "fail", "")
    one = Map(title="t", unit="% lost", hosts=("a", "b"), cells={("a", "b"): lost}, less=True, test="ping")
    assert one.level(lost) == "far"
    assert ("met", "met: no ping lost") in one.legend()


def test_the_legend_has_figures_and_units_and_a_mark_for_each_level() -> None:
    told = dict(next(one for one in maps.maps(outcome()) if one.test == "write_bw").legend())
    assert told["met"] == "met: 390 Gb/s or more"
    assert told["far"] == "missed by 10 % or more: 351 Gb/s or less"
    assert told["slow"] == "not missed, but 10 % or more worse than the median, 391 Gb/s"
    assert len(set(maps.SAMPLES.values())) == len(maps.SAMPLES), "no two levels look alike without their colours"


def test_a_ring_of_many_hosts_is_a_list_of_its_pairs() -> None:
    hosts = tuple(f"gpu{n:03d}" for n in range(100))
    ring = {(name, hosts[(n + 1) % 100]): Cell(390 + n / 100, "pass", "") for n, name in enumerate(hosts)}
    drawn = document([Map(title="t", unit="Gb/s", hosts=hosts, cells=ring)])
    assert len(cells(drawn)) == 100
    assert "gpu099 to gpu000" in drawn


def test_of_a_list_of_pairs_the_worst_are_first() -> None:
    fleet = Fleet(ib_write_bw=bandwidth(391.2), ibping=data("ibping"))
    fleet.pairs["gpu39", "10.0.0.40"] = bandwidth(196.1)
    told = page(run(fleet, 60, found={f"gpu{number}": facts(number) for number in range(1, 61)}))
    cells = re.findall(r'<button[^>]* class="cell (\w+)"', told[told.index("pairs") :])
    assert cells[0] == "far"
    assert "met" in cells[1:]


def test_the_page_is_self_contained() -> None:
    told = page(outcome())
    assert "default-src &#39;none&#39;" in told
    assert "Not accepted: gpu4 could not be reached; gpu[1:3] stand out" in told
    assert "gpu1 to gpu2: 378 Gb/s, 3 % under what is wanted, at least 390 Gb/s; back: 391 Gb/s" in told
    assert "src=" not in told
    assert page(outcome()) != told, "another run"
    assert re.sub("[0-9a-f]{8,}", "", told) == re.sub("[0-9a-f]{8,}", "", page(outcome()))


def test_json_has_every_figure_and_its_threshold() -> None:
    told = documents.read_document(as_document.build_document(outcome()))
    assert (told["verdict"], told["exit_code"], told["summary"]["findings"]["unreachable"]) == ("NOT accepted", 4, 1)
    slow = next(row for row in told["results"] if row["status"] == "fail")
    assert (slow["host"], slow["threshold"], slow["measurement"]["value"]) == ("gpu1", 390, 377.6)
    assert slow["published"].startswith("https://")
    server, client = slow["evidence"].split("; ")
    assert server.startswith("on gpu2: ib_write_bw -d mlx5_0 -i 1 -F -s 1048576 ")
    assert client.startswith("on gpu1: ib_write_bw ")
    assert client.endswith(" 10.0.0.2")
    assert "@" not in slow["evidence"]
    assert [host["host"] for host in told["hosts"]] == ["gpu1", "gpu2", "gpu3", "gpu4"]


def test_junit_has_a_case_for_each() -> None:
    from gpuprov.report import junit

    rows = show.as_results(outcome())
    root = ElementTree.fromstring(junit.render(rows))
    assert int(root.get("tests") or 0) == len(rows)
    assert int(root.get("failures") or 0) == 4
    names = [(one.get("classname"), one.get("name")) for one in root.iter("testcase")]
    assert len(names) == len(set(names))


def test_words_say_what_is_wrong_first() -> None:
    text = show.as_text(outcome())
    assert text.startswith("UNREACHABLE  gpu4: ")
    assert text.index("FAIL  write_bw: gpu1 to gpu2: 378 Gb/s, 3 %") < text.index("skip  ")
    assert "fix       see the port" in text
    assert "acceptance.write_bw mlx5_0 to gpu2 mlx5_0  gpu1" not in text
    assert "FAIL  acceptance.write_bw mlx5_0 to gpu2 mlx5_0  gpu1" in show.as_text(outcome(), verbose=True)
    assert "write_bw                        6    378     391   391  Gb/s" in text
    assert text.endswith("NOT accepted: 4 hosts, 1 unreachable, 4 missed, 3 skipped, 14 passed")


def test_one_hosts_gpus_are_held_to_the_spec_and_to_what_is_published() -> None:
    found = outcome()
    told = {one.check: one for one in found.findings if one.host == "gpu1"}
    assert told["acceptance.all_reduce_perf"].status == "pass"
    assert told["acceptance.all_reduce_perf"].expected == "at least 470 GB/s"
    copy = told["acceptance.host_to_device_memcpy_ce"]
    assert (copy.status, copy.found) == ("fail", "41.7 GB/s, the slowest copy")
    assert "at least 48 GB/s (published: https://" in copy.expected
    assert told["acceptance.multinode_device_to_device_memcpy_read_ce"].status == "skip"
    assert (told["acceptance.dcgm"].status, told["acceptance.dcgm"].found) == ("pass", "1 tests passed")


def test_a_gpu_that_dcgm_finds_fault_with() -> None:
    found = outcome(dcgmi=json.dumps(DIAG_4))
    bad = next(one for one in found.findings if one.check == "acceptance.dcgm")
    assert (bad.status, bad.found) == ("fail", "memory: Fail on GPU 1 (Uncorrectable ECC error)")
    assert bad.evidence == "dcgmi diag -r 1 -j"


def test_memory_bandwidth_is_measured_by_stress_ng_where_it_is_asked_for() -> None:
    tools = ("tool|stress-ng|/usr/bin/stress-ng\npython|\n", "python|\n")
    found = {f"gpu{n}": facts(n, acceptance_tools=told) for n, told in enumerate(tools, 1)}
    asked = Options(yes=True, only=("stream",))
    block = Acceptance(rdma=RdmaTests(tests=()), stream=Stream(seconds=30, bandwidth=4))
    told = run(Fleet(**{"stress-ng": STREAM}), 2, block, options=asked, found=found)
    bad, absent = sorted(told.findings, key=lambda one: one.host)
    assert (bad.check, bad.status, bad.expected) == ("acceptance.stream", "fail", "at least 4 GB/s")
    assert (bad.found, bad.evidence) == (
        "3.15 GB/s, read and written by 2 processes", "/usr/bin/stress-ng --stream 0 --timeout 30s --metrics"
    )  # fmt: skip
    assert (absent.status, absent.found) == ("skip", "no stress-ng in PATH: gpuprov apply installs it")
    assert not run(Fleet(), 2, BLOCK, options=asked, found=found).findings


def test_over_all_hosts_nccl_runs_where_mpi_is_and_must_not_fall_back_to_sockets() -> None:
    block = Acceptance(rdma=RdmaTests(tests=()), nccl=Nccl(across=True, gpudirect=True))
    found = {f"gpu{n}": facts(n, nvidia_smi=GPUS) for n in (1, 2)}
    socket = Fleet(mpirun=NETWORK.format(net="Socket", gdr="", sent="") + NCCL, all_reduce_perf=NCCL)
    told = run(socket, 2, block, options=Options(yes=True, only=("nccl",)), found=found)
    bad = next(one for one in told.findings if one.status == "fail")
    assert (bad.check, bad.expected) == (
        "acceptance.across.all_reduce_perf",
        "NCCL between hosts by NET/IB with GDRDMA",
    )
    assert "by NET/Socket" in bad.found
    assert "--host 192.0.2.1:8,192.0.2.2:8" in bad.evidence
    without = {
        name: facts(n, nvidia_smi=GPUS, acceptance_tools=ALL_TOOLS.replace("tool|mpirun", "tool|x"))
        for n, name in ((1, "gpu1"), (2, "gpu2"))
    }
    told = run(Fleet(all_reduce_perf=NCCL), 2, block, options=Options(yes=True, only=("nccl",)), found=without)
    assert "no mpirun on gpu1, gpu2" in told.findings[-1].found


def test_over_the_hcas_of_one_host_nccl_must_take_them() -> None:
    nccl = Nccl(loopback=True, loopback_busbw=1000)
    block = Acceptance(rdma=RdmaTests(tests=()), nccl=nccl)
    asked = Options(yes=True, only=("nccl",))
    seen: list[str] = []

    def by(network: str) -> Callable[[Step], Ran]:
        def answer(step: Step) -> Ran:
            seen.append(step.script)
            return Ran(text=NETWORK.format(net=network, gdr="", sent="") + NCCL)

        return answer

    found = {"gpu1": facts(1, nvidia_smi=GPUS)}
    for network, status, said in (
        ("IB", "fail", "by NET/IB"),
        ("Socket", "error", "NCCL went by NET/Socket, not by NET/IB"),
    ):
        told = run(Fleet(all_reduce_perf=by(network)), 1, block, options=asked, found=found)
        (one,) = [one for one in told.findings if one.check == "acceptance.loopback.all_reduce_perf"]
        assert one.status == status
        assert said in one.found
    assert ["NCCL_P2P_DISABLE=1" in script for script in seen] == [False, True] * 2
    assert all("NCCL_SHM_DISABLE=1" in script for script in seen[1::2])
    without = {"gpu1": facts(1, nvidia_smi=GPUS, rdma_devices="")}
    told = run(Fleet(all_reduce_perf=NCCL), 1, block, options=asked, found=without)
    (one,) = [one for one in told.findings if one.check == "acceptance.loopback.all_reduce_perf"]
    assert (one.status, one.found) == ("skip", "no RDMA device")


def test_absent_tools_and_gpus_are_skipped_with_a_reason() -> None:
    found = {"gpu1": facts(1, acceptance_tools="python|\n", nvidia_smi=GPUS), "gpu2": facts(2)}
    told = run(Fleet(), 2, BLOCK, options=Options(yes=True, only=("nccl", "nvbandwidth", "dcgm")), found=found)
    assert {one.status for one in told.findings} == {"skip"}
    reasons = " ".join(one.found for one in told.findings)
    assert all(
        why in reasons for why in ("no all_reduce_perf in PATH", "no nvbandwidth in PATH", "no dcgmi", "no NVIDIA GPU")
    )
    assert show.as_text(told).endswith("nothing was measured: 2 hosts, 8 skipped")


def test_a_page_about_nothing_shows_why_and_no_empty_map() -> None:
    """Two hosts on which no program of the tests is installed."""
    without = {f"gpu{n}": facts(n, acceptance_tools="") for n in (1, 2)}
    told = page(run(Fleet(), 2, found=without))
    assert "<h1>Nothing was measured</h1>" in told
    assert '<section class="map"' not in told
    assert '<details class="card unproven" open>' in told
    assert "gpuprov apply installs it" in told


def test_figures_are_written_on_the_host_beside_those_of_other_tests() -> None:
    fleet = Fleet(ib_write_bw=bandwidth(391.2))
    run(fleet, 2)
    assert RESULT in fleet.written["gpu1"]
    assert '"value":391.2' in fleet.written["gpu1"]


@run_each(
    ("arguments", "told"),
    [
        (["--only", ","], "--only names no test; allowed: rdma, nccl, nvbandwidth, dcgm, stream"),
        (["--only", "rmda"], 'there is no test "rmda"; allowed: rdma, nccl, nvbandwidth, dcgm, stream'),
        (["--pairs", "star"], "'star' is not one of"),
        (["--timeout", "1"], "5"),
    ],
)
def test_usage_errors(arguments: list[str], told: str, tmp_path: Path) -> None:
    (tmp_path / "i.yaml").write_text("all: {hosts: {a: {}}}\n")
    ended = CliRunner().invoke(cli, ["accept", str(tmp_path / "i.yaml"), *arguments])
    assert ended.exit_code == 2
    assert told in ended.output


@pytest.mark.install
def test_it_asks_or_needs_yes(tmp_path: Path) -> None:
    (tmp_path / "i.yaml").write_text("all: {hosts: {a: {}}, vars: {gpuprov: {acceptance: {}}}}\n")
    ended = CliRunner().invoke(cli, ["accept", "--no-cache", str(tmp_path / "i.yaml")])
    assert isinstance(ended.exception, GpuprovError)
    assert "no terminal to ask on" in ended.exception.message


def test_a_file_that_cannot_be_written_is_told_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(GpuprovError, match="cannot be written"):
        show.check(Options(svg=tmp_path / "nowhere" / "a.svg"))


def test_nothing_to_draw() -> None:
    assert "no pair was tested" in document([])
    assert maps.format_figure(0.02936) == "0.029"


def test_a_message_that_the_gpus_have_no_room_for_is_made_smaller_and_told() -> None:
    smaller = GPUS.replace("H100 80GB HBM3", "L40S")
    found = {"gpu1": facts(1, nvidia_smi=smaller)}
    told = run(Fleet(all_reduce_perf=NCCL), 1, Acceptance(), options=Options(yes=True, only=("nccl",)), found=found)
    one = next(one for one in told.findings if one.measurement)
    assert "-b 8192M -e 8192M -g 8" in one.evidence
    assert one.found.endswith("with messages of 8192M: 48 GB of memory have no room for 16G")
    assert one.measurement is not None
    assert one.measurement.size == 8 << 30


def test_a_collective_that_ends_in_an_error_is_no_figure() -> None:
    fleet = Fleet(all_reduce_perf=lambda _step: Ran(text=NCCL + "gpu1: segmentation fault\n", status=139))
    found = {"gpu1": facts(1, nvidia_smi=GPUS)}
    told = run(fleet, 1, Acceptance(), options=Options(yes=True, only=("nccl",)), found=found)
    assert [one.status for one in told.findings] == ["error"]
    assert "exit status 139" in told.findings[0].found


def test_with_mpi_it_is_another_build() -> None:
    source = Source(url="https://mirror.example.com/nccl-tests.tar.gz", sha256="ab" * 32)
    block = Acceptance(rdma=RdmaTests(tests=()), nccl=Nccl(across=True, source=source))
    plain = f"{ALL_TOOLS}built|nccl-abababababab|\n"
    found = {f"gpu{n}": facts(n, nvidia_smi=GPUS, acceptance_tools=plain) for n in (1, 2)}
    told = run(Fleet(), 2, block, options=Options(yes=True, only=("nccl",)), found=found)
    assert {one.found for one in told.findings} == {
        "/opt/gpuprov/acceptance/nccl-abababababab-mpi is not built: gpuprov apply"
    }


def test_a_ring_of_hosts_with_long_names_is_no_wider_than_a_screen() -> None:
    names = tuple(f"rack12-training-node{n:03}.example.com" for n in range(30))
    cells_of = {(one, names[(n + 1) % 30]): Cell(390.0, "pass", "") for n, one in enumerate(names)}
    drawn = document([Map(title="write_bw", unit="Gb/s", hosts=names, cells=cells_of)])
    assert float(ElementTree.fromstring(drawn).get("width") or 0) < 1500
