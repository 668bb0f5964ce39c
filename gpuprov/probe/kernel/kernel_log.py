"""The kernel log: lines about GPUs, NVSwitches, PCIe, RDMA devices and the kernel itself; since this boot, or since a time."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

from gpuprov.catalog.xids import asks
from gpuprov.onhost import kernel_lines
from gpuprov.probe.base import Output, Probe, ProbeFailed
from gpuprov.reading import is_whole

SLACK = 300
"""Seconds after a boot within which a complete log begins."""


class Line(msgspec.Struct, frozen=True):
    """A line without its timestamp; `at` in Unix time. `times`: the number of lines of its kind, itself included."""

    at: float
    text: str
    times: int = 1


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """Xids, or SXids, of one number on one device: their count, and the last one's time and text after the number. Fatal ones
    are kept apart from the others."""

    device: str
    number: int
    count: int
    at: float
    text: str
    switch: bool = False


class KernelLog(msgspec.Struct, frozen=True, kw_only=True):
    """The log. `source`: journal or dmesg, empty if neither can be read. `first`: the log's first time, and `whole`: whether
    it begins with the kernel's first line; `searched`: from a record that has NVIDIA's lines alone. `boot`: start of the
    kernel, `since` the requested start, None: this boot. `lines`: relevant lines, the oldest first; of one kind the last ones."""

    source: str = ""
    now: float = 0
    boot: float = 0
    since: float | None = None
    first: float | None = None
    whole: bool = False
    searched: bool = False
    lines: tuple[Line, ...] = ()

    def begins(self) -> float:
        """The requested start of the log."""
        return self.boot if self.since is None else self.since

    def booted(self) -> float:
        """The time from which lines belong to this boot. If only this boot was requested, all do: the first ones may bear the
        time of a clock that was wrong until the network set it, and the kernel counts back from the right time."""
        return 0.0 if self.since is None else self.boot

    def missing(self) -> float | None:
        """The begin of the log, if it is later than requested."""
        if self.since is None and self.whole:
            return None
        return self.first if self.first is not None and self.first > self.begins() + SLACK else None

    def matching(self, pattern: str) -> tuple[Line, ...]:
        """Return the kernel's lines that begin with the pattern. The rest may be text that a user of the host chose."""
        program = kernel_lines.OF_A_PROGRAM
        return tuple(line for line in self.lines if re.match(pattern, line.text) and not re.match(program, line.text))

    def crashes(self, pattern: str) -> tuple[Line, ...]:
        """Return the lines about crashed programs that begin with the pattern."""
        return tuple(line for line in self.lines if re.match(pattern, line.text))


FIRST = re.compile("Linux version |Booting Linux on |microcode: (microcode )?updated early ")
"""Pattern of the first lines of a boot: on Arm CPUs and with early microcode there is a line before the version."""
XID = re.compile(r"NVRM: Xid \((?:PCI:)?([0-9a-fA-F:.]+)(?: GPU-I:\d+)?(?: GPU-CI:\d+)?\): (\d{1,6})(?:, (.*))?")
"""`NVRM: Xid (PCI:0000:9b:00): 79, ...`; drivers before 343 write `NVRM: Xid (0000:03:00): 13, ...`. In MIG mode the instance
follows the address, `(PCI:0000:9b:00 GPU-I:05 GPU-CI:00)`:
https://github.com/NVIDIA/open-gpu-kernel-modules/blob/main/src/nvidia/src/kernel/gpu/rc/kernel_rc.c"""
SXID = re.compile(r"(nvidia-nvswitch\d+): SXid \(PCI:[0-9a-fA-F:.]+\): (\d{1,6}), (.*)")


