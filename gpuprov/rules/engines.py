"""Container engines: their configuration of NVIDIA's runtime, and what a change of it lost. Input is the probe's output
as parsed by `engine_output`; nothing here touches a host."""

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gpuprov.rules import cluster_engines, engine_runtimes
from gpuprov.rules.docker_flags import explain_conflicts, find_conflicts
from gpuprov.rules.engine_output import Engine, EngineFile
from gpuprov.rules.engine_runtimes import Registration, Table, parse_toml

NAME, PROGRAM = "nvidia", "nvidia-container-runtime"
PROGRAMS = (PROGRAM, f"/usr/bin/{PROGRAM}")
DROP_IN = "/etc/containerd/conf.d/99-nvidia.toml"
# Said to nvidia-ctk, whose own default is another before: 1.18.0 has config.d for containerd, 1.18 and 1.19 have a
# folder that cri-o does not read: https://github.com/NVIDIA/nvidia-container-toolkit/commit/584f68ef
DROP_INS = {"containerd": DROP_IN, "crio": "/etc/crio/crio.conf.d/99-nvidia.toml"}
MAIN = {"docker": "/etc/docker/daemon.json", "containerd": "/etc/containerd/config.toml", "crio": "/etc/crio/crio.conf"}
# The CRI plugin's name in configuration versions 3 and 4, 2, and 1:
# https://github.com/containerd/containerd/blob/main/docs/cri/config.md containerd 2 has the second name, too: of a
# plugin that keeps the streaming server and needs the first one.
CRI = ("io.containerd.cri.v1.runtime", "io.containerd.grpc.v1.cri", "cri")
# The first releases that know CDI (docker 25 behind features.cdi, which is on by itself from 28.2 on), and the first
# containerd that merges a plugin's section from several files: https://github.com/containerd/containerd/issues/5837
CDI_SINCE = {"docker": (25,), "containerd": (1, 7), "microk8s": (1, 7)}
CDI_BY_ITSELF = (28, 2)
MERGES_SINCE = (2, 1)
CRUN_SINCE = (1, 31)  # cri-o's default runtime: https://github.com/cri-o/cri-o/releases/tag/v1.31.0
NO_FILE_SINCE = (2,)  # containerd 1 dumps no configuration where it has no file
SLACK = 0.5  # seconds by which a start time may be off
OURS = {
    "docker": rf"runtimes\.{NAME}\..*|default-runtime|features\.cdi",
    "containerd": r"imports|version|plugins\.[^ ]+\."
    rf"(enable_cdi|containerd\.(default_runtime_name|default_runtime\..*|runtimes\.{NAME}\..*))",
    "crio": rf"crio\.runtime\.(default_runtime|runtimes\.{NAME}\..*)",
}
# Settings written by nvidia-ctk, or into MicroK8s' template; every other one is the user's.
OURS["microk8s"] = OURS["containerd"]

at, number = engine_runtimes.at, engine_runtimes.number


def configuration(name: str, engine: Engine) -> Table:
    """Return the settings in force at the engine's next start. Raises ValueError with a file that cannot be read."""
    if cluster_engines.is_cluster_engine(name):
        return cluster_engines.predict(name, engine)
    files = engine.files
    if name == "containerd":
        if not engine.dump:
            raise ValueError(f"containerd does not understand its configuration: containerd config dump ({MAIN[name]})")
        return parse_toml(engine.dump, "containerd config dump")
    if name == "docker":
        path = MAIN[name]
        if engine.config not in ("", path):
            raise ValueError(f"docker.service has dockerd read {engine.config} (--config-file), and not {path}")
        text = files.get(path, EngineFile()).text
        try:
            read = json.loads(text) if text.strip() else {}
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{path} is not valid JSON: {error}") from None
        for place, value in ((path, read), (f"runtimes in {path}", at(read, "runtimes", default={}))):
            if not isinstance(value, dict):  # nvidia-ctk dies of a null
                raise ValueError(f"{place} is not a JSON object")
        if both := find_conflicts(read, engine.flags):
            raise ValueError(explain_conflicts(path, both))
        return _add_option(read, path, engine.default)
    merged: Table = {}
    for path in sorted(files, key=lambda file: (file != MAIN[name], file)):
        merged = engine_runtimes.merged(merged, parse_toml(files[path].text, path))
    return merged


