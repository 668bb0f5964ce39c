"""Checks that containers keep their GPUs: the CDI specification, the folders that engines read it from, what refreshes
it, and what a daemon-reload would take away."""

import re
from collections.abc import Iterator, Mapping

from gpuprov.capabilities.answers import APPLY
from gpuprov.capabilities.base import Change, Context, Outcome, check, fail, ok, skip
from gpuprov.capabilities.container_toolkit.fragment import (
    ContainerToolkit,
    effective_mode,
    registrable,
    specification_file,
)
from gpuprov.capabilities.container_toolkit.readers import needed_flags, read_report, readers, unread
from gpuprov.catalog import container_toolkit as catalogue
from gpuprov.core import safe_parse
from gpuprov.core.sanitize import counted
from gpuprov.facts.probes.base import Facts
from gpuprov.facts.probes.containers.container_engines import ENGINES
from gpuprov.facts.probes.containers.container_toolkit import (
    CDI,
    CDI_ANSWERS,
    DEVICES,
    GPU_KIND,
    TOOLKIT,
    Devices,
    Specification,
)
from gpuprov.facts.probes.driver import nvidia
from gpuprov.facts.probes.host import pci, system
from gpuprov.host_code.cdi import SPECIFICATION, UVM
from gpuprov.rules import engines as files
from gpuprov.rules.engine_output import Engine
from gpuprov.rules.engine_runtimes import parse_toml

Ctx = Context[ContainerToolkit]


@check(
    "container_toolkit.cdi",
    *(CDI, CDI_ANSWERS, ENGINES, DEVICES, TOOLKIT, nvidia.LIBRARIES, pci.NVIDIA_FUNCTIONS, system.CONTAINER),
    fields=("cdi_directory",),
    evidence="nvidia-ctk cdi list; nvidia-smi -L; docker info; podman --log-level debug run --device "
    "nvidia.com/gpu=all IMAGE true",
)
def specification(ctx: Ctx) -> Outcome:
    """One CDI specification names exactly the GPUs and MIG devices that nvidia-smi lists, with /dev/nvidia-uvm, without
    which no CUDA program starts, and with files of the installed driver; and each engine looks for it there and can
    read it: by its own report (podman, docker 28.2 and newer), or else by its settings and its release."""
    if not pci.gpus(ctx.facts.get(pci.NVIDIA_FUNCTIONS)):
        return skip("no NVIDIA GPU on the PCI bus: there is nothing to specify")
    devices, specifications = ctx.facts.get(DEVICES), ctx.facts.get(CDI)
    expected = f"{specification_file(ctx.fragment)} with {counted(len(devices.names), 'device')}"
    change = Change(kind="file", name=specification_file(ctx.fragment), after="made anew")
    fix = f"{APPLY}, or nvidia-ctk cdi generate --output={specification_file(ctx.fragment)}"
    kind = ctx.facts.get(system.CONTAINER)
    if devices.complaint and kind:
        return skip(f"{kind} container without a loaded driver of its machine's: {devices.complaint}")
    if devices.complaint:
        return fail(expected, f"nvidia-smi: {devices.complaint}", "see nvidia_driver.loaded")
    own = next((candidate for candidate in specifications if candidate.path == specification_file(ctx.fragment)), None)
    if own is None:
        return fail(expected, "no such file", fix, changes=[change])
    others = [other.path for other in specifications if other.path != own.path and other.kind == own.kind]
    if others:
        return _refuse_others(own, others)
    wrong = (
        stale(own, devices)
        or without_uvm(own)
        or of_other_driver(own, ctx.facts.get(nvidia.LIBRARIES).get("libcuda", ""))
    )
    if wrong:
        return fail(expected, wrong, fix, changes=[change])
    if missed := _judge_place(ctx, own):
        return missed
    unreadable, newer = unread(ctx.fragment, ctx.facts, own)
    if unreadable:
        flags = needed_flags(ctx.fragment, ctx.facts, ctx.facts.get(TOOLKIT).version)
        again = f"{fix}{''.join(f' --feature-flag={flag}' for flag in flags)}"
        return fail(f"{own.path}, which engines can read", unreadable, f"{again}; or {newer}", changes=[change])
    return ok(f"{own.path}: {' '.join(devices.names) or 'no device, as MIG mode without instances'}", expected)


