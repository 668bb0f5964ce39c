"""Checks of the toolkit as it is now: packages, holds, runtimes in the engines' files and in the daemons themselves,
mode."""

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from gpuprov.capabilities import answers
from gpuprov.capabilities.answers import APPLY
from gpuprov.capabilities.base import Context, Outcome, check, fail, not_asked, ok, skip
from gpuprov.capabilities.compared import Group, compared, restart_unit
from gpuprov.capabilities.container_toolkit.fragment import (
    ContainerToolkit,
    effective_mode,
    engines,
    installed,
    registrable,
    runners,
)
from gpuprov.catalog import container_toolkit as catalogue
from gpuprov.core.sanitize import counted
from gpuprov.facts.probes.containers.container_engines import ENGINES
from gpuprov.facts.probes.containers.container_toolkit import TOOLKIT, USERS, Toolkit, User
from gpuprov.facts.probes.host import system
from gpuprov.facts.probes.host.family import words
from gpuprov.facts.probes.software import packages as probed
from gpuprov.resources import Setting
from gpuprov.rules import engines as files
from gpuprov.rules import resolve
from gpuprov.rules.cluster_engines import RANCHER

# What nvidia-ctk writes into a new configuration.
RUNNERS = ("runc", "crun")
Ctx = Context[ContainerToolkit]


@check(
    "container_toolkit.packages",
    *(probed.PACKAGES, TOOLKIT, system.OS_RELEASE),
    fields=("version",),
    evidence="dpkg -l '*nvidia-container*'; rpm -qa '*nvidia-container*'; nvidia-ctk --version",
)
def packages(ctx: Ctx) -> Outcome:
    """The toolkit's four packages are installed completely, in the same version, which is the one that the spec asks
    for; nvidia-ctk has that version."""
    present, requested = installed(ctx.facts), ctx.fragment.version
    expected = f"{counted(len(catalogue.PACKAGES), 'package')} of one version" + (
        "" if requested == "any" else f": {requested}"
    )
    missing = [name for name in catalogue.PACKAGES if name not in present]
    if missing:  # container_toolkit.resolvable reports what apply would install
        return fail(expected, f"not installed: {' '.join(missing)}", APPLY)
    if broken := [name for name, package in present.items() if not package.whole]:
        repair = words(ctx.facts.get(system.OS_RELEASE)).repair
        return fail(expected, f"incomplete: {' '.join(broken)}", f"{repair}; then {APPLY}")
    versions = {package.version for package in present.values()}
    wrong = sorted(f"{name} {package.version}" for name, package in present.items())
    if len(versions) > 1 or not resolve.satisfies(next(iter(versions)), requested):
        return fail(expected, "; ".join(wrong), APPLY)
    version, program = resolve.upstream(next(iter(versions))), ctx.facts.get(TOOLKIT).version
    if program != version:
        fix = "command -v nvidia-ctk; another installation's program comes first, or a file is missing"
        return fail(f"nvidia-ctk {version}", f"nvidia-ctk says {program or 'nothing'}", fix)
    return ok(version, expected)


@check(
    "container_toolkit.held",
    *(probed.PACKAGES, *answers.HOLDING),
    fields=("hold",),
    moment="next-boot",
    evidence=answers.SHOWN,
)
def held(ctx: Ctx) -> Outcome:
    """Every package of the toolkit is held (or none, if the spec asks for that): no upgrade moves one of them alone."""
    return answers.held(ctx.facts, installed(ctx.facts), "the container toolkit", hold=ctx.fragment.hold)


@compared("container_toolkit.configured", ENGINES, fields=("runtimes", "default_runtime"), moment="next-boot")
def configured(ctx: Ctx) -> Group | Outcome:
    """Each engine's files register NVIDIA's runtime (default or not, as the spec says) and CDI, and hide no setting of
    the user's."""
    present = engines(ctx.fragment, ctx.facts)
    expected = (
        f"runtime {files.NAME}{' as the default' if ctx.fragment.default_runtime else ''} in {', '.join(present)}"
    )
    absent = [name for name, engine in present.items() if engine is None]
    if absent or not present:
        return fail(expected, f"not installed: {' '.join(absent) or 'any engine'}", "see container_toolkit.engines")
    wrong = {
        name: files.differences(name, engine, ctx.fragment.default_runtime)
        for name, engine in registrable(ctx.fragment, ctx.facts).items()
    }
    names = [n if n != "podman" else "podman (CDI, no runtime to register)" for n in present]
    right = f"{', '.join(names)}: as asked"
    return registered_in({name: (files.get_main(name), lacks) for name, lacks in wrong.items()}, expected, right)


