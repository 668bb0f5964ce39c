"""Desired state of the role: packages of exact releases, the default toolkit, the file for login shells."""

from collections.abc import Iterator, Mapping

from gpuprov.capabilities.base import Context, Desired, Resources
from gpuprov.capabilities.cuda_toolkit.decision import Decision, components, decide
from gpuprov.capabilities.cuda_toolkit.fragment import CudaToolkit
from gpuprov.capabilities.cuda_toolkit.host import find_basis, find_installed, list_versions
from gpuprov.capabilities.cuda_toolkit.preflight import RESOLVING, coming
from gpuprov.catalog.cuda import packages as catalogue
from gpuprov.facts.probes.base import Facts, ProbeFailed
from gpuprov.facts.probes.driver.cuda_toolkit import REQUIRES, TOOLKITS, Toolkit, Toolkits
from gpuprov.host_code.json_members import Json
from gpuprov.resources import Absent, File, Resource, role_values

Ctx = Context[CudaToolkit]
PROFILE = f"""# Managed by gpuprov: change the inventory, then apply again.
# No package of the toolkit puts nvcc into PATH.
export PATH="{catalogue.LINK}/bin${{PATH:+:$PATH}}"
"""
# The reason why no transaction of the toolkits may touch a driver's packages.
OF_A_DRIVER = {
    "why": "the driver is nvidia_driver's alone, and no toolkit brings, moves or removes one",
    "fix": "look on the host for what depends on it among the toolkit's packages (apt-cache rdepends, dnf "
    "repoquery --whatrequires); a site's own metapackage is removed, or rebuilt without it",
}


def to_install(decision: Decision, facts: Facts) -> list[str]:
    """Return `name=version` of every package of the releases, and of cuDNN and NCCL, that is not installed in its
    version. Raises ProbeFailed if the components of a release cannot be read: without their versions, the newest would
    be installed."""
    have, requires = list_versions(facts), facts.get(REQUIRES)
    for name, version in decision.packages.items():
        if catalogue.find_toolkit(name) and have.get(name) != version and name not in requires:
            raise ProbeFailed(
                f"what {name} {version} depends on cannot be read", "fetch the package lists again, then apply again"
            )
    targets = components(requires, decision.packages, have)
    return [f"{name}={version}" for name, version in targets.items() if have.get(name) != version]


def waiting(ctx: Ctx, decision: Decision) -> dict[str, str]:
    """Return what cannot be resolved before a package source is added, as the preflight's moment `sources` takes it."""
    url = coming(ctx, decision)
    releases = ", ".join(ctx.fragment.versions) or "that the driver runs"
    message = f"CUDA toolkit {releases} is resolved when apply has added {url}"
    return {"told": message, "problem": f"{decision.problem}. Fix: {decision.fix}"} if url else {}


def default_commands(version: str, state: Toolkits) -> list[list[str]]:
    """Return the commands that point /usr/local/cuda to a toolkit, set by hand, so that no newer toolkit takes it over;
    and that let the linker find its libraries first."""
    # NVIDIA's packages register themselves in the alternatives; one that did not is registered with the priority that
    # they have.
    place = f"{catalogue.LINK}-{version}"
    if not version or (state.link, state.by, state.mode) == (place, "alternatives", "manual"):
        return []
    register = ["update-alternatives", "--install", catalogue.LINK, "cuda", place, version.replace(".", "")]
    known = place in state.choices
    return [*([] if known else [register]), ["update-alternatives", "--set", "cuda", place], ["ldconfig"]]


def broken(decision: Decision, part: str, have: Mapping[str, str], state: Toolkits) -> str:
    """Return what the compiler of an installed toolkit reports instead of its release; empty if all report theirs."""
    known = catalogue.get_part(part)
    for version, package in decision.releases.items() if known.nvcc else ():
        kit = state.toolkits.get(version, Toolkit())
        is_installed = have.get(known.package.format(minor=catalogue.format_dashed(version))) == package
        if is_installed and kit.release != version:
            answer = kit.complaint or (f"release {kit.release}" if kit.release else "nothing")
            program = f"{catalogue.LINK}-{version}/bin/nvcc"
            return f"{program} --version says {answer}. Fix: gpuprov verify says which package is broken"
    return ""


def desired(ctx: Ctx) -> Iterator[Resource]:
    """Yield the file for login shells, or its removal."""
    yield File(catalogue.PROFILE, PROFILE) if ctx.fragment.path else Absent(catalogue.PROFILE)


def make(ctx: Ctx) -> dict[str, Json]:
    """Return the role's values. `later`: what waits for a package source. The transaction: `of`, `install`, `remove`,
    `refuse`. Then `hold` and `release`, and the values of its resources. `problem`: why a compiler does not work."""
    block, facts = ctx.fragment, ctx.facts
    decision = decide(block, find_basis(ctx.host, facts))
    state, packages = facts.get(TOOLKITS), sorted(find_installed(block, facts))
    return {
        "later": waiting(ctx, decision),
        "fix": "name a release that the repositories have whole in cuda_toolkit.versions",
        "of": f"the CUDA toolkit {', '.join(decision.releases)}",
        "install": to_install(decision, facts),
        "remove": list(decision.remove),
        "refuse": {
            "patterns": [entry.pattern for entry in catalogue.read_toolkits_file().driver_patterns],
            **OF_A_DRIVER,
        },
        "hold": packages if block.hold else [],
        "release": [] if block.hold else packages,
        "problem": broken(decision, block.parts, list_versions(facts), state),
        **role_values(desired(ctx), "files", "absent"),
        "tasks": {
            "command": []
            if decision.problem
            else [{"argv": argv} for argv in default_commands(decision.default, state)]
        },
    }


RESOURCES = Resources(desired, lambda _host, _block: (catalogue.PROFILE,), proves={"files": ("path",)})
DESIRED = Desired((*RESOLVING, REQUIRES, TOOLKITS), make)