def _refuse_others(own: Specification, others: list[str]) -> Outcome:
    going = [path for path in others if path.endswith(f"/{SPECIFICATION}")]  # others are left to the site
    gone = [Change(kind="file", name=path, after="removed") for path in going]
    message = f"a second specification of {own.kind}: {' '.join(others)}"
    return fail("one specification", message, f"rm {' '.join(others)}: engines take both", changes=gone)


def _judge_place(ctx: Ctx, own: Specification) -> Outcome | None:
    """Return the failure where users cannot read the specification, or engines look elsewhere; None if neither is
    so."""
    folder = ctx.fragment.cdi_directory
    if own.closed and (ctx.fragment.rootless or "podman" in ctx.facts.get(ENGINES)):
        message = f"{own.path} can be read by root alone: engines of users have no GPU by it"
        return fail(f"{own.path}, which users can read", message, f"chmod o+r {own.path}; chmod o+rx {folder}")
    if misses := list(list_misses(ctx.fragment, ctx.facts)):
        settings = ", ".join(dict.fromkeys(setting for _, setting in misses))
        where = f"put {folder} into {settings}, or take it out, and restart the engine"
        return fail(f"{own.path}, where engines look", "; ".join(words for words, _ in misses), where)
    return None


def stale(cdi_spec: Specification, devices: Devices) -> str:
    """Return how a specification differs from nvidia-smi's list; by UUID too, if it names UUIDs. Empty if it does
    not."""
    # A site may have UUIDs alone, or gpu0 and mig0:1:
    # https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/cdi-support.html
    named = {re.sub(r"^(gpu|mig)(?=\d)", "", name) for name in cdi_spec.devices} - {"all", *devices.parents}
    uuids = {name for name in named if name.startswith(("GPU-", "MIG-"))}
    missing = sorted(set(devices.names) - named) if named - uuids or not uuids else []
    missing += sorted(set(devices.uuids) - uuids) if uuids else []
    gone = sorted(named - uuids - set(devices.names)) + sorted(uuids - set(devices.uuids))
    problems = [f"not in it: {' '.join(missing)}"] if missing else []
    return "; ".join(problems + ([f"in it, and gone: {' '.join(gone)}"] if gone else []))


def without_uvm(cdi_spec: Specification) -> str:
    """Return the message that programs would not find the device file of unified memory; empty if they would."""
    return "" if cdi_spec.uvm else f"not in it: {UVM}, which was not there when it was made"


def of_other_driver(cdi_spec: Specification, version: str) -> str:
    """Return the driver version of the specification's files, if it is not the installed one."""
    other = [named for named in cdi_spec.versions if version and named != version]
    return f"its files are those of driver {' '.join(other)}, installed is {version}" if other else ""


@check(
    "container_toolkit.daemon_reload",
    *(TOOLKIT, ENGINES),
    fields=("mode",),
    evidence=f"cat {catalogue.CONFIG}; docker info; ls -l /dev/char | grep nvidia",
)
def daemon_reload(ctx: Ctx) -> Outcome:
    """A daemon-reload takes no GPU from a container: cgroups know its devices, and each has its link in /dev/char."""
    toolkit = ctx.facts.get(TOOLKIT)
    how = effective_mode(ctx.fragment.mode, toolkit.version)
    expected = "devices in the containers' own cgroups, and linked in /dev/char"
    if not toolkit.version:
        return fail(expected, "nvidia-ctk is not there", "see container_toolkit.packages")
    if not toolkit.linked + toolkit.unlinked:
        return skip("no NVIDIA device files: the driver is not loaded, and no container has a GPU")
    if toolkit.unlinked:
        change = Change(
            kind="setting", name="/dev/char", before=f"no link to {' '.join(toolkit.unlinked)}", after="linked"
        )
        fix = "nvidia-ctk system create-dev-char-symlinks --create-all"
        return fail(expected, f"without a link: {' '.join(toolkit.unlinked)}", fix, changes=[change])
    engines = registrable(ctx.fragment, ctx.facts)
    systemd_driven = [name for name, engine in engines.items() if _is_managed_by_systemd(name, engine)]
    if how == "legacy" and systemd_driven:
        message = f"legacy mode, and {', '.join(systemd_driven)} leaves cgroups to systemd"
        fix = (
            "container_toolkit: {mode: cdi}; or cgroups by cgroupfs in the engine; gpuprov explain "
            "container-nvml-unknown"
        )
        return fail(expected, message, fix)
    return ok(f"mode {how}, {counted(len(toolkit.linked), 'device file')} linked in /dev/char")


