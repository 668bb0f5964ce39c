"""acceptance: tools are there, what is built is whole, the last figures hold against the present thresholds; what the
role brings about."""

from __future__ import annotations

import subprocess
from typing import Any

import msgspec

from gpuprov.capabilities.acceptance.desired import DESIRED
from gpuprov.capabilities.acceptance.fragment import Acceptance, DcgmDiag, Nccl, NvBandwidth, RdmaTests, Source, Stream
from gpuprov.capabilities.acceptance.judge import DIAGNOSED, judge
from gpuprov.capabilities.acceptance.rules import rules
from gpuprov.catalog import acceptance as catalogue
from gpuprov.facts.probes import acceptance
from gpuprov.facts.probes.acceptance import Measurement
from gpuprov.spec.model import GpuSpec, HostSpec
from tests.capabilities import contexts, rdma_host
from tests.capabilities.acceptance_host import record, tools, write_bw
from tests.capabilities.asking import Row, good
from tests.capabilities.asking import judge as ask_row
from tests.rows import run_each

TOOLS, BUILT, BUILDABLE, RESULT = (f"acceptance.{name}" for name in ("tools", "built", "buildable", "result"))
SHA = "0123456789ab" + "c" * 52
FROM_SOURCE = Acceptance(nccl=Nccl(source=Source(url="https://example.com/nccl-tests.tar.gz", sha256=SHA)))
MPI = Acceptance(nccl=Nccl(across=True, source=Source(url="https://example.com/nccl-tests.tar.gz", sha256=SHA)))
WRITE = Acceptance(rdma=RdmaTests(tests=("write_bw",)))
STRICT = Acceptance(rdma=RdmaTests(tests=("write_bw", "send_lat"), bandwidth=395, latency=2.5))
DEVICE = rdma_host.device("mlx5_0")
LATENCY = Measurement(test="send_lat", value=2.6, unit="us", peer="gpu2", device="mlx5_0", peer_device="mlx5_0")
BUSBW = Measurement(test="all_reduce_perf", value=459.9, unit="GB/s", model="H100-SXM5-80GB", gpus=8, size=1 << 34)
COPY = Measurement(test="device_to_device_memcpy_read_ce", value=334.0, unit="GB/s", model="H200-SXM", gpus=8)
DIAG = Measurement(test="dcgm", value=5, unit="tests passed", problem="memory: Fail on GPU 3 (ECC)")