def parse(output: Output) -> KernelLog:
    fields: dict[str, str] = {}
    lines: list[Line] = []
    for row in output.text.splitlines():
        kind, _, rest = row.partition("|")
        if kind == "line":
            if line := _parse_line(rest, fields):
                lines.append(line)
        elif kind == "times":
            number, _, row = rest.partition("|")
            if is_whole(number) and (line := _parse_line(row, fields)):
                lines.append(msgspec.structs.replace(line, times=int(number)))
        elif kind == "first":
            fields[kind] = rest
        elif kind in ("now", "boot", "since", "source", "searched"):
            fields[kind] = rest.strip()
    if not is_whole(fields.get("now", "")) or not is_whole(fields.get("boot", "")):
        raise ProbeFailed(f"the host's clock and boot cannot be read: {output.text.strip()[:120]!r}")
    since = float(fields["since"]) if is_whole(fields.get("since", "")) else None
    first = _parse_line(fields["first"], fields) if fields.get("first") else None
    if fields.get("first") and fields.get("source") == "dmesg" and first is None:
        raise ProbeFailed(
            "the kernel's lines have no time in dmesg", "printk.time=1 on the kernel's command line, or a journal"
        )
    return KernelLog(
        source=fields.get("source", ""),
        now=float(fields["now"]),
        boot=float(fields["boot"]),
        since=since,
        first=first.at if first else None,
        searched="searched" in fields,
        whole=first is not None and FIRST.match(first.text) is not None,
        lines=tuple(sorted((line for line in lines if since is None or line.at >= since), key=lambda line: line.at)),
    )


def _parse_line(row: str, fields: Mapping[str, str]) -> Line | None:
    """Parse a line of `journalctl -o short-unix`: `1763848800.123456 host kernel: ...`; or of dmesg: `[   12.345678] ...`."""
    if match := re.match(r"(\d{9,11}\.\d+) \S+ [^\s:]+: (.*)\Z", row):
        return Line(float(match[1]), match[2])
    if match := re.match(r"\[ *(\d{1,10}\.\d+)\](?:\[[^\]]*\])? (.*)\Z", row):
        return Line(float(fields.get("boot") or 0) + float(match[1]), match[2])
    return None


ADDRESS = "[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}[.][0-7]"
DEVICE = f"[a-z0-9_-]+ {ADDRESS}: "
"""Pattern of the beginning of a driver's line about a device: longer than the 15 characters that a program's name may have."""
NIC_DRIVERS = ("mlx4_core", "mlx5_core", "bnxt_en", "ice", "i40e", "irdma", "efa", "ena", "erdma")
"""Drivers of nics.yaml; tests compare the two. A module for RDMA logs the driver of its PCI function, as bnxt_re does bnxt_en
(__ibdev_printk, https://github.com/torvalds/linux/blob/master/drivers/infiniband/core/device.c)."""
NIC = re.compile(rf"(?:{'|'.join(NIC_DRIVERS)}) ({ADDRESS})(?: ([^ :]+))?: ")
RDMA = "infiniband [a-z][a-zA-Z0-9_-]*: "
"""Pattern of a driver's line about its RDMA device alone (dev_err of a device of the class infiniband): mlx5_ib, and drivers
built for older kernels (https://github.com/amzn/amzn-drivers/blob/master/kernel/linux/efa/src/kcompat.h)."""
RDMA_ADDRESS = re.compile(r"[a-z]+(?:P(\d{1,5}))?p(\d{1,3})s(\d{1,2})(?:f(\d))?")
"""The PCI address in the name of an RDMA device, in decimal numbers: rdmap0s6, rocep65s0f0, roceP2p1s0f0
(https://github.com/linux-rdma/rdma-core/blob/master/kernel-boot/rdma_rename.c)."""
WATCHDOG = re.compile(r"NETDEV WATCHDOG: (\S+) \((\w+)\): ")
"""Pattern of the line of kernels before 6.5, without the address."""


class NicMessage(msgspec.Struct, frozen=True):
    """A line of a network adapter's driver, and its device."""

    device: str
    line: Line


def nic_messages(log: KernelLog) -> tuple[NicMessage, ...]:
    """List lines of network adapters' drivers, the oldest first. A named device has its address, if known."""
    addresses = {nic[2]: nic[1] for line in log.lines if (nic := NIC.match(line.text))}
    by_name = frozenset(log.matching(RDMA))
    messages = []
    for line in log.lines:
        if nic := NIC.match(line.text):
            messages.append(NicMessage(nic[1], line))
        elif watchdog := WATCHDOG.match(line.text):
            messages.append(NicMessage(watchdog[1], line))
        elif line in by_name:
            name = line.text.split()[1].rstrip(":")
            messages.append(NicMessage(addresses.get(name) or _parse_address(name), line))
    return tuple(messages)


