"""Rules for `acceptance` that hold on any host: thresholds that something judges, sources that can be checked."""

from collections.abc import Iterable

from gpuprov.capabilities.acceptance.fragment import Acceptance, NvBandwidth, Source
from gpuprov.catalog import gpus, topology
from gpuprov.spec import named
from gpuprov.spec.model import HostSpec
from gpuprov.spec.problem import Path, Problem, report_under

HERE = "acceptance"
problem = report_under(HERE)
# Seconds of stream: it reports a rate after 4.5 of its own (stress-stream.c), and a busy host starts late.
LEAST = 10


def rules(host: HostSpec, block: Acceptance) -> Iterable[Problem]:
    yield from _check_pairs(host, block)
    yield from _check_nccl(host, block)
    yield from _check_copies(block.nvbandwidth)
    yield from _check_stream(block)
    yield from _check_source((HERE, "nccl", "source"), block.nccl.source, block.nccl.path)
    yield from _check_source((HERE, "nvbandwidth", "source"), block.nvbandwidth.source, block.nvbandwidth.path)


def _check_pairs(host: HostSpec, block: Acceptance) -> Iterable[Problem]:
    rdma = block.rdma
    twice = sorted({test for test in rdma.tests if rdma.tests.count(test) > 1})
    if twice:
        fix = f"each test once: {', '.join(dict.fromkeys(rdma.tests))}"
        yield problem("rdma.tests", f"names {', '.join(twice)} twice", fix)
    if rdma.bandwidth and not any(test.endswith("_bw") for test in rdma.tests):
        yield _report_unjudged("rdma", "bandwidth", f"{rdma.bandwidth:g} Gb/s", "write_bw, read_bw or send_bw in tests")
    if rdma.latency and not any(test.endswith("_lat") or test == "pingpong" for test in rdma.tests):
        yield _report_unjudged(
            "rdma", "latency", f"{rdma.latency:g} us", "write_lat, read_lat, send_lat or pingpong in tests"
        )
    fabric = host.capabilities.get("rdma")
    rate = getattr(fabric, "rate", 0)
    if rate and rdma.bandwidth > rate:
        message = f"is {rdma.bandwidth:g} Gb/s, and rdma.rate is {rate}"
        yield problem("rdma.bandwidth", message, f"allowed: less than {rate}, in Gb/s (not GB/s)")
    if "pingpong" in rdma.tests and getattr(fabric, "fabric", "") == "iwarp":
        message = "has pingpong, and rdma.fabric is iwarp: ibv_rc_pingpong does not connect by rdma_cm"
        yield problem("rdma.tests", message, "send_lat instead, or ping")
    if rdma.memory == "gpu" and "gpudirect_rdma" not in host.capabilities:
        message = "is gpu, and the spec has no gpudirect_rdma"
        yield problem("rdma.memory", message, "add gpudirect_rdma: {}, or memory: host")


def _check_nccl(host: HostSpec, block: Acceptance) -> Iterable[Problem]:
    nccl = block.nccl
    if nccl.test == "none":
        figures = {"busbw": nccl.busbw, "across_busbw": nccl.across_busbw, "loopback_busbw": nccl.loopback_busbw}
        for field, value in figures.items():
            if value:
                yield _report_unjudged("nccl", field, f"{value:g} GB/s", "a test instead of none")
        for field in [name for name in ("across", "loopback") if getattr(nccl, name)]:
            yield problem(("nccl", field), "without a test", "a test instead of none")
        return
    for field, given in (("across_busbw", nccl.across_busbw), ("gpudirect", nccl.gpudirect)):
        if given and not nccl.across:
            yield problem(("nccl", field), "is judged over all hosts, and across is false", "across: true")
    yield from _check_gpu_bandwidth(host, nccl.busbw)
    if nccl.loopback_busbw and not nccl.loopback:
        yield problem("nccl.loopback_busbw", "is judged over a host's HCAs, and loopback is false", "loopback: true")
    if (nccl.busbw or nccl.across or nccl.loopback) and getattr(host.capabilities.get("mig"), "mode", "") == "enabled":
        message = "acceptance.nccl contradicts mig: GPUs in MIG mode have no peer-to-peer copies, which NCCL needs"
        yield Problem(
            path=(HERE, "nccl", "test"), message=message, fix="nccl: {test: none}, or accept before MIG is set up"
        )


def _check_gpu_bandwidth(host: HostSpec, busbw: float) -> Iterable[Problem]:
    """Yield a problem of a bus bandwidth that the GPUs' own links cannot have."""
    gpu = gpus.find_gpu(host.gpu.model) if host.gpu else None
    links, lanes = topology.nvlink_limit(gpu), topology.pcie_limit(gpu)
    if gpu and links and busbw > links:
        message = f"is {busbw:g} GB/s, and the NVLinks of {gpu.key} have {links:g} GB/s in both directions together"
        yield problem(
            "nccl.busbw",
            message,
            "a figure that such a host was measured with, or 0: NCCL's busbw is well below half of it",
        )
    if gpu and lanes and busbw > lanes:
        message = (
            f"is {busbw:g} GB/s, and {gpu.key} has no NVLink: NCCL's path is PCIe, with {lanes:g} GB/s at most, and "
            "host memory from one socket to the other"
        )
        yield problem("nccl.busbw", message, "a figure that such a host was measured with, or 0")


def _check_copies(nvbandwidth: NvBandwidth) -> Iterable[Problem]:
    for case, value in nvbandwidth.bandwidth.items():
        if case not in nvbandwidth.tests:
            message = f"acceptance.nvbandwidth.bandwidth has {value:g} GB/s for {case}, which is not among its tests"
            fix = f"add it to tests; these are: {', '.join(nvbandwidth.tests) or 'none'}"
            yield Problem(path=(HERE, "nvbandwidth", "bandwidth", case), message=message, fix=fix)


def _check_stream(block: Acceptance) -> Iterable[Problem]:
    stream = block.stream
    if 0 < stream.seconds < LEAST:
        message = f"is {stream.seconds}: stress-ng tells no rate so soon"
        yield problem("stream.seconds", message, f"0, or {LEAST} and more")
    if stream.bandwidth and not stream.seconds:
        yield _report_unjudged("stream", "bandwidth", f"{stream.bandwidth:g} GB/s", "seconds: 30")


def _check_source(place: Path, source: Source, folder: str) -> Iterable[Problem]:
    name = ".".join(str(part) for part in place)
    given = source.url or source.file
    if source.url and source.file:
        yield Problem(path=place, message=f"{name} has url and file", fix="one of the two")
    if given and not source.sha256:
        fix = "sha256sum of the archive that you have looked at: 64 hexadecimal digits"
        yield Problem(path=place, message=f"{name} has no sha256", fix=fix)
    if source.sha256 and not given:
        yield Problem(path=place, message=f"{name} has a sha256 and no archive", fix="add url or file")
    if given and folder:
        message = f"{name} is built, and {name.removesuffix('.source')}.path names programs that are there"
        yield Problem(path=place, message=message, fix="one of the two: programs that gpuprov builds need no path")
    if source.file and (why := named.explain_unusable(source.file, source.sha256)):
        message = f"{name}.file {source.file} {why}"
        yield Problem(path=(*place, "file"), message=message, fix="put the archive there, or give its url")


def _report_unjudged(part: str, field: str, value: str, fix: str) -> Problem:
    message = f"acceptance.{part}.{field} is {value}, and no test is asked for that measures it"
    return Problem(path=(HERE, part, field), message=message, fix=fix)