# The way of NVIDIA's runtime into configurations that nvidia-ctk does not write.
REGISTRARS = {**dict.fromkeys(RANCHER, "by its restart"), "microk8s": "filled in"}


def registered_in(places: Mapping[str, tuple[str, Sequence[str]]], expected: str, right: str) -> Group:
    """Return NVIDIA's runtime as a setting of these configurations: by engine or user, the file, and what it lacks."""
    runtime = Setting(kind="runtime", value=files.NAME)
    return Group(
        tuple(
            msgspec.structs.replace(
                runtime,
                device=name,
                before="; ".join(lacks),
                words="; ".join(f"{name}: {lack}" for lack in lacks),
                file=place,
                shown=REGISTRARS.get(name, "by nvidia-ctk"),
            )
            for name, (place, lacks) in places.items()
        ),
        {(name, ""): files.NAME for name, (_, lacks) in places.items() if not lacks},
        expected=expected,
        right=right,
    )


# docker takes runtimes and the default one by reload:
# https://docs.docker.com/reference/cli/dockerd/#configuration-reload-behavior. Pods go on without k3s:
# https://docs.k3s.io/upgrades/killall, and without MicroK8s' containerd, which is stopped alone:
# https://github.com/canonical/microk8s/blob/master/snap/snapcraft.yaml (stop-mode)
RELOADED = {
    "docker": "reloaded",
    "containerd": "restarted (its containers go on)",
    "crio": "restarted (its containers go on)",
    **dict.fromkeys(RANCHER, "restarted (its pods go on; the API of a server is away meanwhile)"),
    "microk8s": "restarted (its pods go on)",
}


@check("container_toolkit.registered", ENGINES, fields=("runtimes", "default_runtime"))
def registered(ctx: Ctx) -> Outcome:
    """Each engine's daemon is running, and has NVIDIA's runtime in force: by its own report, or because it started
    after its files changed."""
    present = registrable(ctx.fragment, ctx.facts)
    if not present:
        selected = engines(ctx.fragment, ctx.facts)
        if selected.keys() == {"podman"}:
            return not_asked("podman has no root daemon, and takes GPUs through CDI only")
        absent = [name for name, engine in selected.items() if engine is None]
        return skip(f"not installed: {', '.join(absent)}" if absent else "no such engine")
    expected = f"{files.NAME} in force in {', '.join(present)}"
    for name, engine in present.items():
        unit = files.get_unit(name, engine)
        if engine.active != "active":
            changes = restart_unit(unit, engine.active, "active")
            fix = f"journalctl -u {unit} -n 20"
            return fail(expected, f"{unit} is {engine.active or 'not there'}", fix, changes=changes)
        wrong = files.in_force(name, engine, ctx.fragment.default_runtime)
        if wrong:
            fix = f"systemctl {'reload' if name == 'docker' else 'restart'} {unit} ({APPLY} does)"
            return fail(expected, f"{name}: {wrong}", fix, changes=restart_unit(unit, wrong, RELOADED[name]))
    return ok(expected)


def in_config(key: str, value: str, words: str, before: str) -> Setting:
    """Return a setting of the runtime's configuration, by which apply sets it; the runtime compares whole texts."""
    # https://github.com/NVIDIA/nvidia-container-toolkit/blob/main/internal/info/auto.go
    shown, file = f"{key} = {value}", catalogue.CONFIG
    return Setting(kind=key, key=key, value=value, how="exact", words=words, shown=shown, before=before, file=file)


