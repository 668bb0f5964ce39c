"""Desired state of the role: packages, settings of the release's cufile.json, and the link that leads to it."""

from collections.abc import Iterable, Iterator

from gpuprov.capabilities import package_sources
from gpuprov.capabilities.answers import HEADER, TRY_BY_HAND
from gpuprov.capabilities.base import Desired, Outcome, Resources
from gpuprov.capabilities.gds.checks import module
from gpuprov.capabilities.gds.decision import RESOLVING, SOURCE, Ctx, decide
from gpuprov.capabilities.gds.fragment import Gds, is_of_ofed, settings
from gpuprov.catalog import gds as catalogue
from gpuprov.catalog.cuda.packages import read_toolkits_file
from gpuprov.facts.probes.base import ProbeFailed
from gpuprov.facts.probes.driver import gds as probe
from gpuprov.facts.probes.driver.gds import toolkit
from gpuprov.facts.probes.host import house, system
from gpuprov.facts.probes.rdma.ofed import OFED
from gpuprov.host_code.json_members import Json
from gpuprov.resources import Absent, File, Lines, Resource, role_values
from gpuprov.spec.model import HostSpec

# The reason why no transaction of GPUDirect Storage may touch a driver's packages.
OF_A_DRIVER = {
    "patterns": [rf"(?!nvidia-fs(-dkms)?$)({entry.pattern})" for entry in read_toolkits_file().driver_patterns],
    "why": "the driver is nvidia_driver's alone, and nvidia-fs brings, moves or removes none",
    "fix": "nvidia_driver: {build: dkms}, whose packages nvidia-fs-dkms depends on",
}


def configured(host: HostSpec, block: Gds) -> Iterable[str]:
    """Return the foreign file in which settings are made."""
    release = toolkit(host, block)
    return (catalogue.configuration(release),) if release and settings(host, block) else ()


def desired(ctx: Ctx) -> Iterator[Resource]:
    """Yield the file that loads nvidia-fs at boot, or its absence, and the settings of the release's cufile.json."""
    is_module = ctx.fragment.path == "nvidia-fs"
    yield File(catalogue.MODULES_LOAD, f"{HEADER}{catalogue.MODULE}\n") if is_module else Absent(catalogue.MODULES_LOAD)
    for path in configured(ctx.host, ctx.fragment):
        yield Lines(path=path, keys=settings(ctx.host, ctx.fragment))


def modules_to_load(ctx: Ctx) -> list[str]:
    """Return the modules that gds.module finds not loaded; none before a reboot that something else waits for."""
    group = module.group(ctx)
    if isinstance(group, Outcome) or ctx.facts.get(house.REBOOT_REASONS):
        return []
    return [difference.path for difference in group.compare()]


def link_commands(ctx: Ctx) -> list[list[str]]:
    """Return the commands that let /etc/cufile.json lead to the release's file; none for a file of the site's own."""
    link = ctx.facts.get(probe.GDS).link
    return [
        ["update-alternatives", "--set", "cufile.json", path]
        for path in configured(ctx.host, ctx.fragment)
        if link not in (path, catalogue.LINK)
    ]


def rebuild_commands(ctx: Ctx) -> list[list[str]]:
    """Return the commands that build nvidia-fs anew for kernels whose ib_core OFED has replaced since it was built."""
    tree = ctx.facts.get(probe.GDS).tree
    if not is_of_ofed(ctx.host, ctx.fragment) or not tree:
        return []
    kernels = [
        kernel for kernel in ctx.facts.get(OFED).targets() if kernel.headers and catalogue.MODULE in kernel.older
    ]
    of = f"{catalogue.TREE}/{tree}"
    return [["dkms", act, "--force", of, "-k", kernel.release] for kernel in kernels for act in ("build", "install")]


def make(ctx: Ctx) -> dict[str, Json]:
    """Return the role's values. The transaction: `of`, `fix`, `install`, `refuse`; `later`: what waits for a package
    source; the values of its resources; `tasks`: for nvidia-fs beside OFED, for the link, and the modules that are
    loaded now. Raises ProbeFailed for packages that nobody offers."""
    decision, have, load = decide(ctx), ctx.facts.get(probe.PACKAGES), modules_to_load(ctx)
    url = package_sources.coming(ctx.host.capabilities.get("nvidia_driver"), ctx.facts) if decision.missing else ""
    problem = f"gds: no package source of the host has {' '.join(decision.missing)}"
    if decision.missing and not url:
        raise ProbeFailed(problem, SOURCE)
    pending = {
        "told": f"GPUDirect Storage is resolved when apply has added {url}",
        "problem": f"{problem}. Fix: {SOURCE}",
    }
    differing = {
        name: version
        for name, version in decision.versions.items()
        if name not in have or have[name].version != version
    }
    return {
        "later": pending if url else {},
        "of": "GPUDirect Storage",
        "fix": TRY_BY_HAND,
        "install": [] if url else [f"{name}={version}" for name, version in differing.items()],
        "refuse": OF_A_DRIVER,
        **role_values(desired(ctx), "files", "absent", "lines"),
        "tasks": {
            **({"ofed": {}} if is_of_ofed(ctx.host, ctx.fragment) else {}),
            "rebuild": [{"argv": argv} for argv in rebuild_commands(ctx)],
            "command": [{"argv": argv} for argv in link_commands(ctx)],
            **({"running_kernel": {"modules": load, "sysctl": {}, "limits": {}, "hugepages": 0}} if load else {}),
        },
    }


RESOURCES = Resources(
    desired,
    lambda _host, _block: (catalogue.MODULES_LOAD,),
    lines=configured,
    proves={"files": ("compat_mode", "cufile", "path")},
)
DESIRED = Desired((*RESOLVING, probe.GDS, OFED, system.CONTAINER, house.REBOOT_REASONS, *package_sources.COMING), make)
