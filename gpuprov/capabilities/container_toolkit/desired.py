"""Desired state of the role: the packages, the runtime in engines and for users, its mode, and the units that keep GPUs
through each boot."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace

from gpuprov.capabilities.answers import BEFORE, HEADER
from gpuprov.capabilities.base import Context, Desired, Resources
from gpuprov.capabilities.container_toolkit.decision import PROBES, Decision, decide, repository
from gpuprov.capabilities.container_toolkit.fragment import (
    ContainerToolkit,
    ask_image,
    installed,
    modern,
    registrable,
    runners,
    specification_file,
)
from gpuprov.capabilities.container_toolkit.fragment import engines as find_engines
from gpuprov.capabilities.container_toolkit.readers import needed_flags, too_old
from gpuprov.capabilities.container_toolkit.registration import FILES, count_running
from gpuprov.capabilities.container_toolkit.tasks import TASKS
from gpuprov.capabilities.steps import Step, hand_steps
from gpuprov.catalog import container_toolkit as catalogue
from gpuprov.facts.probes.containers.container_engines import ENGINES
from gpuprov.facts.probes.containers.container_toolkit import TOOLKIT, Toolkit
from gpuprov.facts.probes.gpus.cuda_runs import CUDA_IMAGES
from gpuprov.facts.probes.software.repositories import REPOSITORIES
from gpuprov.host_code.cdi import LINKS, MAKE_UVM, SPECIFICATION, UVM
from gpuprov.host_code.json_members import Json
from gpuprov.resources import Absent, File, Lines, Resource, Unit, role_values
from gpuprov.rules import engines, resolve
from gpuprov.rules.cluster_engines import SETTINGS, derive_drop_in
from gpuprov.rules.engine_output import SERVICES

OWN_FILES = tuple(f"/etc/systemd/system/{name}" for name in catalogue.OWN_UNITS)
RULE = f"""{HEADER}\
# Without a link in /dev/char, systemd forgets a container's device at its next daemon-reload:
# https://github.com/NVIDIA/nvidia-container-toolkit/issues/48
ACTION=="add", DEVPATH=="/bus/pci/drivers/nvidia", RUN+="/usr/bin/{" ".join(word for word in LINKS if word != "--quiet")}"
"""
DROP_IN = f"""{HEADER}\
# Before 1.20 the unit makes no {UVM}, and the specification has the device files that are there. 1.18.0 and 1.18.1 do not run
# where Debian calls the module nvidia-current, or where modules are compressed. No release's runs in a system container, which has no
# modules of its own. Before 1.20.1 no engine waits for it, podman's units and k3s never.
[Unit]
After=systemd-modules-load.service nvidia-persistenced.service
{BEFORE}
[Service]
TimeoutStartSec=90s
ExecCondition=
ExecCondition=/bin/sh -c 'systemd-detect-virt -qc || grep -qE "/(nvidia|nvidia-current)[.]ko" /lib/modules/%v/modules.dep'
ExecStartPre=-/bin/sh -c '{MAKE_UVM}'
"""
OWN_PATH = f"""{HEADER}\
[Unit]
Description=Refresh of the CDI specification after a change of driver or toolkit

[Path]
PathChanged=/lib/modules/%v/modules.dep
PathChanged=/usr/bin/nvidia-ctk

[Install]
WantedBy=multi-user.target
"""
OWN_SERVICE = f"""{HEADER}\
[Unit]
Description=Refresh of the CDI specification of the NVIDIA GPUs
ConditionPathExists=/usr/bin/nvidia-ctk
ConditionPathExists=/usr/bin/nvidia-smi
After=systemd-modules-load.service nvidia-persistenced.service
{BEFORE}
[Service]
Type=oneshot
TimeoutStartSec=90s
# The first answer of nvidia-smi loads the driver and makes the device files.
ExecStartPre=-/usr/bin/nvidia-smi -L
# What it does not make is {UVM}: the specification has the device files that are there.
ExecStartPre=-/bin/sh -c '{MAKE_UVM}'
ExecStart=/usr/bin/nvidia-ctk --quiet cdi generate --output=FILE

