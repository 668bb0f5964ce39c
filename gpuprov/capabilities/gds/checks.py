"""Checks of GPUDirect Storage: its packages, its configuration, and what gdscheck says of each file system."""

from collections.abc import Iterator

from gpuprov.capabilities import package_sources
from gpuprov.capabilities.answers import APPLY
from gpuprov.capabilities.base import Outcome, check, fail, not_asked, ok, skip
from gpuprov.capabilities.compared import Group, compared, find_missing, move_packages
from gpuprov.capabilities.driver import find_requested_version
from gpuprov.capabilities.gds.decision import BASE, RESOLVING, SOURCE, Ctx, decide, find_release
from gpuprov.capabilities.gds.fragment import packages, settings
from gpuprov.capabilities.gds.rules import OPEN
from gpuprov.catalog import gds as catalogue
from gpuprov.facts.probes.driver import gds as probe
from gpuprov.facts.probes.driver import nvidia
from gpuprov.facts.probes.driver.gds import GdsCheck, toolkit
from gpuprov.facts.probes.host import system
from gpuprov.facts.probes.host.family import words
from gpuprov.resources import KernelModule, Modules, Setting
from gpuprov.rules import resolve

BY_HAND = f"update-alternatives --display cufile.json; ls -l {catalogue.LINK}"


@check(
    "gds.resolvable",
    *(*RESOLVING, *package_sources.COMING),
    fields=("toolkit", "path"),
    moment="preflight",
    evidence=f"{probe.PACKAGES.evidence}; {probe.INDEX.evidence}",
)
def resolvable(ctx: Ctx) -> Outcome:
    """The host's package sources have libcufile and gds-tools of the release in one version, and nvidia-fs if the spec
    asks for it."""
    expected = " ".join(packages(ctx.fragment, find_release(ctx, ctx.facts.get(probe.INDEX))))
    decision = decide(ctx)
    if decision.missing and ctx.facts.get(probe.INDEX).busy:
        return skip("another package manager is at work on the host: plan again when it has ended; apply waits for it")
    if decision.missing and (url := package_sources.coming(ctx.host.capabilities.get("nvidia_driver"), ctx.facts)):
        return package_sources.later("GPUDirect Storage", url)
    if decision.missing:
        return fail(expected, f"no package source of the host has {' '.join(decision.missing)}, in one version", SOURCE)
    have = {name: package.version for name, package in ctx.facts.get(probe.PACKAGES).items()}
    changes = move_packages(decision.versions, have)
    listed = ", ".join(f"{name} {version}" for name, version in decision.versions.items())
    return Outcome(status="pass", expected=expected, found=listed, changes=tuple(changes))


@check("gds.supported", probe.GDS, nvidia.DRIVER, fields=("path",), moment="preflight", evidence=probe.GDS.evidence)
def supported(ctx: Ctx) -> Outcome:
    """The path works here: open kernel modules, unless nvidia_driver brings them; for p2pdma a kernel with it."""
    state, loaded = ctx.facts.get(probe.GDS), ctx.facts.get(nvidia.DRIVER)
    path, brings = ctx.fragment.path, ctx.applies("nvidia_driver")
    is_open = loaded.open if loaded.version else state.is_open
    if is_open is False and not brings:
        return fail(f"open kernel modules, which {path} needs", "the host's NVIDIA modules are proprietary", OPEN)
    if path == "p2pdma":
        needs = catalogue.gds_file().p2pdma
        old = state.ubuntu and resolve.order(state.kernel.partition("-")[0]) < resolve.order(needs.first_kernel)
        if old or state.p2pdma is False:
            actual = f"kernel {state.kernel}" + ("" if old else " has no PCI P2PDMA (CONFIG_PCI_P2PDMA)")
            return fail(
                f"a kernel from {needs.first_kernel} on with PCI P2PDMA", actual, "a newer kernel; or path: nvidia-fs"
            )
        version = loaded.version if not (brings and find_requested_version(ctx.host)) else ""
        if version and resolve.order(version) < resolve.order(needs.first_driver):
            return fail(
                f"driver {needs.first_driver} or newer", f"driver {version}", "a newer driver; or path: nvidia-fs"
            )
    return ok(f"{path}, kernel {state.kernel}")


@check("gds.packages", *BASE, fields=("toolkit", "path"))
def installed(ctx: Ctx) -> Outcome:
    """Its packages are installed and whole, libcufile and the tools in one version."""
    have = ctx.facts.get(probe.PACKAGES)
    release = find_release(ctx)
    names = packages(ctx.fragment, release)
    if missing := find_missing(names, have):
        return missing
    if broken := [name for name in names if not have[name].whole]:
        return fail(" ".join(names), f"incomplete: {' '.join(broken)}", words(ctx.facts.get(system.OS_RELEASE)).repair)
    versions = {have[name].version for name in catalogue.user_packages(release)}
    listed = ", ".join(f"{name} {have[name].version}" for name in names)
    if len(versions) > 1:
        return fail("libcufile and gds-tools in one version", listed, APPLY)
    exact = catalogue.cuda_of(versions.pop())
    return ok(listed + f", of CUDA {exact}" * bool(exact))


MODULE = KernelModule(name=catalogue.MODULE, loaded=True)


