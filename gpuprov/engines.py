"""Container engines: what their configuration says of NVIDIA's runtime, and what a change of it lost. Standard library only.

Rendered projects carry this file as an Ansible filter plugin, so that checks and roles decide by the same code. Input is the
output of one shell script (`probe/container_engines.py`) and the text of configuration files; nothing here touches a host.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any

NAME, PROGRAM = "nvidia", "nvidia-container-runtime"
PROGRAMS = (PROGRAM, f"/usr/bin/{PROGRAM}")
DROP_IN = "/etc/containerd/conf.d/99-nvidia.toml"
MAIN = {"docker": "/etc/docker/daemon.json", "containerd": "/etc/containerd/config.toml", "crio": "/etc/crio/crio.conf"}
# The CRI plugin's name in configuration versions 1, 2 and 3: https://github.com/containerd/containerd/blob/main/docs/cri/config.md
CRI = ("cri", "io.containerd.grpc.v1.cri", "io.containerd.cri.v1.runtime")
# The first releases that know CDI (docker 25 behind features.cdi, which is on by itself from 28.2 on), and the first containerd
# that merges a plugin's section from several files: https://github.com/containerd/containerd/issues/5837
CDI_SINCE = {"docker": (25,), "containerd": (1, 7), "podman": (4, 1)}
CDI_BY_ITSELF = (28, 2)
MERGES_SINCE = (2, 1)
SLACK = 0.5  # seconds by which a start time may be off
OURS = {
    "docker": rf"runtimes\.{NAME}\..*|default-runtime|features\.cdi",
    "containerd": r"imports|version|plugins\.[^ ]+\."
    rf"(enable_cdi|containerd\.(default_runtime_name|default_runtime\..*|runtimes\.{NAME}\..*))",
    "crio": rf"crio\.runtime\.(default_runtime|runtimes\.{NAME}\..*)",
}
"""Settings that nvidia-ctk writes; every other one is the user's."""

Engine = dict[str, Any]


def parse(text: str) -> dict[str, Engine]:
    """The script's output: by engine `version`, `active`, `enabled`, `started` (seconds since 1970; 0: not), `files`
    ({path: {changed, text}}), `dump` and `live` (what it tells itself; missing where it does not)."""
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
        elif word in ("dump", "live"):
            sink, key = engine, word
    return engines


def number(version: str) -> tuple[int, ...]:
    """`28.2.1` as numbers."""
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])


def configuration(name: str, engine: Engine) -> dict[str, Any]:
    """The settings in force at the engine's next start. Raises ValueError, with the file, where they cannot be read."""
    files: dict[str, dict[str, Any]] = engine["files"]
    if name == "containerd":
        if "dump" not in engine:
            raise ValueError(f"containerd does not understand its configuration: containerd config dump ({MAIN[name]})")
        return _toml(engine["dump"], "containerd config dump")
    if name == "docker":
        path = MAIN[name]
        text = files.get(path, {"text": ""})["text"]
        try:
            read = json.loads(text) if text.strip() else {}
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{path} is not valid JSON: {error}") from None
        if not isinstance(read, dict):
            raise ValueError(f"{path} is not a JSON object")
        return read
    merged: dict[str, Any] = {}
    for path in sorted(files, key=lambda found: (found != MAIN[name], found)):
        merged = _merge(merged, _toml(files[path]["text"], path))
    return merged


def _toml(text: str, place: str) -> dict[str, Any]:
    if len(text) > 1 << 19 or re.search(r"(?:\.[ \t]*+[\w\"'-]++[ \t]*+){100}", text):
        raise ValueError(f"{place} is larger, or nests deeper, than any that an engine reads")
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{place} is not valid TOML: {error}") from None


