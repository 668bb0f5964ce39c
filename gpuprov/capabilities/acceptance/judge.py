"""A measurement against the thresholds of a spec, or else against the catalogue's expectation."""

from typing import Literal

import msgspec

from gpuprov.capabilities.acceptance.fragment import Acceptance
from gpuprov.catalog import acceptance as catalogue
from gpuprov.facts.probes.acceptance import Measurement

Kind = Literal["rdma", "nccl", "nvbandwidth", "dcgm", "stream"]
# The prefix of a test of nccl-tests over all hosts, before its own name: `across.all_reduce_perf`.
ACROSS = "across"
# The prefix of a test over the HCAs of one host.
LOOPBACK = "loopback"
DIAGNOSED = "every test of DCGM's diagnostics passes"
FIXES: dict[str, str] = {
    "bw": "see the port (ibstat, ethtool), its PCIe link (gpuprov topology) and errors (ibqueryerrors, ethtool -S), "
    "then run it alone",
    "lat": "see the CPU governor and its idle states, the switches between the hosts, and what else runs on them",
    "ping": "see the subnet manager, or the addresses and the firewall (UDP 4791 for RoCE v2) between the hosts",
    "nccl": "nvidia-smi nvlink -s, nvidia-smi topo -m, gpuprov verify; NCCL_DEBUG=INFO shows what NCCL takes",
    "nvbandwidth": "see the GPUs' PCIe links (gpuprov topology), ACS and IOMMU, nvidia-smi nvlink -s",
    "dcgm": "see the GPU that is named: nvidia-smi -q, dmesg for Xid; dcgmi diag again, at that level",
    "stream": "see its DIMMs (dmidecode -t memory: a slot that is empty or slow), NUMA in the firmware, and what "
    "else runs there",
}


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict on a figure."""

    status: Literal["pass", "fail", "skip", "error"]
    # In words.
    expected: str = ""
    fix: str = ""
    # Where an expectation was published, empty for the spec's own.
    origin: str = ""
    threshold: float = 0.0


def kind(test: str) -> Kind:
    """Return the part of the block that a test belongs to."""
    if test in ("dcgm", "stream"):
        return "dcgm" if test == "dcgm" else "stream"
    if test.endswith("_perf"):  # also across.all_reduce_perf, loopback.all_reduce_perf
        return "nccl"
    return "rdma" if test.endswith(("_bw", "_lat")) or test in ("ping", "pingpong") else "nvbandwidth"


def judge(block: Acceptance, measurement: Measurement) -> Verdict:
    """Return the verdict by a host's block. A figure with neither threshold nor expectation passes."""
    part = kind(measurement.test)
    name = {"rdma": measurement.test.rpartition("_")[2] or measurement.test}.get(part, part)
    fix = FIXES.get("ping" if measurement.test == "ping" else "lat" if name == "pingpong" else name, "")
    if measurement.skipped:
        return Verdict(status="skip", expected=measurement.skipped)
    if measurement.problem:
        expected = DIAGNOSED if part == "dcgm" else "a figure"
        return Verdict(status="fail" if part == "dcgm" and measurement.unit else "error", expected=expected, fix=fix)
    if part == "dcgm":
        return Verdict(status="pass", expected=DIAGNOSED)
    if part == "stream":
        return _judge_minimum(measurement.value, block.stream.bandwidth, None, "GB/s", fix)
    if part == "rdma":
        return _judge_pair(block, measurement, fix)
    return _judge_gpus(block, measurement, fix)


def _judge_pair(block: Acceptance, measurement: Measurement, fix: str) -> Verdict:
    if measurement.test == "ping":
        status: Literal["pass", "fail"] = "fail" if measurement.value > 0 else "pass"
        return Verdict(status=status, expected="no ping lost", fix=fix)
    if measurement.test.endswith("_bw"):
        floor = (
            catalogue.link_floor(measurement.layer, measurement.rate, measurement.memory, measurement.size)
            if measurement.test == "write_bw"
            else None
        )
        return _judge_minimum(measurement.value, block.rdma.bandwidth, floor, "Gb/s", fix)
    if not block.rdma.latency:
        return Verdict(status="pass", expected="any latency")
    good = measurement.value <= block.rdma.latency
    expected = f"at most {block.rdma.latency:g} us"
    return Verdict(status="pass" if good else "fail", expected=expected, fix=fix, threshold=block.rdma.latency)


def _judge_gpus(block: Acceptance, measurement: Measurement, fix: str) -> Verdict:
    where, _, test = measurement.test.rpartition(".")
    if where == LOOPBACK:
        return _judge_minimum(measurement.value, block.nccl.loopback_busbw, None, "GB/s", f"{FIXES['bw']}; {fix}")
    across = where == ACROSS
    if across and block.nccl.gpudirect and not measurement.gdrdma:
        return Verdict(
            status="fail",
            expected="NCCL between hosts by NET/IB with GDRDMA",
            fix=f"gpudirect_rdma in the spec, gpuprov verify; {fix}",
        )
    if across:
        return _judge_minimum(measurement.value, block.nccl.across_busbw, None, "GB/s", fix)
    if kind(test) == "nccl":
        floor = catalogue.find_busbw_floor(measurement.model, measurement.gpus, test, str(measurement.size))
        return _judge_minimum(measurement.value, block.nccl.busbw, floor, "GB/s", fix)
    floor = catalogue.copy_floor(measurement.model, measurement.gpus, test)
    return _judge_minimum(measurement.value, block.nvbandwidth.bandwidth.get(test, 0.0), floor, "GB/s", fix)


def _judge_minimum(value: float, threshold: float, floor: catalogue.Floor | None, unit: str, fix: str) -> Verdict:
    """Return the verdict by the spec's threshold if it has one, else by the catalogue's."""
    least, origin = (threshold, "") if threshold or floor is None else (floor.value, floor.origin)
    if not least:
        return Verdict(status="pass", expected="any bandwidth: neither the spec nor the catalogue has a threshold")
    expected = f"at least {least:g} {unit}" + (f" (published: {origin})" if origin else "")
    return Verdict(
        status="pass" if value >= least else "fail", expected=expected, fix=fix, origin=origin, threshold=least
    )


def describe_measurement(measurement: Measurement) -> str:
    """Return a measurement in words, without its host."""
    route = (
        f"{measurement.device} to {measurement.peer} {measurement.peer_device}: ".replace("  ", " ")
        if measurement.peer
        else ""
    )
    if measurement.skipped or measurement.problem:
        return f"{route}{measurement.skipped or measurement.problem}"
    figure = f"{measurement.value:g} {measurement.unit}".strip()
    return f"{route}{figure}" + (f", {measurement.detail}" if measurement.detail else "")


def named(measurement: Measurement) -> str:
    """Return a measurement's test, and its endpoints."""
    return (
        f"{measurement.test} {measurement.device} to {measurement.peer} {measurement.peer_device}".strip()
        if measurement.peer
        else measurement.test
    )