@compared(
    "gds.module",
    probe.GDS,
    system.CONTAINER,
    fields=("path",),
    evidence="lsmod | grep nvidia_fs; dmesg | grep nvidia_fs",
)
def module(ctx: Ctx) -> Group | Outcome:
    """nvidia-fs is loaded, if it is the path."""
    if ctx.fragment.path != "nvidia-fs":
        return not_asked(f"the path is {ctx.fragment.path}")
    if container := ctx.facts.get(system.CONTAINER):
        return skip(f"{container} container: the modules are the machine's")
    state = ctx.facts.get(probe.GDS)
    closed = state.is_open is False and catalogue.is_open_only(state.on_disk)
    actual = "not loaded" + ": it loads beside open kernel modules alone" * closed
    fix = OPEN if closed else f"modprobe {catalogue.MODULE}; dmesg | grep {catalogue.MODULE}; {APPLY}"
    return Group(
        (MODULE,),
        modules=Modules(loaded=(catalogue.MODULE,) * bool(state.module)),
        expected=catalogue.MODULE,
        right=f"{catalogue.MODULE} {state.module}",
        message=actual,
        fix=fix,
    )


@compared(
    "gds.configuration", probe.GDS, fields=("toolkit", "compat_mode", "cufile"), moment="next-boot", evidence=BY_HAND
)
def configuration(ctx: Ctx) -> Group | Outcome:
    """/etc/cufile.json, which every program of cuFile reads, leads to the file of the release."""
    expected, actual = catalogue.configuration(toolkit(ctx.host, ctx.fragment)), ctx.facts.get(probe.GDS).link
    if not settings(ctx.host, ctx.fragment):
        return not_asked("the spec asks for no setting of cuFile")
    if actual == catalogue.LINK:
        fix = f"take your settings over into gds.cufile, remove {catalogue.LINK}, then {APPLY}"
        return fail(f"{catalogue.LINK} -> {expected}", f"{catalogue.LINK} is a file of its own", fix)
    link = Setting(kind=catalogue.LINK, value=expected, words="{before}", missing="absent", moment="next-boot")
    return Group((link,), {("", ""): actual} if actual else {}, expected=f"{catalogue.LINK} -> {expected}")


@check("gds.direct", probe.CHECK, probe.GDS, system.CONTAINER, fields=("path", "file_systems"))
def direct(ctx: Ctx) -> Outcome:
    """gdscheck verifies the platform, and lists each file system of the spec with a direct path; warnings of an IOMMU
    and of ACS are reported."""
    answer, release = ctx.facts.get(probe.CHECK), toolkit(ctx.host, ctx.fragment)
    tools = f"/usr/local/cuda{'-' * bool(release)}{release}/gds/tools"
    names = ctx.fragment.file_systems
    expected = f"gdscheck: platform verified{', direct: ' * bool(names)}{' '.join(names)}"
    if not answer.installed:
        return fail(expected, f"{tools} has no gdscheck", f"see gds.packages; {APPLY}")
    if not answer.modes:
        return fail(expected, f"gdscheck ended with: {answer.last or 'nothing'}", f"{tools}/gdscheck -p")
    container = ctx.facts.get(system.CONTAINER)
    if container and not answer.gpus:
        return skip(f"{container} container: the GPUs are the machine's, and it does not show them here")
    if not answer.gpus or not all(gpu.supported for gpu in answer.gpus):
        without = [gpu.name for gpu in answer.gpus if not gpu.supported]
        return fail(
            expected,
            f"no GDS on {', '.join(without)}" if without else "gdscheck sees no GPU",
            "see nvidia_driver.loaded",
        )
    if ctx.fragment.path == "nvidia-fs" and not answer.module:
        return fail(
            expected, "gdscheck sees no nvidia-fs", f"modprobe {catalogue.MODULE}; dmesg | grep {catalogue.MODULE}"
        )
    reached = {name: _list_modes(answer, name, ctx.fragment.path) for name in names}
    around = "".join(f"; {text}" for text in _describe_surroundings(ctx, answer))
    if wrong := [name for name, modes in reached.items() if not modes]:
        actual = f"through the CPU alone: {', '.join(wrong)}{around}"
        needs = [f"{name}: {_needs(ctx, name)}" for name in wrong]
        return fail(expected, actual, "; ".join(needs))
    if not answer.verified:
        return fail(
            expected, f"gdscheck does not verify the platform: {answer.last}{around}", "gdscheck -p says what is wrong"
        )
    listed = ", ".join(f"{name} by {'/'.join(modes)}" for name, modes in reached.items()) or "platform verified"
    return ok(f"GDS {answer.release}: {listed}{around}", expected)


def _list_modes(answer: GdsCheck, name: str, path: str) -> tuple[str, ...]:
    """Return the direct modes of a file system by the path of the spec."""
    rows = catalogue.find_file_system(name).rows
    if path == "p2pdma":
        older = answer.direct("NVMe P2PDMA")
        return older or tuple(mode for row in rows for mode in answer.direct(row) if mode == "p2pdma")
    return tuple(dict.fromkeys(mode for row in rows for mode in answer.direct(row) if mode != "p2pdma"))


def _needs(ctx: Ctx, name: str) -> str:
    if ctx.fragment.path != "p2pdma":
        return f"it needs {catalogue.find_file_system(name).needs}"
    on = ctx.facts.get(probe.GDS).multipath == "Y"
    return (
        "nvme_core was loaded with multipath=Y: reboot"
        if on
        else "reboot, so that nvidia and nvme_core have their options"
    )


def _describe_surroundings(ctx: Ctx, answer: GdsCheck) -> Iterator[str]:
    """Yield notes beside the result: the IOMMU, ACS, and reads that silently go through the CPU."""
    if answer.iommu and answer.iommu.casefold() != "disabled":
        yield f"IOMMU {answer.iommu}, in the way of GDS: pcie.iommu"
    acs = [text for text in answer.warnings if text.startswith("Found ACS")]
    if acs:
        yield f"{acs[0]}: pcie.acs"
    if answer.settings.get("properties.use_compat_mode") == "true" and ctx.fragment.compat_mode == "keep":
        yield "cuFile may read through the CPU without a word (compat_mode: deny forbids it)"


CHECKS = (resolvable, supported, installed, module, configuration, direct)
