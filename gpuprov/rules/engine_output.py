"""Parses the output of the container engines' probe (`facts/probes/containers/container_engines.py`), by engine."""

import re
from typing import Any

Engine = dict[str, Any]
ENGINES = ("docker", "containerd", "crio", "podman", "k3s", "rke2", "microk8s")
SERVICES = (
    *("k3s.service", "k3s-agent.service", "rke2-server.service", "rke2-agent.service"),
    "snap.microk8s.daemon-containerd.service",
)
"""Units that run the engine of a Kubernetes distribution."""


def parse(text: str) -> dict[str, Engine]:
    """Parse the script's output: by engine `version`, `active`, `enabled`, `started` (seconds since 1970; 0: not),
    `files` ({path: {changed, text}}), `dump` and `live` (its own report; missing without one), `default` and `config`
    (a daemon's own --default-runtime and --config-file; missing without), `unit` (only where it is not the engine's
    name), `program` (NVIDIA's, on the PATH of k3s and RKE2)."""
    engines: dict[str, Engine] = {}
    clock, key = [0.0, 0.0], ""
    engine: Engine = {}
    sink: dict[str, Any] = {}
    for line in text.splitlines():
        if line.startswith(" "):
            sink[key] = sink.get(key, "") + line[1:] + "\n"
            continue
        word, _, rest = line.removeprefix("@").partition(" ")
        sink, key = {}, ""
        if word == "clock":
            clock = [float(part) for part in rest.split()]
        elif word == "engine":
            if rest not in ENGINES:
                raise ValueError(f"there is no engine {rest!r}")
            engine = engines[rest] = {"version": "", "active": "", "enabled": "", "started": 0.0, "files": {}}
        elif word == "version":
            match = re.search(r"\d+(\.\d+)+", rest)
            engine["version"] = match[0] if match else ""
        elif word == "unit":
            engine["active"], engine["enabled"], since = (rest.split("|") + ["", "", ""])[:3]
            ran = int(since) / 1e6 if re.fullmatch("[0-9]{1,18}", since) else 0.0
            engine["started"] = ran and clock[0] - clock[1] + ran
        elif word == "file":
            path, _, changed = rest.rpartition(" ")
            sink, key = engine["files"].setdefault(path, {"changed": float(changed), "text": ""}), "text"
        elif word in ("default", "config", "program"):
            engine[word] = rest
        elif word == "service":
            if rest not in SERVICES:
                raise ValueError(f"there is no unit {rest!r} of an engine")
            engine["unit"] = rest
        elif word in ("dump", "live"):
            sink, key = engine, word
    return engines