ROWS = [
    Row("stress-ng is there", TOOLS, Acceptance(stream=Stream(seconds=30)),
        {"rdma_devices": "", "acceptance_tools": tools("stress-ng")}, "pass", "stress-ng"),
    Row("stress-ng is not there", TOOLS, Acceptance(stream=Stream(seconds=30)),
        {"rdma_devices": "", "acceptance_tools": tools("rping")}, "fail", "missing: stress-ng", "gpuprov apply"),
    Row("all tools", TOOLS, None, {"rdma_devices": DEVICE}, "pass", "ib_write_bw, ib_send_lat, ibping, rping"),
    Row("a tool is missing", TOOLS, None,
        {"rdma_devices": DEVICE, "acceptance_tools": tools("ib_write_bw", "ib_send_lat", "rping")}, "fail",
        "missing: ibping", "gpuprov apply", change="package infiniband-diags:  -> installed"),
    Row("no RDMA device", TOOLS, None, {"rdma_devices": "", "acceptance_tools": tools("rping")}, "skip",
        "no RDMA device"),
    Row("no tests between hosts", TOOLS, Acceptance(rdma=RdmaTests(tests=())), {"rdma_devices": DEVICE}, "skip",
        "no tests between hosts"),
    Row("nothing to build", BUILT, None, {}, "n/a", "nothing to build"),
    Row("never built", BUILT, FROM_SOURCE, {}, "fail", "not built: /opt/gpuprov/acceptance/nccl-0123456789ab",
        "gpuprov apply", change="file /opt/gpuprov/acceptance/nccl-0123456789ab:  -> built"),
    Row("built", BUILT, FROM_SOURCE, {"acceptance_tools": tools(built="nccl-0123456789ab|")}, "pass",
        "nccl-0123456789ab"),
    Row("built from another archive", BUILT, FROM_SOURCE, {"acceptance_tools": tools(built="nccl-ffff|")}, "fail",
        "not built"),
    Row("its libraries are gone", BUILT, FROM_SOURCE,
        {"acceptance_tools": tools(built="nccl-0123456789ab|libnccl.so.2 libcudart.so.12 ")}, "fail",
        "does not find libnccl.so.2, libcudart.so.12", "install the libraries"),
    Row("a compiler", BUILDABLE, FROM_SOURCE, {}, "pass", "/usr/local/cuda/bin/nvcc, for nccl"),
    Row("no compiler", BUILDABLE, FROM_SOURCE, {"acceptance_build": ""}, "fail", "no nvcc", "cuda_toolkit"),
    Row("no compiler, and nothing to do", BUILDABLE, FROM_SOURCE,
        {"acceptance_build": "", "acceptance_tools": tools(built="nccl-0123456789ab|")}, "n/a",
        "nothing is to be built"),
    Row("no MPI to build with", BUILDABLE, MPI, {"acceptance_mpicc": ""}, "fail", "no mpicc", "libopenmpi-dev"),
    Row("MPI", BUILDABLE, MPI, {}, "pass", "for nccl"),
    Row("built, and without MPI", BUILT, MPI, {"acceptance_tools": tools(built="nccl-0123456789ab|")}, "fail",
        "not built: /opt/gpuprov/acceptance/nccl-0123456789ab-mpi", "gpuprov apply"),
    Row("never accepted", RESULT, None, {}, "skip", "never accepted: gpuprov accept"),
    Row("good figures", RESULT, WRITE, {"acceptance_result": record(write_bw(391.2))}, "pass",
        "1 figure, the oldest 3 hours ago"),
    Row("below what is published", RESULT, WRITE, {"acceptance_result": record(write_bw(389.9), age=3 * 86400)},
        "fail", "write_bw: mlx5_0 to gpu2 mlx5_0: 389.9 Gb/s, 3 days ago", "then gpuprov accept"),
    Row("good for the catalogue, missed by the spec, and one more", RESULT, STRICT,
        {"acceptance_result": record(write_bw(394.99), LATENCY)}, "fail", "394.99 Gb/s, 3 hours ago; and 1 more",
        "gpuprov accept"),
    Row("latency", RESULT, STRICT, {"acceptance_result": record(write_bw(396), LATENCY)}, "fail", "2.6 us",
        "CPU governor"),
    Row("no figure", RESULT, WRITE,
        {"acceptance_result": record(write_bw(0, problem="Couldn't connect to 10.0.0.2:21001"))}, "fail",
        "Couldn't connect", "gpuprov accept"),
    Row("figures of tests that are no longer asked for", RESULT, Acceptance(rdma=RdmaTests(tests=("ping",))),
        {"acceptance_result": record(write_bw(1))}, "skip", "nothing that the spec now asks for"),
    Row("a cut file", RESULT, None, {"acceptance_result": '{"measurements":[{"te'}, "fail", "acceptance.json: ",
        "gpuprov accept"),
    Row("a GPU failed", RESULT, None, {"acceptance_result": record(DIAG)}, "fail", "memory: Fail on GPU 3 (ECC)",
        "Xid"),
]  # fmt: skip


@run_each("row", ROWS, ids=lambda row: row.name)
def test_checks(row: Row) -> None:
    ask_row(row)


