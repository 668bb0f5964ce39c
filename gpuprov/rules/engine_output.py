"""Parses the output of the container engines' probe (`facts/probes/containers/container_engines.py`), by engine."""

import re
from typing import Any

Engine = dict[str, Any]


def parse(text: str) -> dict[str, Engine]:
    """Parse the script's output: by engine `version`, `active`, `enabled`, `started` (seconds since 1970; 0: not),
    `files` ({path: {changed, text}}), `dump` and `live` (its own report; missing without one), `default` and `config`
    (dockerd's own --default-runtime and --config-file; missing without)."""
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
            if rest not in ("docker", "containerd", "crio", "podman"):
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
        elif word in ("default", "config"):
            engine[word] = rest
        elif word in ("dump", "live"):
            sink, key = engine, word
    return engines