def make_rootless_docker(text: str | None) -> Engine:
    """Return a user's own docker, with this daemon.json."""
    return Engine(files={MAIN["docker"]: EngineFile(text=text or "")})


def _add_option(read: Table, path: str, default: str) -> Table:
    """Return daemon.json with the default runtime of dockerd's own command line; dockerd refuses to start with both,
    but keeps running with both until then."""
    # https://docs.docker.com/engine/daemon/troubleshoot/#resolve-conflicts-between-the-daemonjson-and-startup-scripts
    if default and "default-runtime" in read:
        message = f"{path} has default-runtime, and docker.service gives dockerd --default-runtime {default}"
        raise ValueError(f"{message}: it does not start with both")
    return {**read, "default-runtime": default} if default else read


def registered(name: str, config: Table) -> Registration:
    """Return how NVIDIA's runtime is registered."""
    if name == "docker":
        own, default = at(config, "runtimes", NAME), config.get("default-runtime")
        path = at(own, "options", "BinaryName") if at(own, "runtimeType") else at(own, "path")
        return Registration(path or "", default or "", at(config, "features", "cdi"))
    if name == "crio":
        runtime = at(config, "crio", "runtime") or {}
        path, default = at(runtime, "runtimes", NAME, "runtime_path"), at(runtime, "default_runtime")
        return Registration(path or "", default or "")
    section = get_cri(config)
    path = at(section, "containerd", "runtimes", NAME, "options", "BinaryName")
    default = at(section, "containerd", "default_runtime_name")
    return Registration(path or "", default or "", at(section, "enable_cdi"))


def get_cri(config: Table) -> Table:
    """Return the section of containerd's CRI plugin."""
    return next((table for plugin in CRI if isinstance(table := at(config, "plugins", plugin), Mapping)), {})


def refused(name: str, engine: Engine) -> str:
    """Return why no runtime can be registered until the configuration is fixed by hand; empty if one can."""
    try:
        config = configuration(name, engine)
        if name == "containerd":
            shadowed(engine)  # reads each file
    except ValueError as error:
        return str(error)
    if plugin := name == "containerd" and next(
        (own for own in CRI if own in (config.get("disabled_plugins") or [])), ""
    ):
        return f"the CRI plugin is disabled (disabled_plugins: {plugin})"
    if unread := name == "containerd" and _find_unread(engine, config):
        where = f"{MAIN[name]}, which is of version 1"
        return f"containerd {engine.version} does not take {unread} from {where}: rewrite it in version 2"
    return ""


def _find_unread(engine: Engine, config: Table) -> str:
    """Return a runtime of a main file of version 1: containerd 2.1 ignores the CRI settings of such a file."""
    if number(engine.version) < NO_FILE_SINCE or not first_version("containerd", engine):
        return ""
    main = parse_toml(engine.files[MAIN["containerd"]].text, MAIN["containerd"])
    main_runtimes, have = (at(get_cri(table), "containerd", "runtimes") or {} for table in (main, config))
    expected, present = (
        {n: at(r, "options", "BinaryName") or "" for n, r in runtimes.items()} for runtimes in (main_runtimes, have)
    )
    return next((f"runtime {name}" for name in expected if present.get(name) != expected[name]), "")


def wants_cdi(name: str, version: str, reported: bool | None) -> bool:
    """True if this release needs CDI devices enabled explicitly; `reported`: the setting in its configuration."""
    if name == "docker" and number(version) >= CDI_BY_ITSELF:
        return reported is False
    return name in CDI_SINCE and number(version) >= CDI_SINCE[name]