def _parse_address(name: str) -> str:
    """Parse the PCI address in the name of an RDMA device; else return the name."""
    if match := RDMA_ADDRESS.fullmatch(name):
        domain, bus, slot, function = (int(part or 0) for part in match.groups())
        return f"{domain:04x}:{bus:02x}:{slot:02x}.{function}"
    return name


FATAL = r"(?<![\w-])[Ff]atal\b"


def xids(log: KernelLog) -> tuple[Event, ...]:
    """List Xids by GPU and number, the latest first."""
    return _collect_events(log, XID, switch=False)


def sxids(log: KernelLog) -> tuple[Event, ...]:
    """List SXids by NVSwitch and number. Each has several lines, the first of which says whether it is fatal."""
    return _collect_events(log, SXID, switch=True)


def last_reset(log: KernelLog) -> float:
    """Find the time of the last GPU reset in the log: a reset of GPUs joined by NVSwitches includes the switches, and their
    driver then logs them anew. 0 if none is logged."""
    return max((line.at for line in log.matching(SWITCH_FOUND)), default=0.0)


def _collect_events(log: KernelLog, pattern: re.Pattern[str], *, switch: bool) -> tuple[Event, ...]:
    events: dict[tuple[str, int, bool, str], Event] = {}
    for line in log.lines:
        match = pattern.match(line.text)
        if match is None:
            continue
        device, number, text = match[1].lower(), int(match[2]), (match[3] or "").strip()
        if switch and not re.match(r"(?i)(non-)?fatal", text):
            continue
        key = device, number, re.search(FATAL, text) is not None, "" if switch else asks(number, text)
        count = (events[key].count if key in events else 0) + line.times
        events[key] = Event(device=device, number=number, count=count, at=line.at, text=text, switch=switch)
    return tuple(sorted(events.values(), key=lambda event: -event.at))


UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def seconds(since: str, now: float | None = None) -> str:
    """Convert the script's argument: empty for this boot, `-SECONDS` before now, or `@TIME`. Raises ValueError."""
    if since == "boot":
        return ""
    if match := re.fullmatch(r"([1-9][0-9]{0,5})([smhd])", since):
        return f"-{int(match[1]) * UNITS[match[2]]}"
    at = datetime.fromisoformat(since.replace("Z", "+00:00")).timestamp()
    if at > (time.time() if now is None else now):
        raise ValueError("that is in the future")
    return f"@{int(at)}"


def build_variables(host: Any) -> Mapping[str, str]:
    """Return the variable of a script that begins with SINCE."""
    block = host.capabilities.get("health")
    return {"since": seconds(block.since) if block else ""}