def _merge(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    result = dict(under)
    for key, value in over.items():
        mine = result.get(key)
        result[key] = _merge(mine, value) if isinstance(mine, Mapping) and isinstance(value, Mapping) else value
    return result


def at(config: object, *path: str) -> Any:
    """The value at a path; None where there is none."""
    for key in path:
        config = config.get(key) if isinstance(config, Mapping) else None
    return config


def registered(name: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """What a configuration says of NVIDIA's runtime: `path` of its program, `default` runtime, `cdi` (None: not said)."""
    if name == "docker":
        path, default = at(config, "runtimes", NAME, "path"), config.get("default-runtime")
        return {"path": path or "", "default": default or "", "cdi": at(config, "features", "cdi")}
    if name == "crio":
        runtime = at(config, "crio", "runtime") or {}
        path, default = at(runtime, "runtimes", NAME, "runtime_path"), at(runtime, "default_runtime")
        return {"path": path or "", "default": default or "", "cdi": None}
    section = _cri(config)
    runtimes = at(section, "containerd") or {}
    path = at(runtimes, "runtimes", NAME, "options", "BinaryName")
    default = at(runtimes, "default_runtime_name")
    return {"path": path or "", "default": default or "", "cdi": at(section, "enable_cdi")}


def _cri(config: Mapping[str, Any]) -> Mapping[str, Any]:
    found = [at(config, "plugins", plugin) for plugin in CRI]
    return next((section for section in found if isinstance(section, Mapping)), {})


def wants_cdi(name: str, version: str) -> bool:
    """Whether this release of the engine must be told to take CDI devices."""
    return name in ("docker", "containerd") and number(version) >= CDI_SINCE[name]


def differences(name: str, engine: Engine, default: bool) -> list[str]:
    """What the configuration lacks, in words; nothing where it is as wanted."""
    try:
        config = configuration(name, engine)
        found = registered(name, config)
        hidden = shadowed(engine) if name == "containerd" else []
    except ValueError as error:
        return [str(error)]
    told = []
    if found["path"] not in PROGRAMS:
        told.append(f"runtime {NAME} is {found['path']}" if found["path"] else f"no runtime {NAME}")
    if default and found["default"] != NAME:
        told.append(f"the default runtime is {found['default'] or 'runc'}")
    elif not default and found["default"] == NAME:
        told.append(f"the default runtime is {NAME}")
    version = engine["version"]
    by_itself = name == "docker" and number(version) >= CDI_BY_ITSELF and found["cdi"] is None
    if wants_cdi(name, version) and found["cdi"] is not True and not by_itself and not first_version(name, engine):
        told.append("CDI is off")
    if name == "containerd" and "cri" in (config.get("disabled_plugins") or []):
        told.append("the CRI plugin is disabled (disabled_plugins)")
    return told + [f"{DROP_IN} hides {setting}" for setting in hidden]


def in_force(name: str, engine: Engine, default: bool) -> str:
    """What is wrong with the running daemon; empty where it is as wanted."""
    if name == "docker":
        return _docker_says(engine, default)
    if name == "crio" and "live" in engine:
        wrong = differences(name, {**engine, "files": {MAIN[name]: {"text": engine["live"]}}}, default)
        return f"crio status config: {'; '.join(wrong)}" if wrong else ""
    if wrong := differences(name, engine, default):
        return f"its configuration: {'; '.join(wrong)}"
    newer = [path for path, file in engine["files"].items() if file["changed"] > engine["started"] + SLACK]
    return f"{' '.join(newer)} changed after the daemon was started" if newer else ""


def _docker_says(engine: Engine, default: bool) -> str:
    try:
        said: dict[str, Any] = dict(json.loads(engine.get("live", "{}")).items())
    except (AttributeError, ValueError, RecursionError):
        return "docker info gives no JSON"
    if said.get("ServerErrors") or "Runtimes" not in said:
        return f"docker info: {' '.join(said.get('ServerErrors') or ['no answer'])}"
    if NAME not in (said.get("Runtimes") or {}):
        return f"docker info lists no runtime {NAME}"
    if (said.get("DefaultRuntime") == NAME) != default:
        return f"docker info: the default runtime is {said.get('DefaultRuntime')}"
    if wants_cdi("docker", engine["version"]) and not said.get("CDISpecDirs"):
        return "docker info lists no CDI directories"
    return ""


def leaves(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every setting as a dotted path with its value."""
    for key, value in config.items():
        path = f"{prefix}{key}"
        if isinstance(value, Mapping) and value:
            yield from leaves(value, f"{path}.")
        else:
            yield path, value


def lost(name: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """The user's settings that a change of the configuration lost or altered, as `path = value`."""
    now = dict(leaves(after))
    return [
        f"{path} = {json.dumps(value, default=str)}"
        for path, value in leaves(before)  # an empty table means no more than a missing one
        if value != {} and not re.fullmatch(OURS[name], path) and now.get(path, lost) != value
    ]


def shadowed(engine: Engine) -> list[str]:
    """Settings of the CRI plugin in the user's files that NVIDIA's drop-in file hides: containerd below 2.1 takes a plugin's
    section from the last file that has one. The drop-in file is a copy from when nvidia-ctk wrote it."""
    files: dict[str, dict[str, Any]] = engine["files"]
    if DROP_IN not in files or number(engine["version"]) >= MERGES_SINCE:
        return []
    tables = {path: _toml(file["text"], path) for path, file in files.items()}
    theirs = [table for path, table in tables.items() if path != DROP_IN and _cri(table)]
    section, mine = ({"plugins": {"cri": _cri(table)}} for table in ((theirs or [{}])[-1], tables[DROP_IN]))
    return lost("containerd", section, mine) if theirs else []


def with_imports(original: str, produced: str) -> str:
    """The text of containerd's main file: the user's own, comments and all, where nvidia-ctk changed no more than `imports`."""
    try:
        old, new = tomllib.loads(original), tomllib.loads(produced)
    except tomllib.TOMLDecodeError:
        return produced
    if not old or old == new:
        return original if old else produced
    line = f"imports = {json.dumps(new.get('imports'))}"
    pattern = re.compile(r"^[ \t]*imports[ \t]*=[ \t]*\[[^\]]*\]", re.MULTILINE)
    text = pattern.sub(lambda _: line, original, count=1) if pattern.search(original) else f"{line}\n{original}"
    return text if _same(text, new) else produced


def _same(text: str, wanted: dict[str, Any]) -> bool:
    try:
        return tomllib.loads(text) == wanted
    except tomllib.TOMLDecodeError:
        return False


def without_default(produced: str) -> str:
    """daemon.json with docker's own default runtime, which nvidia-ctk does not put back: a reload takes that, not its absence."""
    read = json.loads(produced)
    mine = read.get("default-runtime") == NAME
    return json.dumps({**read, "default-runtime": "runc"}, indent=4) + "\n" if mine else produced


def command(engine: Engine, name: str, default: bool, drop_ins: bool, source: str = "file") -> list[str]:
    """How nvidia-ctk is told to register its runtime. `drop_ins`: whether the release knows drop-in files."""
    line = ["nvidia-ctk", "--quiet", "runtime", "configure", f"--runtime={name}", f"--config-source={source}"]
    line += ["--set-as-default"] * default
    first = first_version(name, engine)
    line += ["--enable-cdi"] * (wants_cdi(name, engine["version"]) and not first)
    # Asked for a drop-in file beside a configuration of version 1, which imports none, nvidia-ctk 1.20.1 leaves the runtime out.
    return line + ["--drop-in-config="] * (drop_ins and first)


def first_version(name: str, engine: Engine) -> bool:
    """Whether containerd's main file is of version 1: no imports, and no place for enable_cdi that nvidia-ctk knows."""
    text = engine["files"].get(MAIN["containerd"], {"text": ""})["text"] if name == "containerd" else ""
    read = [line.partition("#")[0].replace(" ", "") for line in text.splitlines()]
    return any(read) and not any(re.fullmatch(r"version=[23]", line) for line in read)


class FilterModule:
    """What Ansible takes from this file."""

    def filters(self) -> dict[str, Any]:
        return {
            "gpuprov_engines": parse,
            "gpuprov_engine_differences": lambda engine, name, default: differences(name, engine, default),
            "gpuprov_engine_in_force": lambda engine, name, default: in_force(name, engine, default),
            "gpuprov_engine_lost": _lost_text,
            "gpuprov_engine_command": command,
            "gpuprov_with_imports": with_imports,
            "gpuprov_without_default": without_default,
        }


def _lost_text(before: Engine, after: Engine, name: str) -> list[str]:
    """What was lost between two states of an engine; an unreadable result has lost everything."""
    try:
        old = configuration(name, before)
        return lost(name, old, configuration(name, after))
    except ValueError as error:
        return [str(error)]