[Install]
WantedBy=multi-user.target
"""
IMAGES = replace(CUDA_IMAGES, asks=ask_image)
PULLS = {"containerd": "ctr images"}
# The file that the toolkit's own unit writes unless configured otherwise.
DEFAULT_PLACE = f"/var/run/cdi/{SPECIFICATION}"
PODMAN_SOCKET = "podman.socket"
ENGINE_UNITS = ("docker.service", "containerd.service", "crio.service", PODMAN_SOCKET, *SERVICES)
Ctx = Context[ContainerToolkit]


def packages(ctx: Ctx, decision: Decision) -> dict[str, Json]:
    """Return the transaction, and what is held or released after it."""
    present = {name: package.version for name, package in installed(ctx.facts).items()}
    moves = any(present.get(name) != version for name, version in decision.packages.items())
    return {
        "of": "the toolkit",
        "fix": "another container_toolkit.version, or correct what it says",
        "install": [f"{name}={version}" for name, version in decision.packages.items()] if moves else [],
        "hold": list(catalogue.PACKAGES) if ctx.fragment.hold else [],
        "release": [] if ctx.fragment.hold else list(catalogue.PACKAGES),
    }


def settings(target_mode: str, toolkit: Toolkit, runtimes: list[str]) -> list[str]:
    """Return the command that sets the runtime's mode, cgroups, and `runtimes` if it finds none; empty if all are
    set."""
    mode = engines.at(toolkit.settings, "nvidia-container-runtime", "mode")
    bare = engines.at(toolkit.settings, "nvidia-container-cli", "no-cgroups") is True
    if mode == target_mode and not bare and not runtimes:
        return []
    if loses(toolkit):
        words = [edit("nvidia-container-runtime", "mode", f'"{target_mode}"', toolkit.settings)] * (mode != target_mode)
        words += [edit("nvidia-container-cli", "no-cgroups", "false", toolkit.settings)] * bare
        words += [edit("nvidia-container-runtime", "runtimes", json.dumps(runtimes), toolkit.settings)] * bool(runtimes)
        return ["sed", "-E", "-i", "--follow-symlinks", "; ".join(words), catalogue.CONFIG]
    arguments = [f"nvidia-container-runtime.mode={target_mode}", "nvidia-container-cli.no-cgroups=false"]
    arguments += [f"nvidia-container-runtime.runtimes={':'.join(runtimes)}"] * bool(runtimes)
    command = ["nvidia-ctk", "--quiet", "config", f"--config-file={catalogue.CONFIG}", "--in-place"]
    return [*command, *(word for argument in arguments for word in ("--set", argument))]


def loses(toolkit: Toolkit) -> bool:
    """Return whether this nvidia-ctk would comment out a setting of the site's."""
    if toolkit.version and resolve.order(toolkit.version) >= resolve.order(catalogue.KEEPS_SETTINGS):
        return False
    return any(engines.at(toolkit.settings, *path) == value for path, value in catalogue.COMMENTED.items())


def edit(table: str, key: str, value: str, settings: Mapping[str, Json]) -> str:
    """Return sed's edit of a table: put the value in the key's place, or the key behind the header."""
    header = rf"^[[:space:]]*\[{table}\][[:space:]]*(#.*)?$"
    if engines.at(settings, table, key) is None:
        return rf"/{header}/s|$|\n{key} = {value}|"
    return rf"/{header}/,/^[[:space:]]*\[/s|^[[:space:]]*{key}[[:space:]]*=.*|{key} = {value}|"


def refresh_environment(ctx: Ctx, version: str) -> Lines:
    """Return the environment of the toolkit's own unit (gpuprov's units have it in their text): the output path, and
    the features without which an engine could not read it; the site's features stay."""
    present, place = ctx.facts.get(TOOLKIT).flags, specification_file(ctx.fragment)
    missing = [flag for flag in needed_flags(ctx.fragment, ctx.facts, version) if flag not in present]
    flags = {catalogue.FLAGS_VARIABLE: ",".join([*present, *missing])} if missing else {}
    return Lines(
        path=catalogue.REFRESH_ENVIRONMENT,
        keys={catalogue.OUTPUT_VARIABLE: place, **flags},
        made=True,
        optional=place == DEFAULT_PLACE and not missing,
        why=f"{', '.join(too_old(ctx.fragment, ctx.facts))} could not read the specification of a boot"
        if missing
        else "",
    )


def configured(ctx: Ctx, version: str) -> Iterator[Resource]:
    """Yield one pair of units that refresh the CDI specification at each boot, the toolkit's own or gpuprov's, and the
    rule for links in /dev/char."""
    new, file = modern(version), specification_file(ctx.fragment)
    own = dict(zip(OWN_FILES, (OWN_PATH, OWN_SERVICE.replace("FILE", file)), strict=True))
    texts = {catalogue.UDEV_RULE: RULE, **({catalogue.REFRESH_DROP_IN: DROP_IN} if new else own)}
    whole = resolve.order(version) >= resolve.order(catalogue.MAKES_UVM)
    yield from (File(path, text, optional=whole) for path, text in texts.items())
    yield from (Absent(path) for path in (*OWN_FILES, catalogue.REFRESH_DROP_IN) if path not in texts)
    yield from tell_clusters(ctx)
    if new:
        yield refresh_environment(ctx, version)
        yield from (Unit(name=name, enabled=False, active=False) for name in catalogue.OWN_UNITS)
    yield from (Unit(name=name, enabled=True) for name in (catalogue.REFRESH_UNITS if new else catalogue.OWN_UNITS))
    yield from start_engines(ctx)


