"""A host in work as its kernel log and nvidia-smi -q tell it: the real H100 of the corpus, well, and changed line by
line."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

REAL = Path(__file__).parents[1] / "real"
BOOT, NOW = 1_763_800_000, 1_763_900_000
GPU, OTHER = "0000:19:00.0", "0000:3b:00.0"


def _well() -> str:
    """A whole nvidia-smi -q of an H100, whose power brake is let go: nothing is wrong with it then."""
    text = (REAL / "h100-power-brake-535" / "nvidia-smi-q.txt").read_text(encoding="utf-8")
    return re.sub(r"((?:HW Slowdown|HW Power Brake Slowdown) +: )Active", r"\1Not Active", text)


WELL = _well()


def smi(present: int = 1, text: str = "", **changed: Any) -> str:
    """The probe's output; `changed`: a line by its name (underscores for blanks) with the value of its first
    occurrence."""
    text = text or WELL
    for name, value in changed.items():
        line = name.replace("_", " ")
        text, count = re.subn(rf"(?m)^( *{re.escape(line)} +: ).*$", rf"\g<1>{value}", text, count=1)
        assert count == 1, line
    return f"@present {present}\n@smi\n{text}\n"


def both(**changed: Any) -> str:
    """Two GPUs, of which the second has the changes."""
    first = WELL
    second = smi(**changed).partition("@smi\n")[2].partition("GPU 00000000:19:00.0")[2]
    return f"@present 2\n@smi\n{first}\nGPU 00000000:3B:00.0{second}"


def real(name: str, present: int = 1) -> str:
    """Another real host's."""
    return smi(present, (REAL / name / "nvidia-smi-q.txt").read_text(encoding="utf-8"))


def log(
    *lines: str, since: int | None = None, first: int = BOOT + 2, at: int = NOW - 3600, source: str = "journal"
) -> str:
    """The kernel log probe's output: each line a minute after the one before."""
    told = [f"now|{NOW}", f"boot|{BOOT}"]
    told += [f"since|{since}"] if since is not None else []
    told += [f"source|{source}"] if source else []
    begin = "Linux version 6.1.0-47-amd64" if first <= BOOT + 300 else "usb 1-1: new device"
    told += [f"first|{first}.000000 gpu1 kernel: {begin}"] if source else ["first|"]
    told += [f"line|{at + 60 * number}.000001 gpu1 kernel: {line}" for number, line in enumerate(lines)]
    return "\n".join(told) + "\n"


def xid(number: int, text: str = "pid='<unknown>', name=<unknown>", bus: str = "0000:19:00") -> str:
    return f"NVRM: Xid (PCI:{bus}): {number}, {text}"


OFF_THE_BUS = xid(79, "pid='<unknown>', name=<unknown>, GPU has fallen off the bus.")
GSP = xid(119, "pid=4711, name=python3, Timeout after 6s of waiting for RPC response from GPU0 GSP!")
NEEDS_RESET = xid(154, "GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)")
NEEDS_NOTHING = xid(154, "GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)")


def nvlinks(links: int = 18, replays: object = 0, recoveries: object = 0, crc: object = 0) -> str:
    """nvidia-smi nvlink -e of one GPU, of which the last link has these."""
    lines = ["GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-00000001-0000-0000-0000-000000000000)"]
    for link in range(links):
        found = (replays, recoveries, crc) if link == links - 1 else (0, 0, 0)
        names = ("Replay", "Recovery", "CRC")
        lines += [f"\t Link {link}: {name} Errors: {number}" for name, number in zip(names, found, strict=True)] + [""]
    return "\n".join(lines)


def ports(**counted: object) -> str:
    """The counters of one port, by name."""
    names = ("link_downed", "symbol_error", "link_error_recovery", "port_rcv_errors")
    return "".join(f"counter|mlx5_0|1|{name}|{counted.get(name, 0)}\n" for name in names)


def readings(*errors: int, name: str = "symbol_error", minutes: int = 60) -> str:
    """The host's own readings of a counter of mlx5_0's port, so many minutes apart and before NOW."""
    moments = [NOW - 60 * minutes * age for age in range(len(errors), 0, -1)]
    told = [f"@clock {datetime.fromtimestamp(NOW, UTC):%Y-%m-%dT%H:%M:%SZ}"]
    for moment, count in zip(moments, errors, strict=True):
        line = {"at": f"{datetime.fromtimestamp(moment, UTC):%Y-%m-%dT%H:%M:%SZ}", "ports": {"mlx5_0/1": {name: count}}}
        told.append(json.dumps(line))
    return "\n".join(told) + "\n"


def flaps(name: str, count: int, *, ago: int = 3600, since: int = 0, loaded: bool = False) -> str:
    """The journal of a host with an Ethernet and an InfiniBand interface, one of which lost its link so many times, a
    minute apart."""
    ethernet = name.startswith("en")
    kernel, networkd = "kernel: mlx5_core 0000:17:00.0", "systemd-networkd[992]:"
    up, down = ("Link up", "Link down") if ethernet else ("Gained carrier", "Lost carrier")
    says = f"{kernel} {name}:" if ethernet else f"{networkd} {name}:"
    lines = [(BOOT + 5, f"{kernel} ens1np0: Link down"), (BOOT + 9, f"{kernel} ens1np0: Link up")]
    lines += [(BOOT + 7, f"{networkd} ib0: Gained carrier")]
    for at in range(NOW - ago, NOW - ago + 60 * count, 60):
        lines += [(at, f"{says} {down}"), (at + 25, f"{says} {up}")]
        lines += [(at + 5, "kernel: mlx5_core 0000:17:00.0: firmware version: 28.43.2566")] if loaded else []
    told = [f"now|{NOW}", f"since|{since}", "interface|mlx5_0|ens1np0", "interface|mlx5_1|ib0", "journal|1"]
    return "\n".join(told + [f"line|{at}.000001 gpu1 {line}" for at, line in sorted(lines)]) + "\n"


def hardware(sockets: int = 2, cores: int = 4, swap: int = 0, nvme: int = 8, **states: str) -> str:
    rows = [f"core|{socket}|{core}" for socket in range(sockets) for core in range(cores)] * 2
    rows += ["memory|2113461124", f"swap|{swap}", f"nvme|{nvme}"]
    return "\n".join(rows + [f"interface|{name}|{state}" for name, state in {"eth0": "up", **states}.items()]) + "\n"


def files(opened: int = 1000, home: str = "nfs4|1000|600|600|100|60") -> str:
    return f"handles|{opened}|100000\nsystem|ext4|1000|500|400|100|60|/\nsystem|{home}|/home\n"


def boards(adapter: str = "28.39.1002", switch: str = "96.10.57.00.01") -> str:
    """Firmware of an adapter and of an NVSwitch."""
    return f"adapter|0000:18:00.0|MT_0000000838|MT4129|{adapter}\nnvswitch|0000:07:00.0||10de:22a3|{switch}\n"


PROBES = {
    "board_firmware": boards(),
    "kernel_log": log(),
    "cuda_runs": "off\n",
    "gpu_health": smi(),
    "nvlink_errors": nvlinks(),
    "port_errors": ports(),
    "counter_readings": readings(0, 0),
    "link_flaps": flaps("ib0", 0),
    "hardware": hardware(),
    "file_systems": files(),
    "gpu_processes": "S|00000000:19:00.0, 4711, 512 MiB|python3\nlooked\n",
}