SINCE = "case ${since:-} in -*) since=$((n + since));; @*) since=${since#@};; *) since=;; esac"
"""Shell: $since in Unix time, empty for this boot; $n is now."""
SWITCH_FOUND = "nvidia-nvswitch: Probing device "
"""Oracle's checks treat this line after the last Xid as a reset (gpu_reset_reboot in
https://github.com/oracle-quickstart/oci-hpc/blob/main/playbooks/roles/healthchecks/files/check_gpu_setup.py); nvswitch_probe writes
it (https://github.com/NVIDIA/open-gpu-kernel-modules/blob/595.45.04/kernel-open/nvidia/linux_nvswitch.c). No line is known for a
reset of a single GPU."""
OFF_BUS = "NVRM: .*fallen off the bus"
"""A driver that finds a GPU gone while it loads or opens it logs no Xid: os_pci probing in nv-pci.c and nv.c of
https://github.com/NVIDIA/open-gpu-kernel-modules/tree/main/kernel-open/nvidia; gpud and NVSentinel judge the line, too
(https://github.com/leptonai/gpud/pull/1209)."""
RESET_REQUIRED = "NVRM: .*(NV_ERR_RESET_REQUIRED|likely in a bad state and may need to be reset)"
"""The driver refuses a GPU until it is reset: NV_ERR_RESET_REQUIRED in
https://github.com/NVIDIA/open-gpu-kernel-modules/blob/main/src/common/sdk/nvidia/inc/nvstatuscodes.h, and _kgspBootGspRm in
https://github.com/NVIDIA/open-gpu-kernel-modules/blob/main/src/nvidia/src/kernel/gpu/gsp/kernel_gsp.c"""
REBOOT_REQUIRED = {
    "uvm-fatal": "NVRM: nvGpuOpsReportFatalError: uvm encountered global fatal error ",
    "nvlink-detection": "NVRM: knvlink(DiscoverPostRxDetLinks|UpdatePostRxDetectLinkMask)_.*(Mask failed|mask)!",
}
"""The driver's lines if only a reboot helps, by their key in catalog/data/symptoms.yaml, which has the sources."""
SAID = "|".join((SWITCH_FOUND, OFF_BUS, RESET_REQUIRED, *REBOOT_REQUIRED.values()))
XIDS = f"NVRM: Xid [(]|nvidia-nvswitch[0-9]+: SXid|{SAID}"
KERNEL = (
    f"{DEVICE}(AER: |PCIe Bus Error|aer_uncor_severity: |DPC: containment event)",
    f"({'|'.join(NIC_DRIVERS)}) {ADDRESS}( [^ :]+)?: |NETDEV WATCHDOG: |{RDMA}",
    "Kernel panic - |(Internal error: |(NMI )?watchdog: )?(BUG|Oops): ",
    "(NMI )?watchdog: (CPU ?[0-9]+: )?Watchdog detected hard LOCKUP on cpu",
    "[A-Za-z0-9-]+ [(][^)]*[)]: Remounting filesystem read-only",
    "XFS [(][^)]*[)]: .*[Ss]hut(ting)? down|BTRFS [a-z]+ [(]device [^)]*[)]: forced readonly",
)
PROGRAMS = (".*segfault at .* in libnccl", "(Memory cgroup out|Out) of memory: Kill|oom-kill:")
NUMBERS = "0x[0-9a-f]+|[0-9][0-9][0-9]+"
"""Pattern of what differs in lines of one kind: times, memory addresses, process ids. A device's bus and a severity stay."""
KINDS = 200
"""Maximum number of kinds of lines."""
_SCRIPT = f"""n=$(date +%s); echo "now|$n"
awk '$1 == "btime" {{ print "boot|" $2 }}' /proc/stat
{SINCE}
[ -z "$since" ] || echo "since|$since"
command -v journalctl >/dev/null || command -v dmesg >/dev/null || exit 127
j() {{ journalctl -q --no-pager -o short-unix "$@" 2>/dev/null; }}
if [ -n "$since" ]; then f=$(j _TRANSPORT=kernel | head -n 1); else f=$(j -k -b | head -n 1); fi
if [ -n "$f" ]; then
  echo 'source|journal'
  own() {{ if [ -n "$since" ]; then j _TRANSPORT=kernel --since "@$since"; else j -k -b; fi; }}
else
  f=$(dmesg 2>/dev/null | head -n 1)
  [ -z "$f" ] || echo 'source|dmesg'
  own() {{ dmesg 2>/dev/null; }}
fi
all() {{ own | {kernel_lines.JOINED}; }}
printf 'first|%s\\n' "$f"
s='{kernel_lines.STAMP}'
# Of each kind (k) the last ones, so that what comes by the thousand hides nothing else.
last() {{ awk -v most="$1" "{{ $2; i = n[k]++; l[k, i % most] = \\$0 }}"' END {{
  for (k in n) for (i = b = n[k] > most ? n[k] - most : 0; i < n[k]; i++)
    print (i == b && b ? "times|" b + 1 : "line") "|" l[k, i % most] }}'; }}
all | grep -aE "$s({XIDS})" | last 50 'match($0, /Xid [(][^)]*[)]: [0-9]+/); k = substr($0, RSTART, RLENGTH) ($0 ~ /[ ,][Ff]atal[ ,]/)'
all | {kernel_lines.filtered("|".join(KERNEL))} |
  last 20 'k = $0; gsub(/{NUMBERS}/, "#", k); gsub(/ +/, " ", k); if (!(k in n) && ++m > {KINDS}) k = "rest"'
all | grep -aE "$s({"|".join(PROGRAMS)})" | tail -n 200 | sed 's/^/line|/'
true"""
KERNEL_LOG = Probe("kernel_log", _SCRIPT, parse, "journalctl -k -b; dmesg", asks=build_variables, speaks=True)