@run_each(
    ("block", "found", "status"),
    [
        (Acceptance(), BUSBW, "fail"),
        (Acceptance(nccl=Nccl(busbw=450)), BUSBW, "pass"),
        (Acceptance(),
            Measurement(test="all_reduce_perf", value=100, unit="GB/s", model="H100-SXM5-80GB", gpus=8, size=1 << 30),
            "pass"),
        (Acceptance(),
            Measurement(test="all_reduce_perf", value=100, unit="GB/s", model="H100-SXM5-80GB", gpus=4, size=1 << 34),
            "pass"),
        (Acceptance(), COPY, "fail"),
        (Acceptance(nvbandwidth=NvBandwidth(bandwidth={COPY.test: 300})), COPY, "pass"),
        (Acceptance(nccl=Nccl(across=True, across_busbw=48)),
            Measurement(test="across.all_reduce_perf", value=47.9, unit="GB/s"), "fail"),
        (Acceptance(nccl=Nccl(across=True, gpudirect=True)),
            Measurement(test="across.all_reduce_perf", value=48, unit="GB/s", detail="by NET/IB"), "fail"),
        (Acceptance(nccl=Nccl(across=True, gpudirect=True)),
            Measurement(test="across.all_reduce_perf", value=48, unit="GB/s", gdrdma=True), "pass"),
        (Acceptance(nccl=Nccl(loopback=True, loopback_busbw=48)),
            Measurement(test="loopback.all_reduce_perf", value=47.9, unit="GB/s", model="H100-SXM5-80GB", gpus=8),
            "fail"),
        (Acceptance(nccl=Nccl(loopback=True)),
            Measurement(test="loopback.all_reduce_perf", value=1, unit="GB/s", model="H100-SXM5-80GB", gpus=8), "pass"),
        (Acceptance(stream=Stream(seconds=30, bandwidth=400)), Measurement(test="stream", value=399.9, unit="GB/s"),
            "fail"),
        (Acceptance(stream=Stream(seconds=30, bandwidth=400)), Measurement(test="stream", value=400, unit="GB/s"),
            "pass"),
        (Acceptance(stream=Stream(seconds=30)), Measurement(test="stream", value=1, unit="GB/s"), "pass"),
        (Acceptance(stream=Stream(seconds=30)), Measurement(test="stream", problem="too short"), "error"),
        (Acceptance(), Measurement(test="dcgm", value=7, unit="tests passed"), "pass"),
        (Acceptance(), Measurement(test="dcgm", problem="it did not end in time"), "error"),
        (Acceptance(), Measurement(test="ping", value=20, unit="% lost", peer="gpu2"), "fail"),
        (Acceptance(), Measurement(test="ping", value=0, unit="% lost", peer="gpu2"), "pass"),
        (Acceptance(rdma=RdmaTests(latency=3)), Measurement(test="pingpong", value=3.01, unit="us", peer="gpu2"),
            "fail"),
        (Acceptance(rdma=RdmaTests(latency=3)), Measurement(test="pingpong", value=3, unit="us", peer="gpu2"), "pass"),
        # eRDMA reports 100 Gb/s of every port; its link layer is Ethernet, of which no floor is published.
        (Acceptance(), write_bw(21, layer="Ethernet", rate=100), "pass"),
        (Acceptance(), write_bw(300, size=65536), "pass"),
        (Acceptance(), write_bw(94.9, rate=100), "fail"),
        (Acceptance(), write_bw(359.9, memory="gpu"), "fail"),
        (Acceptance(), write_bw(360, memory="gpu"), "pass"),
        (Acceptance(rdma=RdmaTests(bandwidth=45)), write_bw(44.99, layer="Ethernet", rate=100), "fail"),
    ],
)  # fmt: skip
def test_a_figure_is_held_to_the_specs_threshold_or_to_what_is_published(
    block: Acceptance, found: Measurement, status: str
) -> None:
    verdict = judge(block, found)
    assert verdict.status == status, verdict
    assert verdict.expected
    assert verdict.fix or status == "pass"


def test_dcgm_is_held_to_its_own_verdict() -> None:
    ended = Measurement(test="dcgm", problem="it did not end in time")
    assert judge(Acceptance(), ended).expected == judge(Acceptance(), DIAG).expected == DIAGNOSED
    assert judge(Acceptance(), msgspec.structs.replace(ended, test="write_bw")).expected == "a figure"


def test_an_expectation_says_where_it_was_published() -> None:
    assert "azurehpc-health-checks" in judge(Acceptance(), BUSBW).origin
    assert judge(Acceptance(nccl=Nccl(busbw=470)), BUSBW).origin == ""


def test_the_probe_knows_the_catalogues_programs() -> None:
    known = {name for tool in catalogue.read_acceptance_file().tools for name in tool.programs}
    known |= {acceptance.program for acceptance in catalogue.read_acceptance_file().builds}
    assert known <= set(acceptance.PROGRAMS.split())


def test_every_level_of_dcgm_has_a_time() -> None:
    from gpuprov.accept.single import DIAG_SECONDS

    assert set(DIAG_SECONDS) == set(range(1, 5))
    assert DcgmDiag().level in DIAG_SECONDS


@run_each(
    ("model", "busbw", "said"),
    [
        ("A100-SXM4-80GB", 900, "the NVLinks of A100-SXM4-80GB have 600 GB/s in both directions together"),
        ("A100-SXM4-80GB", 230, ""),
        ("H100-SXM5-80GB", 480, ""),
        ("B200", 2500, "the NVLinks of B200 have"),
        ("H800-SXM", 450, "the NVLinks of H800-SXM have 425.6 GB/s"),
        ("L40S", 100, "L40S has no NVLink: NCCL's path is PCIe, with 31.5 GB/s at most, and host memory"),
        ("L40S", 20, ""),
        ("A100-PCIE-80GB", 900, ""),
        ("", 900, ""),
    ],
)
def test_a_bus_bandwidth_that_the_gpus_links_cannot_have(model: str, busbw: float, said: str) -> None:
    spec = HostSpec(name="gpu1", gpu=GpuSpec(model=model, count=8) if model else None)
    found = list(rules(spec, Acceptance(nccl=Nccl(busbw=busbw))))
    assert [one for one in found if said in one.message and "acceptance.nccl.busbw is" in one.message] == found
    assert len(found) == bool(said)