def differences(name: str, engine: Engine, default: bool) -> list[str]:
    """Describe what the configuration of the next start lacks; nothing if it matches."""
    if why := refused(name, engine):
        return [why]
    config = configuration(name, engine)
    problems = _list_lacking(name, engine, config, default)
    if cluster_engines.is_cluster_engine(name):
        return problems
    problems += unusable(name, engine)
    if not default:
        own = registered(name, config).default
        problems += engine_runtimes.missing_default(name, at(runtimes(name, engine), "runtimes"), own)
    hidden = shadowed(engine) if name == "containerd" else []
    return problems + [f"{DROP_IN} hides {setting}" for setting in hidden]


def _list_lacking(name: str, engine: Engine, config: Table, default: bool) -> list[str]:
    """Describe what a configuration lacks of the runtime, of the default one, and of CDI."""
    runtime, problems = registered(name, config), []
    if runtime.path not in PROGRAMS:
        problems.append(f"runtime {NAME} is {runtime.path}" if runtime.path else f"no runtime {NAME}")
    if default != (runtime.default == NAME):
        by = f", by --default-runtime in {get_unit(name, engine)}" if engine.default else ""
        problems.append(f"the default runtime is {runtime.default or 'runc'}{by}")
    untold = runtime.cdi is not True and wants_cdi(name, engine.version, runtime.cdi)
    return problems + ["CDI is off"] * (untold and not first_version(name, engine))


def get_unit(name: str, engine: Engine) -> str:
    """Return the unit of an engine's daemon."""
    return engine.unit or f"{name}.service"


def get_main(name: str) -> str:
    """Return the file that registers an engine's runtimes."""
    return {**cluster_engines.WRITTEN, "microk8s": cluster_engines.TEMPLATE, **MAIN}[name]


def unusable(name: str, engine: Engine) -> list[str]:
    """Describe what prevents containers with NVIDIA's runtime from starting correctly."""
    if name == "docker":
        return engine_runtimes.unusable_in_docker(at(configuration(name, engine), "runtimes", NAME))
    return engine_runtimes.unusable(name, has_old_shims(name, engine), runtimes(name, engine))


def has_old_shims(name: str, engine: Engine) -> bool:
    """True for a containerd with the runtime types that were removed in 2.0."""
    return name == "containerd" and number(engine.version) < NO_FILE_SINCE


def runtimes(name: str, engine: Engine) -> Any:
    """Return an engine's runtimes, and its default one."""
    config = configuration(name, engine)
    return (
        config
        if name == "docker"
        else at(config, "crio", "runtime")
        if name == "crio"
        else at(get_cri(config), "containerd")
    )


def in_force(name: str, engine: Engine, default: bool) -> str:
    """Return what is wrong with the running daemon; empty if it matches."""
    if name == "docker":
        knows_cdi = number(engine.version) >= CDI_SINCE["docker"]
        return engine_runtimes.judge_docker(engine.live or "{}", default, knows_cdi)
    if cluster_engines.is_cluster_engine(name):
        try:
            written = cluster_engines.read_written(name, engine)
        except ValueError as error:
            return str(error)
        wrong = _list_lacking(name, engine, written, default)
        return f"{cluster_engines.WRITTEN[name]}, which it wrote when it started: {'; '.join(wrong)}" if wrong else ""
    if name == "crio" and engine.live:
        wrong = differences(name, replace(engine, files={MAIN[name]: EngineFile(text=engine.live)}), default)
        return f"crio status config: {'; '.join(wrong)}" if wrong else ""
    if wrong := differences(name, engine, default):
        return f"its configuration: {'; '.join(wrong)}"
    newer = [path for path, file in engine.files.items() if file.changed > engine.started + SLACK]
    return f"{' '.join(newer)} changed after the daemon was started" if newer else ""