@compared(
    "container_toolkit.mode",
    *(TOOLKIT, ENGINES),
    fields=("mode",),
    evidence=f"grep -E 'mode|no-cgroups' {catalogue.CONFIG}",
)
def mode(ctx: Ctx) -> Group | Outcome:
    """The runtime works in the mode that the spec asks for, finds a program to run containers with, and takes the
    host's driver and its own programs; no-cgroups, which is for rootless use in legacy mode, is off."""
    toolkit, requested = ctx.facts.get(TOOLKIT), ctx.fragment.mode
    if toolkit.complaint:
        return fail(f"mode {requested}", f"{catalogue.CONFIG} is {toolkit.complaint}", f"fix it, then {APPLY}")
    actual = files.at(toolkit.settings, "nvidia-container-runtime", "mode")
    isolated = files.at(toolkit.settings, "nvidia-container-cli", "no-cgroups") is not True
    candidates = runners(ctx.fragment, ctx.facts)
    names = " ".join(candidates)
    message = (
        f"nothing of nvidia-container-runtime.runtimes is on the host's PATH, and cri-o has {names.rpartition(' ')[2]}"
    )
    without = "no-cgroups is true: in legacy mode, containers of root get no access to their GPUs"
    return Group(
        (
            in_config("mode", requested, f"mode {actual or 'is not set'}", f"mode = {actual}" if actual else "no mode"),
            in_config("no-cgroups", "false", without, "no-cgroups = true"),
            *[in_config("runtimes", names, message, "runtimes that the host does not have")] * bool(candidates),
        ),
        {("", "mode"): str(actual or ""), ("", "no-cgroups"): "false" if isolated else "true"},
        expected=f"mode {requested}, no-cgroups off, a program to run containers with",
        beside=(*_find_no_runner(ctx, toolkit, candidates), *_find_elsewhere(toolkit)),
        right=f"mode {requested} ({effective_mode(requested, toolkit.version)} with {toolkit.version})",
    )


def _find_no_runner(ctx: Ctx, toolkit: Toolkit, candidates: list[str]) -> Iterator[str]:
    """Yield that the configuration names programs alone that the host does not have. Where it names runc, which docker
    and containerd bring, these find it, if on a PATH of their own."""
    named = files.at(toolkit.settings, "nvidia-container-runtime", "runtimes")
    if not isinstance(named, list) or {"docker-runc", *RUNNERS} & set(map(str, named)) or toolkit.runners or candidates:
        return
    if {"docker", "containerd"} & set(registrable(ctx.fragment, ctx.facts)):
        names = " ".join(map(str, named)) or "an empty list"
        yield (
            f"nothing of nvidia-container-runtime.runtimes ({names}) is on the host's PATH: name "
            f"{' and '.join(RUNNERS)}"
        )


PATHS = {
    ("nvidia-ctk", "path"): "nvidia-ctk",
    ("nvidia-container-runtime-hook", "path"): "nvidia-container-runtime-hook",
    ("nvidia-container-cli", "path"): "nvidia-container-cli",
}
NEEDED = {"compute", "utility"}


def _find_elsewhere(toolkit: Toolkit) -> Iterator[str]:
    """Yield settings by which the runtime takes other programs or another driver than the host's, or gives containers
    no CUDA."""
    # https://github.com/NVIDIA/nvidia-container-toolkit/blob/main/internal/config/config.go
    for place, program in PATHS.items():
        if (path := files.at(toolkit.settings, *place)) not in (None, "", program, f"/usr/bin/{program}"):
            yield f"{'.'.join(place)} is {path}, not {program}"
    if (root := files.at(toolkit.settings, "nvidia-container-cli", "root")) not in (None, "", "/"):
        yield f"nvidia-container-cli.root is {root}: the driver is looked for there"
    capabilities = files.at(toolkit.settings, "supported-driver-capabilities")
    if (
        isinstance(capabilities, str)
        and "all" not in capabilities
        and (lacking := NEEDED - set(capabilities.split(",")))
    ):
        yield f"supported-driver-capabilities has no {' '.join(sorted(lacking))}"


@compared("container_toolkit.rootless", USERS, fields=("rootless",))
def rootless(ctx: Ctx) -> Group | Outcome:
    """Each rootless user's own docker configuration registers NVIDIA's runtime."""
    requested = ctx.fragment.rootless
    if not requested:
        return not_asked()
    users = ctx.facts.get(USERS)
    expected = f"runtime {files.NAME} in the docker configuration of {', '.join(requested)}"
    if absent := [name for name in requested if users.get(name) is None]:
        return fail(expected, f"no such user: {absent[0]}", f"useradd {absent[0]}, or take it out of rootless")
    places = {
        name: (f"{user.home}/.config/docker/daemon.json", own_differences(user, ctx.fragment.default_runtime))
        for name, user in users.items()
        if name in requested
    }
    return registered_in(places, expected, expected)


def own_differences(user: User, default: bool) -> list[str]:
    """Return what a user's daemon.json lacks."""
    return files.differences("docker", files.make_rootless_docker(user.daemon), default)


CHECKS = (packages, held, configured, registered, mode, rootless)
