"""Checks that the toolkit can be installed and has engines to configure, made before anything is changed."""

from gpuprov.capabilities import package_sources
from gpuprov.capabilities.base import Context, Outcome, check, fail, not_asked, ok
from gpuprov.capabilities.compared import move_packages
from gpuprov.capabilities.container_toolkit.decision import PROBES, decide
from gpuprov.capabilities.container_toolkit.fragment import ContainerToolkit, engines, installed, modern
from gpuprov.catalog import container_toolkit as catalogue
from gpuprov.catalog import engines as known
from gpuprov.facts.probes.containers.container_engines import ENGINES
from gpuprov.facts.probes.containers.container_toolkit import TOOLKIT, USERS
from gpuprov.facts.probes.host import system
from gpuprov.facts.probes.host.family import words
from gpuprov.facts.probes.software import packages
from gpuprov.facts.probes.software.repositories import REPOSITORIES
from gpuprov.rules import engines as files
from gpuprov.rules.cluster_engines import RANCHER, refuse

Ctx = Context[ContainerToolkit]
# docker's snap neither reads /etc/docker/daemon.json nor shares /run/docker.sock with another daemon:
# https://github.com/canonical/docker-snap/blob/main/snap/snapcraft.yaml (layout),
# https://github.com/microsoft/AzureStorageExplorer/issues/8580
SNAP = "snap.docker.dockerd.service"
SUBORDINATE = "usermod --add-subuids 100000-165535 --add-subgids 100000-165535"


@check(
    "container_toolkit.resolvable",
    *(*PROBES, REPOSITORIES),
    fields=("version",),
    moment="preflight",
    evidence="apt-cache policy nvidia-container-toolkit; dnf -C repoquery --showduplicates nvidia-container-toolkit; "
    "zypper search --details nvidia-container-toolkit",
)
def resolvable(ctx: Ctx) -> Outcome:
    """One version exists for which the host's repositories have all four packages."""
    requested, decision = ctx.fragment.version, decide(ctx)
    if decision.problem and decision.source:
        return package_sources.later(f"container toolkit {requested}", decision.source)
    if decision.problem:
        return fail(f"toolkit {requested}", decision.problem, decision.fix)
    have = {name: package.version for name, package in installed(ctx.facts).items()}
    changes = tuple(move_packages(decision.packages, have))
    return Outcome(status="pass", expected=requested, found=decision.version, changes=changes)


@check(
    "container_toolkit.engines",
    ENGINES,
    fields=("runtimes", "default_runtime"),
    moment="preflight",
    evidence="dockerd --version; containerd --version; crio --version; podman --version",
)
def present(ctx: Ctx) -> Outcome:
    """Each engine that the spec names is on the host, can take GPUs, and has a configuration that can be read."""
    by_name = engines(ctx.fragment, ctx.facts)
    expected = ", ".join(by_name) or "a container engine"
    if not by_name and not ctx.fragment.rootless:
        return fail(
            expected,
            "no docker, containerd, cri-o, podman, k3s, RKE2 or MicroK8s is installed",
            "install one of them first",
        )
    absent = [name for name, engine in by_name.items() if engine is None]
    if absent:
        fix = "install it first, or take it out of container_toolkit.runtimes: gpuprov installs no container engine"
        return fail(expected, f"not installed: {' '.join(absent)}", fix)
    podman = by_name.get("podman")
    if podman and not known.find_newest_cdi("podman", podman.version):
        needed = known.find_first_reader("podman", "0")
        message = f"podman {podman.version or 'of a release that it does not tell'}"
        return fail(
            f"podman {needed} or newer, which reads CDI files that name GPUs by number", message, "upgrade podman"
        )
    for name, engine in by_name.items():
        if engine is None or name == "podman":
            continue
        if why := files.refused(name, engine) or refuse(name, engine, ctx.fragment.default_runtime):
            fix = f"fix it{'' if name in RANCHER else f' in {files.get_main(name)}'}, or take {name} out of runtimes"
            return fail("a configuration to register a runtime in", f"{name}: {why}", fix)
    return ok(", ".join(f"{name} {engine.version}" for name, engine in by_name.items() if engine) or "rootless only")


@check(
    "container_toolkit.leftovers",
    *(packages.PACKAGES, TOOLKIT, ENGINES, system.OS_RELEASE),
    moment="preflight",
    evidence="dpkg -l 'nvidia-docker*'; rpm -qa 'nvidia-docker*'; ls /etc/apt/sources.list.d; snap services docker",
)
def leftovers(ctx: Ctx) -> Outcome:
    """No other installation is in the way: nvidia-docker2, conflicting source lists, the hook of podman and cri-o,
    docker's snap."""
    old = [name for name in catalogue.OLD_PACKAGES if name in ctx.facts.get(packages.PACKAGES)]
    if old:
        fix = f"remove it first: {words(ctx.facts.get(system.OS_RELEASE)).purge} {' '.join(old)}"
        return fail("only the toolkit's current packages", f"installed: {' '.join(old)}", fix)
    paths = ctx.facts.get(TOOLKIT).leftovers
    lists = [path for path in paths if path.endswith(".list")]
    if lists:
        fix = f'apt says "Conflicting values set for option Signed-By" beside another list: rm {" ".join(lists)}'
        return fail("one source list of the toolkit", f"old source lists: {' '.join(lists)}", fix)
    if SNAP in paths:
        by_name = engines(ctx.fragment, ctx.facts)
        if "docker" in by_name or not by_name:
            fix = "snap disable docker, or snap remove docker, which has its own containers; then docker's package"
            return fail("docker from one source", f"docker's snap has its own daemon: {SNAP}", fix)
        paths = tuple(path for path in paths if path != SNAP)
    if paths:
        fix = f"a container would get its GPUs by hook and by CDI: rm {' '.join(paths)}"
        return fail("CDI only for podman and cri-o", f"there is {' '.join(paths)}", fix)
    return ok("nothing left of an older installation")


@check(
    "container_toolkit.rootless_users",
    *(USERS, *PROBES, REPOSITORIES),
    fields=("rootless",),
    moment="preflight",
    evidence=USERS.evidence,
)
def rootless_users(ctx: Ctx) -> Outcome:
    """Each rootless user exists, has subordinate ids, and the toolkit needs none of root's cgroups for that user."""
    requested = ctx.fragment.rootless
    if not requested:
        return not_asked()
    users = ctx.facts.get(USERS)
    expected = f"{' '.join(requested)} with subordinate ids"
    if absent := [name for name in requested if name not in users]:
        return fail(expected, f"no such user: {' '.join(absent)}", f"useradd {absent[0]}, or take it out of rootless")
    if bare := [name for name in requested if not users[name].subordinate]:
        return fail(expected, f"no entry in /etc/subuid: {' '.join(bare)}", f"{SUBORDINATE} {bare[0]}")
    version = decide(ctx).version
    if ctx.fragment.mode == "auto" and version and not modern(version):
        fix = f"mode: cdi, or a toolkit of {catalogue.MODERN} or newer"
        return fail("a mode without root's cgroups", f"mode auto of toolkit {version} is legacy", fix)
    return ok(expected)


CHECKS = (resolvable, present, leftovers, rootless_users)
