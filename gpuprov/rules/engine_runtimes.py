"""Settings that make NVIDIA's runtime usable beside its program: a type that runs the program, and what it must share
with the runtime that an engine uses without it; nvidia-ctk copies those of the main file."""

import json
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

# A table of an engine's TOML or JSON, with settings of the site that nobody here knows.
Table: TypeAlias = Mapping[str, Any]
NAME = "nvidia"
DEFAULTS = {"containerd": "default_runtime_name", "crio": "default_runtime"}
# Without the first, pods are outside the kubelet's slices and limits. Without the second, cri-o looks for conmon on
# its PATH, where its own packages do not install it, and does not start:
# https://github.com/NVIDIA/nvidia-container-toolkit/issues/681
COPIED = {"containerd": ("options", "SystemdCgroup"), "crio": ("monitor_path",)}
# The types of runtimes that run their own program; the first is written. containerd creates no container without a
# type ("container.Runtime.Name must be set"): https://github.com/NVIDIA/nvidia-container-toolkit/issues/1956. cri-o
# treats no type as the first: https://github.com/cri-o/cri-o/blob/main/pkg/config/config.go
TYPES = {"containerd": ("io.containerd.runc.v2",), "crio": ("oci", "")}
# Types of containerd 1; the second runs `Runtime`, and not `BinaryName`. Both were removed in 2.0:
# https://github.com/containerd/containerd/blob/main/RELEASES.md
RUNC_V1, LINUX_V1 = "io.containerd.runc.v1", "io.containerd.runtime.v1.linux"
# Default runtimes that need no table.
BUILT_IN = {"docker": ("runc",), "crio": ("runc", "crun"), "containerd": ()}
ON_PATH = ("", *(f"{folder}/{kind}" for folder in ("/usr/local", "/usr", "") for kind in ("sbin", "bin")))


class Registration(NamedTuple):
    """NVIDIA's runtime in a configuration: `path` of its program, the `default` runtime, `cdi` (None: not set)."""

    path: str
    default: str
    cdi: bool | None = None


def at(config: object, *path: str, default: object = None) -> Any:
    """Return the value at a path; None, or the default, if there is none."""
    for key in path:
        config = config.get(key, default) if isinstance(config, Mapping) else default
    return config


def copied(name: str, section: object) -> tuple[str, Any]:
    """Return the runtime, and its value of COPIED; empty if NVIDIA's needs none. `section`: the engine's runtimes."""
    for runtime in (str(at(section, DEFAULTS[name])), "runc", "crun"):
        if runtime != NAME and (table := at(section, "runtimes", runtime)):
            value = at(table, *COPIED[name])
            elsewhere = isinstance(value, str) and value.rpartition("/")[0] not in ON_PATH
            return (runtime, value) if value is True or elsewhere else ("", None)
    return "", None


def usable_types(name: str, first: bool, runtime: object) -> tuple[str, ...]:
    """Return the allowed types of NVIDIA's runtime. `first`: for containerd 1."""
    if name != "containerd" or not first:
        return TYPES[name]
    options = at(runtime, "options")
    same = at(options, "Runtime") and at(options, "Runtime") == at(options, "BinaryName")
    return (*TYPES[name], RUNC_V1, *([LINUX_V1] if same else []))


def needed(name: str, first: bool, section: object, own: object) -> list[tuple[list[str], str, Any]]:
    """Return what NVIDIA's runtime `own` lacks: the tables below its own, the key, and the value. `section`: the
    engine's runtimes."""
    lacking: list[tuple[list[str], str, Any]] = []
    if own and (at(own, "runtime_type") or "") not in usable_types(name, first, own):
        lacking.append(([], "runtime_type", TYPES[name][0]))
    other, value = copied(name, section)
    if other and own and not at(own, *COPIED[name]):
        *folders, key = COPIED[name]
        lacking.append((folders, key, value))
    return lacking


def unusable(name: str, first: bool, section: object) -> list[str]:
    """Describe why containers with NVIDIA's runtime would not start correctly."""
    own, problems = at(section, "runtimes", NAME), []
    for _, key, value in needed(name, first, section, own):
        if key != "runtime_type":
            problems.append(f"runtime {NAME} has no {key}, which {copied(name, section)[0]} has")
        elif kind := at(own, key):
            problems.append(f"runtime {NAME} is of type {kind}, and not {value}, which runs its program")
        else:
            problems.append(f"runtime {NAME} has no runtime_type, without which no container of it is created")
    return problems


def unusable_in_docker(own: object) -> list[str]:
    """Describe why docker does not start with NVIDIA's runtime."""
    # https://github.com/moby/moby/blob/master/daemon/runtime_unix.go
    both = f"runtime {NAME} has both path and runtimeType: docker does not start with both"
    return [both] if at(own, "path") and at(own, "runtimeType") else []


def missing_default(name: str, runtimes: object, default: str) -> list[str]:
    """Report that the default runtime does not exist, so that the engine does not start."""
    # https://github.com/moby/moby/blob/master/daemon/runtime_unix.go
    # https://github.com/containerd/containerd/blob/main/internal/cri/config/config.go
    known = default in BUILT_IN[name] or (name == "docker" and default.startswith("io.containerd."))
    present = not default or default == NAME or known or at(runtimes, default) is not None
    return [] if present else [f"the default runtime is {default}, which is not among the runtimes"]


def merged(under: Table, over: Table) -> Table:
    """Merge one table over another, table by table."""
    result = dict(under)
    for key, value in over.items():
        current = result.get(key)
        result[key] = merged(current, value) if isinstance(current, Mapping) and isinstance(value, Mapping) else value
    return result


def leaves(config: Table, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every setting as a dotted path with its value."""
    for key, value in config.items():
        path = f"{prefix}{key}"
        if isinstance(value, Mapping) and value:
            yield from leaves(value, f"{path}.")
        else:
            yield path, value


def number(version: str) -> tuple[int, ...]:
    """Parse `28.2.1` to numbers."""
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])


@lru_cache(maxsize=64)
def parse_toml(text: str, place: str) -> Table:
    """Parse TOML, cached: hosts of a fleet have the same files, and a host is read several times. Callers must not
    modify the result."""
    import tomllib

    if len(text) > 1 << 19 or re.search(r"(?:\.[ \t]*+[\w\"'-]++[ \t]*+){100}", text):
        raise ValueError(f"{place} is larger, or nests deeper, than any that an engine reads")
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{place} is not valid TOML: {error}") from None


def judge_docker(live: str, default: bool, knows_cdi: bool) -> str:
    """Return what is wrong by the output of docker info; empty if it matches."""
    try:
        info: Table = dict(json.loads(live).items())
    except (AttributeError, ValueError, RecursionError):
        return "docker info gives no JSON"
    if info.get("ServerErrors") or "Runtimes" not in info:
        return f"docker info: {' '.join(info.get('ServerErrors') or ['no answer'])}"
    if NAME not in (info.get("Runtimes") or {}):
        return f"docker info lists no runtime {NAME}"
    if (info.get("DefaultRuntime") == NAME) != default:
        return f"docker info: the default runtime is {info.get('DefaultRuntime')}"
    if knows_cdi and not info.get("CDISpecDirs"):
        return "docker info lists no CDI directories"
    return ""
