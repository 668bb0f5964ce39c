"""Errors that links count: NVLinks as nvidia-smi tells them, ports of InfiniBand and RoCE in sysfs."""

from __future__ import annotations

import re

import msgspec

from gpuprov.probe.base import Output, Probe
from gpuprov.reading import is_whole


class NvLinkErrors(msgspec.Struct, frozen=True, kw_only=True):
    """Of one GPU, all its links together; None where it does not tell them. `faults`: what Blackwell tells instead."""

    index: int
    links: int = 0
    replays: int | None = None
    recoveries: int | None = None
    crc: int | None = None
    faults: int | None = None


class NvLinkState(msgspec.Struct, frozen=True, kw_only=True):
    """`complaint`: why nothing is known. `nameless`: because nvidia-smi found nothing wrong, and named no GPU."""

    gpus: tuple[NvLinkErrors, ...] = ()
    complaint: str = ""
    nameless: bool = False


class PortErrors(msgspec.Struct, frozen=True, kw_only=True):
    """What a port counted since its driver was loaded; `errors` by the names of sysfs, without those that are zero."""

    device: str
    port: int
    downed: int | None = None
    errors: dict[str, int] = {}


FAULTS = (
    "Malformed packet Errors",
    "Buffer overrun Errors",
    "Rx Errors",
    "Rx remote Errors",
    "Rx General Errors",
    "Local link integrity Errors",
    "Link recovery failed events",
)
"""Lines of NVLink 5 that count errors, as public tools read them; symbols that its code corrects are none."""


def parse_nvlinks(output: Output) -> NvLinkState:
    if output.status == 127:
        return NvLinkState(complaint="nvidia-smi is not installed")
    counted: dict[int, dict[str, int | None]] = {}
    links: dict[int, set[str]] = {}
    index = -1
    for line in output.text.splitlines():
        if match := re.match(r"GPU (\d{1,3}):", line.strip()):
            index = int(match[1])
            counted[index], links[index] = {}, set()
        elif index >= 0 and (match := re.match(r"Link (\d{1,3}): ([\w ]+): (\S+)\Z", line.strip())):
            links[index].add(match[1])
            before = counted[index].get(match[2])
            number = int(match[3]) if is_whole(match[3]) else None
            counted[index][match[2]] = before if number is None else (before or 0) + number
    gpus = tuple(
        NvLinkErrors(
            index=number,
            links=len(links[number]),
            replays=found.get("Replay Errors"),
            recoveries=found.get("Recovery Errors"),
            crc=found.get("CRC Errors"),
            faults=_sum([found[name] for name in FAULTS if name in found]),
        )
        for number, found in sorted(counted.items())
    )
    text, _, status = output.text.partition("@status ")
    said = " ".join((text or output.error).split())[:200]
    complaint = "" if gpus else said or "nvidia-smi nvlink -e said nothing"
    return NvLinkState(gpus=gpus, complaint=complaint, nameless=not gpus and not said and status.strip() == "0")


def _sum(counts: list[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


COUNTERS = (
    "symbol_error",
    "link_error_recovery",
    "port_rcv_errors",
    "port_rcv_remote_physical_errors",
    "port_rcv_constraint_errors",
    "port_xmit_constraint_errors",
    "local_link_integrity_errors",
    "excessive_buffer_overrun_errors",
)
"""https://docs.kernel.org/admin-guide/abi-stable-files.html (sysfs-class-infiniband)"""


def parse_ports(output: Output) -> tuple[PortErrors, ...]:
    """Each port that has counters, in the order of their names."""
    downed: dict[tuple[str, int], int | None] = {}
    errors: dict[tuple[str, int], dict[str, int]] = {}
    for line in output.text.splitlines():
        kind, _, rest = line.partition("|")
        cells = rest.split("|")
        if kind != "counter" or len(cells) != 4 or not is_whole(cells[1]):
            continue
        key = (cells[0], int(cells[1]))
        downed.setdefault(key, None)
        number = int(cells[3]) if is_whole(cells[3]) else None
        if cells[2] == "link_downed":
            downed[key] = number
        elif number:
            errors.setdefault(key, {})[cells[2]] = number
    return tuple(
        PortErrors(device=device, port=port, downed=downed[device, port], errors=errors.get((device, port), {}))
        for device, port in sorted(downed)
    )


NVLINK_ERRORS = Probe(
    "nvlink_errors",
    'command -v nvidia-smi >/dev/null || exit 127; timeout 25 nvidia-smi nvlink -e 2>&1; echo "@status $?"',
    parse_nvlinks,
    "nvidia-smi nvlink -e",
    knows_missing=True,
)
PORT_ERRORS = Probe(
    "port_errors",
    f"""for p in /sys/class/infiniband/*/ports/[0-9]*; do
  [ -d "$p/counters" ] || continue
  d=${{p%/ports/*}}
  for c in link_downed {" ".join(COUNTERS)}; do
    echo "counter|${{d##*/}}|${{p##*/}}|$c|$(cat "$p/counters/$c" 2>/dev/null)"
  done
done
true""",
    parse_ports,
    "grep . /sys/class/infiniband/*/ports/*/counters/*",
    blank=r"counter\|",
)
