"""The `acceptance` block."""

from typing import Annotated, Literal

import msgspec

from gpuprov.catalog import acceptance as catalogue
from gpuprov.spec.described import describe
from gpuprov.spec.model import Fragment
from gpuprov.spec.url import build_pattern

PairTest = Literal["write_bw", "read_bw", "send_bw", "write_lat", "read_lat", "send_lat", "pingpong", "ping"]
Collective = Literal[
    "none",
    "all_reduce_perf",
    "all_gather_perf",
    "reduce_scatter_perf",
    "alltoall_perf",
    "broadcast_perf",
    "reduce_perf",
    "sendrecv_perf",
]
Case = Annotated[str, describe("a test case, as `nvbandwidth --list` names it", pattern=r"^[a-z0-9_]+$")]
Threshold = Annotated[float, msgspec.Meta(ge=0)]


class Source(Fragment, frozen=True):
    """An archive (tar) from which a tool is built on the host; empty: the tool is not built, but used from where it is
    installed."""

    url: Annotated[
        str,
        describe(
            "https://HOST/PATH or http://HOST/PATH, without user name, password and "
            "query (a signed link runs out: fetch it, and name the file); the hosts fetch it",
            pattern=build_pattern(),
        ),
    ] = ""
    file: Annotated[
        str, describe("instead of url: a file on the machine that runs gpuprov", pattern=r"^(/[^\s]+)?$")
    ] = ""
    sha256: Annotated[str, describe("the archive's SHA-256, 64 hexadecimal digits", pattern=r"^([0-9a-f]{64})?$")] = ""


class RdmaTests(Fragment, frozen=True):
    """Tests between pairs of hosts, on every rail: perftest, ibv_rc_pingpong, ibping or rping."""

    tests: Annotated[
        tuple[PairTest, ...],
        describe("which tests, in this order; `ping` is ibping on InfiniBand and rping elsewhere; []: none"),
    ] = ("write_bw", "send_lat", "ping")
    bandwidth: Annotated[
        Threshold, describe("Gb/s, average, that each *_bw test must reach; 0: what is published for the link")
    ] = 0.0
    latency: Annotated[
        Threshold, describe("us, typical, that no *_lat test (and half a round trip of pingpong) may exceed; 0: any")
    ] = 0.0
    size: Annotated[int, describe("bytes of a message of a *_bw test", ge=1, le=1 << 30)] = 1 << 20
    duration: Annotated[int, describe("seconds of a *_bw test", ge=5, le=600)] = 5
    iterations: Annotated[int, describe("messages of a *_lat test and of pingpong", ge=5, le=100_000_000)] = 1000
    memory: Annotated[
        Literal["host", "gpu"],
        describe("whose memory *_bw tests move: gpu is GPUDirect RDMA, with the GPU nearest to the HCA"),
    ] = "host"


class Nccl(Fragment, frozen=True):
    """A test of nccl-tests over all GPUs of a host, and over all hosts if MPI is installed."""

    test: Annotated[Collective, describe("which program of nccl-tests; none: no test")] = "all_reduce_perf"
    size: Annotated[str, describe("the message size: 16G, 512M", pattern=r"^[1-9][0-9]{0,9}[KMG]?$")] = "16G"
    busbw: Annotated[Threshold, describe("GB/s of bus bandwidth within a host; 0: what is published for its GPUs")] = (
        0.0
    )
    across: Annotated[bool, describe("whether it also runs over all hosts of an acceptance, by mpirun")] = False
    across_busbw: Annotated[Threshold, describe("GB/s of bus bandwidth over all hosts; 0: any")] = 0.0
    gpudirect: Annotated[
        bool, describe("whether NCCL must use NET/IB with GDRDMA over all hosts; NET/Socket is a failure")
    ] = False
    loopback: Annotated[
        bool, describe("whether it also runs within each host over the HCAs (NET/IB), without NVLink and shared memory")
    ] = False
    loopback_busbw: Annotated[Threshold, describe("GB/s of bus bandwidth over a host's own HCAs; 0: any")] = 0.0
    path: Annotated[
        str, describe("the folder of its programs, where they are not in PATH", pattern=r"^(/[^\s]+)?$")
    ] = ""
    source: Source = Source()


class NvBandwidth(Fragment, frozen=True):
    """Copies between host and GPUs, and between GPUs, by NVIDIA's nvbandwidth."""

    tests: Annotated[tuple[Case, ...], describe("which test cases, by name; []: none")] = (
        "host_to_device_memcpy_ce",
        "device_to_host_memcpy_ce",
        "device_to_device_memcpy_read_ce",
    )
    bandwidth: Annotated[
        dict[Case, Threshold],
        describe("GB/s that each copy of a test case must reach; others: what is published for the GPUs"),
    ] = {}
    path: Annotated[str, describe("the folder of nvbandwidth, where it is not in PATH", pattern=r"^(/[^\s]+)?$")] = ""
    source: Source = Source()


class DcgmDiag(Fragment, frozen=True):
    """DCGM's diagnostics, if DCGM is installed."""

    level: Annotated[
        int, describe("dcgmi diag -r: 1 seconds, 2 minutes, 3 half an hour, 4 hours; 0: not run", ge=0, le=4)
    ] = 1


class Stream(Fragment, frozen=True):
    """The CPUs' memory bandwidth: STREAM's copy, scale, add and triad on all CPUs at once, as reported by stress-ng."""

    WHEN_PRESENT = {"seconds": 30}

    seconds: Annotated[
        int,
        describe(
            "how long, at least 10: stress-ng tells no rate sooner; 0: not run. 30 where stream is there", ge=0, le=600
        ),
    ] = 0
    bandwidth: Annotated[
        Threshold, describe("GB/s, read and written by all CPUs together, that it must reach; 0: any")
    ] = 0.0


class Acceptance(Fragment, frozen=True):
    """The tests of `gpuprov accept`, and their thresholds. None of them runs by itself.

    Packages of the tests between hosts are installed if the host has an RDMA device, stress-ng if stream is enabled;
    nccl-tests and nvbandwidth are built if the spec names their source.
    """

    rdma: RdmaTests = RdmaTests()
    nccl: Nccl = Nccl()
    nvbandwidth: NvBandwidth = NvBandwidth()
    dcgm: DcgmDiag = DcgmDiag()
    stream: Stream = Stream()


def folder_of(block: Acceptance, name: Literal["nccl", "nvbandwidth"]) -> str:
    """Return the folder of a tool built from source; nccl-tests with MPI has another than without."""
    if name == "nccl":
        return catalogue.name_folder(name, block.nccl.source.sha256) + ("-mpi" if block.nccl.across else "")
    return catalogue.name_folder(name, block.nvbandwidth.source.sha256)


def program_of(test: str, layer: str = "Ethernet") -> str:
    """Return the program of a test between two hosts."""
    if test == "ping":
        return "ibping" if layer == "InfiniBand" else "rping"
    return "ibv_rc_pingpong" if test == "pingpong" else f"ib_{test}"


# The program of `stream`.
STRESS = "stress-ng"


def programs(block: Acceptance) -> tuple[str, ...]:
    """Return every program that the tests between two hosts may need on any fabric."""
    named = (program_of(test, layer) for test in block.rdma.tests for layer in ("InfiniBand", "Ethernet"))
    return tuple(dict.fromkeys(named))
