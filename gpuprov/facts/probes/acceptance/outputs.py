"""Strict parsers for perftest, ibv_rc_pingpong, ibping, rping, nccl-tests, nvbandwidth and dcgmi: truncated output
gives no value.

Every parser raises Unreadable with the line that explains the failure if the value is missing or incomplete.
"""

import json
import math
import re

import msgspec

from gpuprov.core.safe_parse import Tree
from gpuprov.host_code.json_members import Json


class Unreadable(Exception):
    """The output has no value; the message is the program's last line about it."""


class Collective(msgspec.Struct, frozen=True):
    """A run of nccl-tests: GB/s of bus bandwidth, and the networks between NCCL ranks on different hosts (`NET/IB`,
    `NET/Socket`)."""

    busbw: float
    networks: tuple[str, ...] = ()
    gdrdma: bool = False


class Diag(msgspec.Struct, frozen=True):
    """A run of DCGM's diagnostics: the number of tests that passed, and the failed tests with their reasons."""

    passed: int
    failed: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()


# https://github.com/linux-rdma/perftest/blob/master/src/perftest_parameters.h: RESULT_FMT_G, RESULT_FMT_LAT and their
# REPORT_FMT.
# A pair of ConnectX-7 with NDR (tests/real/connectx7-ndr-pair); the warning may stand between head and row:
#  #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]
# Conflicting CPU frequency values detected: 3295.212000 != 4999.302000. CPU Frequency is not max.
#  65536      5000             392.38             392.34             0.748336
_BW_HEAD = re.compile(r"^ ?#bytes +#iterations +BW peak\[Gb/sec\] +BW average\[Gb/sec\] +MsgRate\[Mpps\]")
_LAT_HEAD = re.compile(r"^ ?#bytes +#iterations +t_min\[usec\] +t_max\[usec\] +t_typical\[usec\] +t_avg\[usec\]")
_NUMBER = re.compile(r"^-?\d+(\.\d+)?\Z")


def bandwidth(text: str, size: int) -> float:
    """Parse the average Gb/s of one run of a perftest *_bw program with --report_gbits."""
    return _parse_row(text, _BW_HEAD, size, cells=5)[3]


def latency(text: str, size: int) -> float:
    """Parse the typical (median) latency in us of one run of a perftest *_lat program: half a round trip, as
    perftest reports it."""
    return _parse_row(text, _LAT_HEAD, size, cells=6)[4]


def _parse_row(text: str, head: re.Pattern[str], size: int, cells: int) -> list[float]:
    """Parse the one row of values below the head. Between the two, perftest may warn about the CPU frequency."""
    lines = text.splitlines()
    start = next((number for number, line in enumerate(lines) if head.match(line)), None)
    if start is None:
        raise Unreadable(complaint(text))
    for line in lines[start + 1 :]:
        words = line.split()
        if len(words) >= cells and words[0] == str(size) and all(_NUMBER.match(word) for word in words[:cells]):
            row = [float(word) for word in words]
            if row[3 if cells == 5 else 4] > 0:
                return row
    raise Unreadable(complaint(text))


# https://github.com/linux-rdma/rdma-core/blob/master/libibverbs/examples/rc_pingpong.c
# 1000 iters in 0.01 seconds = 6.90 usec/iter
_ITERATIONS = re.compile(r"^\d+ iters in [\d.]+ seconds = ([\d.]+) usec/iter$", re.MULTILINE)


def pingpong(text: str) -> float:
    """Parse half a round trip of ibv_rc_pingpong in us; it prints the full round trip."""
    match = _ITERATIONS.search(text)
    if match is None:
        raise Unreadable(complaint(text))
    return float(match[1]) / 2


# https://github.com/linux-rdma/rdma-core/blob/master/infiniband-diags/ibping.c
# 1 packets transmitted, 1 received, 0% packet loss, time 1000 ms
_IBPING = re.compile(r"^(\d+) packets transmitted, (\d+) received, (\d+)% packet loss", re.MULTILINE)


def ibping(text: str, count: int) -> int:
    """Count the answered pings of ibping; `count` were sent."""
    match = _IBPING.search(text)
    if match is None or int(match[1]) != count:
        raise Unreadable(complaint(text))
    return int(match[2])


