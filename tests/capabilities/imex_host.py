"""A compute tray of a GB200 rack: its GPUs, its packages, and what the probe of nvidia-imex prints. The good host has
none of it."""

from __future__ import annotations

import json

VERSION = "580.178.04"
HERE, THERE = "192.0.2.1", "192.0.2.2"
TRAY = "0000:19:00.0 0x10de 0x2941 0x10de 0x2046 0x030200 nvidia\n"
PACKAGE = f"hi |nvidia-imex|{VERSION}-1|nvidia-imex\n"
BOOTED, STARTED = 1_999_900_000, 1_999_950_000
SETTINGS = (
    "IMEX_NODE_CONFIG_FILE=/etc/nvidia-imex/nodes_config.cfg",
    "IMEX_CMD_ENABLED=1",
    "IMEX_CMD_PORT=50005",
    "LOG_LEVEL=4",
)


def domain(*statuses: str, state: str = "UP", lost: bool = False) -> str:
    """`nvidia-imex-ctl -N -j`, in the form of https://github.com/NVIDIA (imex_domain checks of their validation
    suite)."""
    hosts = (HERE, THERE)
    nodes = {
        str(number): {
            "status": status,
            "host": hosts[number],
            "hostName": "N/A",
            "connections": {
                str(other): {
                    "host": host,
                    "status": "DISCONNECTED" if lost and other != number else "CONNECTED",
                    "changed": True,
                }
                for other, host in enumerate(hosts)
            },
        }
        for number, status in enumerate(statuses)
    }
    return json.dumps({"nodes": nodes, "timestamp": "9/4/2026 00:00:00.000", "status": state})


def tray(
    *more: str,
    version: str = VERSION,
    process: bool = True,
    nodes: tuple[str, ...] | None = (HERE, THERE),
    settings: tuple[str, ...] = SETTINGS,
    unit: tuple[str, str, str] = ("loaded", "active", "enabled"),
    ready: str = "READY",
    told: str | None = None,
    channel: bool = True,
    parameter: str = "1",
    address: str = HERE,
) -> str:
    """What the probe prints of a tray that is as wanted, but for what is named."""
    lines = [f"address|{address}"] * bool(address)
    lines += ["looked|"]
    stat = f"S 1 {'0 ' * 17}{(STARTED - BOOTED) * 100} 0"
    lines += [f"process|700|{stat}|/usr/bin/nvidia-imex -c /etc/nvidia-imex/config.cfg "] * process
    lines += [f"version|IMEX version is: {version}"] if version else []
    lines += ["config|", *(f"setting|{row}" for row in settings)]
    lines += ["nodes|", *(f"node|{node}" for node in nodes)] if nodes is not None else []
    lines += [f"LoadState|{unit[0]}", f"ActiveState|{unit[1]}", f"UnitFileState|{unit[2]}", f"ready|{ready}"]
    lines += [f"domain|{row}" for row in (domain("READY", "READY") if told is None else told).splitlines()]
    lines += ["channel|"] * channel + [f"parameter|{parameter}"] * bool(parameter)
    return "\n".join([*lines, *more]) + "\n"


PROBES = {"imex": ""}
