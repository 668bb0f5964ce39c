"""`gpuprov topology`: what it answers, and as what it prints it."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from typing import Any

from gpuprov import console
from gpuprov.errors import GpuprovError, UnreachableError, defect
from gpuprov.probe.base import Facts, ProbeFailed
from gpuprov.topology.judge import Finding, findings, theirs
from gpuprov.topology.links import told
from gpuprov.topology.model import Gpu, Hca, Wiring, read_and_told
from gpuprov.topology.svg import as_svg
from gpuprov.topology.text import as_text, cell

UNREACHABLE, UNREAD = 4, 1


def show(found: Mapping[str, Facts | UnreachableError], *, as_json: bool) -> tuple[int, str]:
    """Print each host's wiring: the exit code, and the picture of the last host that could be read (empty: none)."""
    code, picture = 0, ""
    hosts: dict[str, Any] = {}
    texts: list[str] = []
    unread: dict[str, str] = {}
    for name, facts in found.items():
        if isinstance(facts, UnreachableError):
            console.progress(str(facts))
            unread[name] = str(facts)
            code = UNREACHABLE
            continue
        try:
            wiring = read_and_told(facts)
            told_of = findings(wiring)
            space = console.room(sys.stdout)
            data, text = as_data(wiring, told_of), as_text(name, wiring, told_of, plain=_is_plain(), width=space)
            picture = as_svg(name, wiring, told_of)
        except Exception as error:
            why = str(error) if isinstance(error, ProbeFailed) else "; ".join(defect("the topology", error))
            console.progress(f"{name}: {why}")
            unread[name] = why
            code = code or UNREAD
            continue
        hosts[name] = data
        texts.append(text)
    if as_json:
        console.result(json.dumps({"hosts": hosts, "unread": unread}, indent=2))
    elif texts:
        console.result("\n\n".join(texts))
    return code, picture


def one_host(names: list[str]) -> None:
    """Raise GpuprovError where a picture is asked for of several hosts."""
    if len(names) > 1:
        raise GpuprovError(
            f"--svg draws one host, and HOST means {len(names)}: {', '.join(names[:4])}", "name one of them"
        )


def as_data(wiring: Wiring, found: tuple[Finding, ...]) -> dict[str, Any]:
    """The wiring as plain data. Distances as in the matrix; `nearest` is None on a host without HCAs."""
    best = theirs(wiring)
    ends: tuple[Gpu | Hca, ...] = (*wiring.gpus, *wiring.hcas)
    return {
        "gpus": [
            {
                "name": gpu.name,
                "address": gpu.function.address,
                "model": gpu.model,
                "numa_node": gpu.function.numa_node,
                "socket": wiring.socket(gpu.function),
                "bridges": list(gpu.function.bridges),
                "link": told(gpu.function.link.width, gpu.function.link.speed),
                "nvlinks": gpu.nvlink.active if gpu.nvlink and not wiring.nvlinks.complaint else None,
                "nearest": best[gpu.index].name if gpu.index in best else None,
                "distance": wiring.near(gpu)[0],
                "distances": {one.name: cell(wiring, gpu, one) for one in ends if one is not gpu},
            }
            for gpu in wiring.gpus
        ],
        "hcas": [_hca(wiring, hca) for hca in wiring.hcas],
        "nvlink_bridges": [hca.name for hca in wiring.bridges],
        "nvswitches": [one.address for one in wiring.nvswitches],
        "not_on_the_bus": list(wiring.unplaced),
        "findings": [
            {"kind": one.kind, "severity": "note" if one.note else "warning", "message": one.message, "hint": one.hint}
            for one in found
        ],
    }


def _hca(wiring: Wiring, hca: Hca) -> dict[str, Any]:
    ports = [
        {
            "number": port.number,
            "state": port.state,
            "link_layer": port.link_layer,
            "rate": port.rate if hca.tells_rate else None,
        }
        for port in hca.device.ports
    ]
    return {
        "name": hca.name,
        "address": hca.function.address,
        "driver": hca.device.driver,
        "netdevs": list(hca.device.netdevs),
        "numa_node": hca.function.numa_node,
        "socket": wiring.socket(hca.function),
        "bridges": list(hca.function.bridges),
        "link": told(hca.function.link.width, hca.function.link.speed),
        "ports": ports,
    }


def _is_plain() -> bool:
    encoding = (getattr(sys.stdout, "encoding", "") or "").lower()
    return "utf" not in encoding or os.environ.get("LC_ALL") in ("C", "POSIX")