def rping(text: str) -> int:
    """Count the pings that rping -v shows as answered."""
    # https://github.com/linux-rdma/rdma-core/blob/master/librdmacm/examples/rping.c
    # ping data: rdma-ping-0: ABCDEFGHIJKLMNOPQRSTUVWXYZ[\]^_`abcdefghijklmnopqr
    return len(re.findall(r"^ping data: rdma-ping-\d+: ", text, re.MULTILINE))


# https://github.com/NVIDIA/nccl-tests/blob/master/src/common.cu; NCCL_DEBUG=INFO says `[receive] via NET/IB/0/GDRDMA`,
# with a plugin NET/IBext_v8 (https://github.com/NVIDIA/nccl/issues/1453); what it sends may go without GDRDMA where it
# does not read GPU memory (https://github.com/NVIDIA/nccl-tests/issues/36).
# # Avg bus bandwidth    : 9.04853
# # Out of bounds values : 0 OK
_AVERAGE = re.compile(r"# Avg bus bandwidth +: ([0-9.eE+-]+)\s")
_WRONG = re.compile(r"# Out of bounds values : (\d+) (\w+)")
_ROOM = re.compile(r"# Reducing maxBytes to (\d+) due to memory limitation")
_NETWORK = re.compile(r"\[(send|receive)\] via (NET/[\w ]+)/\d+(?:\([^)]*\))?((?:/\w+)*)")


def collective(text: str) -> Collective:
    """Parse the bus bandwidth of the one message size, the mean of out-of-place and in-place; wrong results give no
    value."""
    average, wrong = _AVERAGE.search(text + "\n"), _WRONG.search(text)
    if average is None or wrong is None:
        room = _ROOM.search(text)
        raise Unreadable(
            f"the GPUs' memory has room for messages of {room[1]} bytes at most" if room else complaint(text)
        )
    if int(wrong[1]) or wrong[2] != "OK":
        raise Unreadable(f"{wrong[1]} values are wrong: the GPUs, or what is between them, corrupt data")
    value = float(average[1])
    if not math.isfinite(value) or value <= 0:
        raise Unreadable(f"the bus bandwidth is {average[1]}; one GPU alone has none")
    channels = _NETWORK.findall(text)
    received = [more for way, _, more in channels if way == "receive"]
    networks = tuple(sorted({name for _, name, _ in channels}))
    return Collective(value, networks, bool(received) and all("GDRDMA" in more for more in received))


# https://github.com/ColinIanKing/stress-ng/blob/master/stress-stream.c: one rate of an instance in old versions, two in
# newer ones; MB are 1024 * 1024 bytes.
_STREAM = re.compile(
    r"stream: memory rate: ([0-9.]{1,20}) MB(?: read)?/sec(?:, ([0-9.]{1,20}) MB write/sec)?, .*instance (\d{1,6})\)"
)
_INSTANCES = re.compile(r"dispatching hogs: (\d{1,6}) stream\b")


def stream(text: str) -> tuple[float, int]:
    """Parse the GB/s that all instances of stress-ng's stream read and wrote together, and their number; none may be
    missing."""
    rows, dispatched = _STREAM.findall(text), _INSTANCES.search(text)
    rates = {int(number): _parse_rate(read) + _parse_rate(written or "0") for read, written, number in rows}
    if dispatched is None or len(rows) != len(rates) or sorted(rates) != list(range(int(dispatched[1]))) or not rates:
        raise Unreadable(complaint(text))
    value = sum(rates.values()) * (1 << 20) / 1e9
    if value <= 0:
        raise Unreadable(complaint(text))
    return round(value, 2), len(rates)