def start_engines(ctx: Ctx) -> Iterator[Unit]:
    """Yield the engines' units that start at a boot, but those that another one starts then: containerd by docker, a
    daemon without running containers, which would wait for the first client, by its socket. podman's socket is one
    where it listens now."""
    for name, engine in find_engines(ctx.fragment, ctx.facts).items():
        if engine is None or (name == "podman" and engine.active != "active"):
            continue
        if not engine.starter or (engine.starter.endswith(".socket") and count_running(engine)):
            yield Unit(name=PODMAN_SOCKET if name == "podman" else engines.get_unit(name, engine), enabled=True)


def tell_clusters(ctx: Ctx) -> Iterator[Resource]:
    """Yield the default runtime as a setting of k3s and RKE2."""
    present = registrable(ctx.fragment, ctx.facts)
    for name, path in SETTINGS.items():
        text = derive_drop_in(name, present[name], ctx.fragment.default_runtime) if name in present else ""
        yield File(path, HEADER + text) if text else Absent(path)


def waiting(ctx: Ctx, decision: Decision) -> dict[str, str]:
    """Return what cannot be resolved before the site's repository is added, as the preflight takes it."""
    if not decision.source:
        return {}
    message = f"container toolkit {ctx.fragment.version} is resolved when apply has added {decision.source}"
    problem = decision.problem or f"{decision.source} is not among the package sources"
    return {"told": message, "problem": f"{problem}. Fix: {decision.fix or 'see what the host says of that source'}"}


def make(ctx: Ctx) -> dict[str, Json]:
    """Return the role's values. `repository`: the site's, to be added first; `later`: what waits for it. The
    transaction: `install`, `hold`, `release`. For each boot: the resources of `configured`. The engines, whether
    nvidia-ctk writes files of its own beside theirs, and the command that sets the mode, are those of tasks."""
    decision, toolkit = decide(ctx), ctx.facts.get(TOOLKIT)
    names, default = list(registrable(ctx.fragment, ctx.facts)), {"default": ctx.fragment.default_runtime}
    drop_ins = modern(decision.version or toolkit.version)
    own = [name for name in names if name in FILES]
    users, argv = list(ctx.fragment.rootless), settings(ctx.fragment.mode, toolkit, runners(ctx.fragment, ctx.facts))
    steps = [
        Step("cdi", {"directory": ctx.fragment.cdi_directory}),
        Step("register", {"names": own, "users": users, **default, "drop_ins": drop_ins}, own or users),
        Step("daemons", {"names": names, **default}, names),
        Step("restart", default, names),
        Step("settings", {"argv": argv}, argv),
        Step("pull", {"argv": pull(ctx), "fix": "pull it by hand, as a user that the registry knows"}, pull(ctx)),
    ]
    return {
        "later": waiting(ctx, decision),
        "repository": repository(ctx),
        **packages(ctx, decision),
        **role_values(coming(ctx), "files", "absent", "lines", "on", "off"),
        "tasks": hand_steps(steps, TASKS),
    }


def pull(ctx: Ctx) -> list[str]:
    """Return the command that pulls the image in which CUDA is proved, for the engines that lack it; empty if none may
    or need."""
    image, lacking = ctx.fragment.cuda_image, ctx.facts.get(IMAGES) if ctx.fragment.cuda_pull else ()
    return ["sh", "-c", " && ".join(f"{PULLS.get(name, name)} pull {image}" for name in lacking)] if lacking else []


def desired(ctx: Ctx) -> Iterator[Resource]:
    """Yield what is set for each boot, for the installed toolkit."""
    return configured(ctx, ctx.facts.get(TOOLKIT).version)


def coming(ctx: Ctx) -> Iterator[Resource]:
    """Yield the same for the toolkit that will be installed when the role has finished."""
    return configured(ctx, decide(ctx).version or ctx.facts.get(TOOLKIT).version)


# Every file that the role may write.
PATHS = (*SETTINGS.values(), *OWN_FILES, catalogue.REFRESH_DROP_IN, catalogue.UDEV_RULE)
RESOURCES = Resources(
    desired,
    lambda _host, _block: PATHS,
    (TOOLKIT, ENGINES),
    lines=(catalogue.REFRESH_ENVIRONMENT,),
    coming=coming,
    units=lambda _host, _block: (*catalogue.REFRESH_UNITS, *catalogue.OWN_UNITS, *ENGINE_UNITS),
    proves={"files": ("cdi_directory", "default_runtime"), "enabled": ("cdi_directory", "runtimes")},
)
DESIRED = Desired((*PROBES, REPOSITORIES, ENGINES, TOOLKIT, IMAGES), make)
