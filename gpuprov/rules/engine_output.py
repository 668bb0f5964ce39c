"""Parses the output of the container engines' probe (`facts/probes/containers/container_engines.py`), by engine."""

import re
from collections.abc import Collection
from dataclasses import dataclass, field

ENGINES = ("docker", "containerd", "crio", "podman", "k3s", "rke2", "microk8s")
# Units that run the engine of a Kubernetes distribution.
SERVICES = (
    *("k3s.service", "k3s-agent.service", "rke2-server.service", "rke2-agent.service"),
    "snap.microk8s.daemon-containerd.service",
)


@dataclass
class EngineFile:
    changed: float = 0.0
    text: str = ""


@dataclass
class Engine:
    """An engine of the host. started: seconds since 1970; 0: not. files: by path. dump, live: its own report. default,
    config: a daemon's own --default-runtime and --config-file; flags: all of its options, without values. unit: only
    where it is not the engine's name; podman's is its socket. starter: what starts the unit at a boot where it is not
    enabled itself. program: NVIDIA's, on the PATH of k3s and RKE2."""

    version: str = ""
    active: str = ""
    enabled: str = ""
    started: float = 0.0
    files: dict[str, EngineFile] = field(default_factory=dict)
    dump: str = ""
    live: str = ""
    default: str = ""
    config: str = ""
    flags: list[str] = field(default_factory=list)
    unit: str = ""
    program: str = ""
    starter: str = ""


def parse(text: str) -> dict[str, Engine]:
    """Parse the script's output, by engine."""
    engines: dict[str, Engine] = {}
    clock, key = [0.0, 0.0], ""
    engine = Engine()
    sink: Engine | EngineFile | None = None
    for line in text.splitlines():
        if line.startswith(" "):
            if sink:
                setattr(sink, key, f"{getattr(sink, key)}{line[1:]}\n")
            continue
        word, _, rest = line.removeprefix("@").partition(" ")
        sink, key = None, ""
        if word == "clock":
            clock = [float(part) for part in rest.split()]
        elif word == "engine":
            engine = engines[_check_name(rest, ENGINES)] = Engine()
        elif word == "version":
            match = re.search(r"\d+(\.\d+)+", rest)
            engine.version = match[0] if match else ""
        elif word == "unit":
            engine.active, engine.enabled, since = (rest.split("|") + ["", "", ""])[:3]
            ran = int(since) / 1e6 if re.fullmatch("[0-9]{1,18}", since) else 0.0
            engine.started = ran and clock[0] - clock[1] + ran
        elif word == "file":
            path, _, changed = rest.rpartition(" ")
            sink, key = engine.files.setdefault(path, EngineFile(float(changed))), "text"
        elif word in ("default", "config", "program", "starter"):
            setattr(engine, word, rest)
        elif word == "flag":
            engine.flags.append(rest)
        elif word == "service":
            engine.unit = _check_name(rest, SERVICES)
        elif word in ("dump", "live"):
            sink, key = engine, word
    return engines


def _check_name(name: str, known: Collection[str]) -> str:
    if name not in known:
        raise ValueError(f"there is no engine and no unit {name!r} of an engine")
    return name