def lost(name: str, before: Table, after: Table) -> list[str]:
    """Return the user's settings that a change of the configuration lost or altered, as `path = value`."""
    now = dict(engine_runtimes.leaves(after))
    return [
        f"{path} = {json.dumps(value, default=str)}"
        for path, value in engine_runtimes.leaves(before)  # an empty table means no more than a missing one
        if value != {} and not re.fullmatch(OURS[name], path) and now.get(path, lost) != value
    ]


def shadowed(engine: Engine) -> list[str]:
    """Return settings of the CRI plugin in the user's files that NVIDIA's drop-in file hides: containerd below 2.1
    takes a plugin's section from the last file that has one. The drop-in is a copy from when nvidia-ctk wrote it."""
    files = engine.files
    if DROP_IN not in files or number(engine.version) >= MERGES_SINCE:
        return []
    tables = {path: parse_toml(file.text, path) for path, file in files.items()}
    theirs = [table for path, table in tables.items() if path != DROP_IN and get_cri(table)]
    section, own = ({"plugins": {"cri": get_cri(table)}} for table in ((theirs or [{}])[-1], tables[DROP_IN]))
    return lost("containerd", section, own) if theirs else []


def command(engine: Engine, name: str, default: bool, drop_ins: bool, source: str = "file") -> list[str]:
    """Return the nvidia-ctk command that registers its runtime. `drop_ins`: the release supports drop-in files."""
    line = ["nvidia-ctk", "--quiet", "runtime", "configure", f"--runtime={name}", f"--config-source={source}"]
    line += ["--set-as-default"] * (default and not engine.default)
    first = first_version(name, engine)
    reported = registered(name, configuration(name, engine)).cdi if name == "docker" else None
    line += ["--enable-cdi"] * (wants_cdi(name, engine.version, reported) and not first)
    # Asked for a drop-in file beside a configuration of version 1, nvidia-ctk 1.20.1 leaves the runtime out.
    beside = "" if first else DROP_INS.get(name, "")
    return line + [f"--drop-in-config={beside}"] * (drop_ins and name in DROP_INS)


def first_version(name: str, engine: Engine) -> bool:
    """True if containerd's main file is of version 1: it has no place for enable_cdi, and no drop-in file."""
    text = engine.files.get(MAIN["containerd"], EngineFile()).text if name == "containerd" else ""
    try:
        return bool(read := parse_toml(text, MAIN["containerd"])) and read.get("version", 1) in (0, 1)
    except ValueError:
        return False


def seed(name: str, engine: Engine) -> str:
    """Return the initial main file if there is none and nvidia-ctk cannot query the engine without it; else empty."""
    missing = name == "containerd" and MAIN[name] not in engine.files
    return "version = 2\n" if missing and number(engine.version) < NO_FILE_SINCE else ""


def ordinary(name: str, engine: Engine) -> str:
    """Return the new default runtime if NVIDIA's was the default and should not be; empty: none, or no need."""
    if name == "docker" or registered(name, config := configuration(name, engine)).default != NAME:
        return ""
    if name == "crio":
        tables = [parse_toml(file.text, path) for path, file in engine.files.items()]
        others = [at(table, "crio", "runtime", "default_runtime") or NAME for table in tables]
        own = "crun" if number(engine.version) >= CRUN_SINCE else "runc"
        return next((other for other in reversed(others) if other != NAME), own)
    runtimes = set(at(get_cri(config), "containerd", "runtimes") or {}) - {NAME}
    return "runc" if "runc" in runtimes else min(runtimes, default="")


def lost_between(name: str, before: Engine, after: Engine) -> list[str]:
    """Return what was lost between two states of an engine; an unreadable result has lost everything."""
    try:
        old = configuration(name, before)
        return lost(name, old, configuration(name, after))
    except ValueError as error:
        return [str(error)]