SUM = "0123456789abcdef" * 4
ASKED_BUILD = Acceptance(nccl=Nccl(source=Source(url="https://mirror.example/nccl-tests.tar.gz", sha256=SUM)))
ROCKY = 'ID="rocky"\nID_LIKE="rhel centos fedora"\nVERSION_ID="9.4"\n'
SLES = 'ID="sles"\nID_LIKE="suse"\nVERSION_ID="15.6"\n'


def made(block: Acceptance, **changed: str) -> dict[str, Any]:
    told = {"acceptance_packages": "native|amd64\n", "acceptance_tools": tools(), "rdma_devices": "", **changed}
    return dict(DESIRED.make(contexts.context("acceptance", contexts.spec(acceptance=block), told)))


@run_each(
    ("release", "there", "expected"),
    [
        ("", "native|amd64\n", ["build-essential", "libnccl-dev"]),
        ("", "native|amd64\nii |build-essential|12.9|build-essential|amd64\n", ["libnccl-dev"]),
        (ROCKY, "", ["gcc-c++", "make", "libnccl-devel"]),
        (SLES, "", []),
    ],
)
def test_what_a_build_needs(release: str, there: str, expected: list[str]) -> None:
    changed = {"os_release": release} if release else {}
    found = made(
        ASKED_BUILD, **changed, **({"acceptance_packages": there} if there else {"acceptance_packages": "redhat|\n"})
    )
    assert found["install"] == expected


@run_each("release", ["", ROCKY, SLES])
def test_stress_ng_is_installed_where_stream_is_asked_for(release: str) -> None:
    changed = {"os_release": release, "acceptance_packages": "redhat|\n"} if release else {}
    assert made(Acceptance(stream=Stream(seconds=30)), **changed)["install"] == ["stress-ng"]
    assert made(Acceptance(), **changed)["install"] == []


def test_what_is_built() -> None:
    folder = "/opt/gpuprov/acceptance/nccl-0123456789ab"
    tasks = made(ASKED_BUILD)["tasks"]
    (one,), (fetched,) = tasks["tool_build"], tasks["fetch"]
    assert (one["folder"], one["program"], one["mpi"]) == (folder, "all_reduce_perf", False)
    assert one["archive"] == fetched["path"]
    assert (fetched["path"], fetched["url"], fetched["file"], fetched["sha256"], fetched["of"]) == (
        f"{folder}.archive", "https://mirror.example/nccl-tests.tar.gz", "", SUM, "acceptance.nccl.source",
    )  # fmt: skip
    assert made(ASKED_BUILD, acceptance_tools=tools(built="nccl-0123456789ab|"))["tasks"]["tool_build"] == []
    source = Source(file="/srv/a.tar", sha256=SUM)
    both = Acceptance(nccl=Nccl(source=source, across=True), nvbandwidth=NvBandwidth(source=source))
    assert [
        [one[key] for key in ("name", "folder", "program", "mpi")] for one in made(both)["tasks"]["tool_build"]
    ] == [
        ["nccl", f"{folder}-mpi", "all_reduce_perf", True],
        ["nvbandwidth", "/opt/gpuprov/acceptance/nvbandwidth-0123456789ab", "nvbandwidth", False],
    ]
    assert {"cmake", "libboost-program-options-dev", "libnccl-dev"} <= set(made(both)["install"])


def test_tools_between_hosts_are_for_hosts_with_a_fabric() -> None:
    block = Acceptance(rdma=RdmaTests(tests=("write_bw", "ping")))
    assert made(block)["install"] == []
    device = good()["rdma_devices"]
    assert isinstance(device, str)
    assert made(block, rdma_devices=device)["install"] == ["perftest", "rdmacm-utils", "infiniband-diags"]


def test_the_probe_knows_every_package_of_the_catalogue() -> None:
    known = catalogue.read_acceptance_file()
    assert {one.debian for one in known.tools} | {name for one in known.builds for name in one.debian} == set(
        acceptance.DEBIAN
    )
    rpm = {name for one in known.tools for name in (one.redhat, one.suse) if name}
    assert rpm | {name for one in known.builds for name in one.redhat} == set(acceptance.RPM)


def test_a_name_with_a_plus_is_found_among_rpms() -> None:
    line = "rpm|gcc-c++|0|11.4.1|3.el9|x86_64|gcc-11.4.1-3.el9.src.rpm"
    script = acceptance.PACKAGES.script
    assert "gcc-c[+][+]" in script
    pattern = next(part for part in script.split("'") if "gcc-c[+][+]" in part)
    assert subprocess.run(["grep", "-E", pattern], input=line, capture_output=True, text=True, check=False).stdout