def _parse_rate(text: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise Unreadable(f"{text} is not a rate") from error


# https://github.com/NVIDIA/nvbandwidth/blob/main/json_output.cpp
def copies(text: str, test: str) -> float | None:
    """Parse the GB/s of the slowest copy of a test case of `nvbandwidth -j`; None if the case does not apply to the
    host."""
    root = _find_document(text, "nvbandwidth")["nvbandwidth"]
    if isinstance(root, dict) and root.get("error"):
        raise Unreadable(" ".join(str(root["error"]).split()))
    cases = root.get("testcases") if isinstance(root, dict) else None
    case = next((case for case in cases or () if isinstance(case, dict) and case.get("name") == test), None)
    if case is None:
        raise Unreadable(f"no test case {test} in the output")
    if case.get("status") == "Waived":
        return None
    if case.get("status") != "Passed":
        raise Unreadable(" ".join(f"{case.get('status')} {case.get('error', '')}".split()))
    cells = [cell for row in case.get("bandwidth_matrix") or () for cell in row]
    try:
        values = [float(cell) for cell in cells if cell != "N/A"]
    except (TypeError, ValueError) as error:
        raise Unreadable(f"the bandwidths of {test} are not numbers") from error
    if not values:
        raise Unreadable(f"{test} has no bandwidth")
    return min(values)


# DCGM 4: https://github.com/NVIDIA/DCGM/blob/master/testing/python3/test_utils.py (diag_verify_json); 3: nvvs,
# NvvsCommon.h
_DIAGNOSTICS = ("DCGM Diagnostic", "DCGM GPU Diagnostic")


def diagnostics(text: str) -> Diag:
    """Parse each test's result in `dcgmi diag -j` of DCGM 3 or 4. An unknown status is a failure."""
    root = _find_document(text, *_DIAGNOSTICS)
    body = next(root[name] for name in _DIAGNOSTICS if name in root)
    if not isinstance(body, dict) or body.get("runtime_error"):
        raise Unreadable(" ".join(str(body.get("runtime_error") if isinstance(body, dict) else body).split()))
    passed, failed, skipped = 0, [], []
    for category in body.get("test_categories") or ():
        for test in (category or {}).get("tests") or ():
            results = [result for result in (test or {}).get("results") or () if isinstance(result, dict)]
            statuses = [str(result.get("status", "")).casefold() for result in results]
            bad = [
                result
                for result in results
                if str(result.get("status", "")).casefold() not in ("pass", "skip", "skipped")
            ]
            if bad:
                failed.append(f"{test.get('name', 'a test')}: {_describe_failure(bad[0])}")
            elif "pass" in statuses:
                passed += 1
            elif test:
                skipped.append(str(test.get("name", "")))
    if not passed and not failed:
        raise Unreadable("DCGM ran no test: " + (", ".join(skipped) + " skipped" if skipped else complaint(text)))
    return Diag(passed, tuple(failed), tuple(skipped))


def _describe_failure(result: Tree) -> str:
    where = result.get("entity_id", result.get("gpu_ids", ""))
    warnings = result.get("warnings") or ()
    warnings = [warnings] if isinstance(warnings, str) else warnings
    messages = [str(warning.get("warning", "")) if isinstance(warning, dict) else str(warning) for warning in warnings]
    words = " ".join(" ".join(messages).split())[:300]
    return f"{result.get('status')} on {result.get('entity_group', 'GPU')} {where}" + (f" ({words})" if words else "")


def _find_document(text: str, *keys: str) -> dict[str, Json]:
    """Return the JSON object that has one of these keys; programs print other lines before it."""
    decoder = json.JSONDecoder()
    for match in re.finditer(r"^\s*\{", text, re.MULTILINE):
        try:
            document, _ = decoder.raw_decode(text[match.end() - 1 :])
        except (ValueError, RecursionError):  # no program nests a thousand deep
            continue
        if isinstance(document, dict) and any(key in document for key in keys):
            return document
    raise Unreadable(complaint(text))


_NOISE = re.compile(
    r"^[-*#\s]*\Z|Waiting for client|Conflicting CPU frequency|^\s*(local|remote) address|^\s*GID:|^ *[\w .*]+: +\w"
)
# NCCL tells so of plug-ins and libraries that it does without, on every healthy host.
_CHATTER = re.compile(r"NCCL INFO|Failed to open libibverbs")
_ERRORS = re.compile(
    r"error|fail|couldn't|unable|cannot|can't|refused|no such|not found|invalid|denied|unexpected|mismatch", re.I
)


def complaint(text: str) -> str:
    """Return the line of an output that explains a failure: the first that looks like an error, else the last."""
    lines = [line for line in _split_lines(text) if not _NOISE.search(line)]
    return error_in(text) or (lines[-1][:300] if lines else "it ended without a figure")


def error_in(text: str) -> str:
    """Return the first line that looks like an error, or ""."""
    return next((line[:300] for line in _split_lines(text) if _ERRORS.search(line)), "")


def _split_lines(text: str) -> list[str]:
    """Return the non-empty lines without terminal control characters."""
    lines = ("".join(c for c in line if c.isprintable()).strip() for line in text.splitlines())
    return [line for line in lines if line and not _CHATTER.search(line)]