def _is_managed_by_systemd(name: str, engine: Engine) -> bool:
    """Return whether systemd manages the cgroups of an engine's containers, which it re-applies on a reload."""
    if name == "docker":
        try:
            return bool(safe_parse.parse_json(engine.live or "{}").get("CgroupDriver") == "systemd")
        except ValueError:
            return True
    if name == "crio":
        return 'cgroup_manager = "cgroupfs"' not in engine.live  # systemd is its default
    return "SystemdCgroup = true" in engine.dump


CHECKS = (specification, daemon_reload)


# https://docs.docker.com/reference/cli/dockerd/#daemon-configuration-file,
# https://github.com/containerd/containerd/blob/main/docs/cri/config.md,
# https://github.com/cri-o/cri-o/blob/main/docs/crio.conf.5.md,
# https://github.com/containers/common/blob/main/docs/containers.conf.5.md
KEYS = {
    "docker": ("cdi-spec-dirs",),
    "containerd": ("cdi_spec_dirs",),
    "crio": ("crio", "runtime", "cdi_spec_dirs"),
    "podman": ("engine", "cdi_spec_dirs"),
}
# https://github.com/NVIDIA/nvidia-container-toolkit/blob/main/internal/config/config.go
RUNTIME = ("nvidia-container-runtime", "modes", "cdi")


def list_misses(fragment: ContainerToolkit, facts: Facts) -> Iterator[tuple[str, str]]:
    """Yield why an engine does not find the specification where it is written, and the setting that makes it so."""
    folder = _resolve(specification_file(fragment).rpartition("/")[0])
    for name, engine in facts.get(ENGINES).items():
        if name in KEYS and (name in readers(fragment, facts) or name in fragment.runtimes):
            for source, folders in _find_folders(name, engine):
                if folder not in map(_resolve, folders):
                    where = " ".join(folders) or "no folder"
                    yield f"{name} looks for CDI specifications in {where} alone", f"{KEYS[name][-1]} ({source})"
    own = files.at(facts.get(TOOLKIT).settings, *RUNTIME)
    folders = files.at(own, "spec-dirs")
    if isinstance(folders, list) and folder not in map(_resolve, map(str, folders)):
        where = " ".join(map(str, folders)) or "no folder"
        yield f"NVIDIA's runtime looks for CDI specifications in {where} alone", f"spec-dirs ({catalogue.CONFIG})"
    if (kind := files.at(own, "default-kind")) not in (None, "", GPU_KIND):
        yield f"NVIDIA's runtime takes devices of kind {kind}, not {GPU_KIND}", f"default-kind ({catalogue.CONFIG})"


def _find_folders(name: str, engine: Engine) -> Iterator[tuple[str, list[str]]]:
    """Yield the folders that an engine's files name, and those that docker reports, each with its source."""
    if name == "podman":
        yield from _find_last(engine)
        return
    try:
        config = files.configuration(name, engine)
    except ValueError:  # container_toolkit.configured says so
        return
    table = files.get_cri(config) if name == "containerd" else config
    if isinstance(folders := files.at(table, *KEYS[name]), list):
        yield files.get_main(name), list(map(str, folders))
    elif name == "docker" and isinstance(folders := read_report(engine).get("CDISpecDirs"), list) and folders:
        yield "docker info", list(map(str, folders))


def _find_last(engine: Engine) -> Iterator[tuple[str, list[str]]]:
    """Yield podman's folders: the last file that names some counts, unless it only adds to them."""
    folders_set: list[tuple[str, list[str]]] = []
    for path, file in engine.files.items():
        try:
            folders = files.at(parse_toml(file.text, path), *KEYS["podman"])
        except ValueError:
            continue
        if isinstance(folders, list) and not any(isinstance(each, Mapping) and each.get("append") for each in folders):
            folders_set = [(path, [str(each) for each in folders if not isinstance(each, Mapping)])]
    yield from folders_set


def _resolve(folder: str) -> str:
    """Return a folder's path without the link that /var/run is."""
    plain = folder.rstrip("/")
    return plain.removeprefix("/var") if plain.startswith("/var/run/") else plain
