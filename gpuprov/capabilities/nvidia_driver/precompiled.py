"""`build`: modules that the distribution or NVIDIA has built, one package for each kernel, or those that DKMS
builds."""

import re
from collections.abc import Iterable

from gpuprov.capabilities.answers import list_holds
from gpuprov.capabilities.base import Change, Context, Outcome, check, fail, not_asked, ok
from gpuprov.capabilities.nvidia_driver.fragment import (
    BASE_PROBES,
    NvidiaDriver,
    build_targets,
    decide,
    package_names,
    versions,
)
from gpuprov.capabilities.nvidia_driver.transaction import module_package
from gpuprov.facts.probes.host import system
from gpuprov.facts.probes.host.family import words
from gpuprov.facts.probes.kernel import modules
from gpuprov.facts.probes.software.packages import BOOTING, PACKAGES
from gpuprov.rules import package_lists, resolve
from gpuprov.spec.problem import Problem

Ctx = Context[NvidiaDriver]
HERE = "nvidia_driver"


def problems(driver: NvidiaDriver) -> Iterable[Problem]:
    """Yield what contradicts precompiled modules."""
    if driver.build != "precompiled":
        return
    path, prefix = (HERE, "build"), "nvidia_driver.build is precompiled"
    if driver.signing.key_file:
        message = f"{prefix}: whoever built the modules has signed them, nvidia_driver.signing would sign none"
        yield Problem(path=path, message=message, fix="no signing; or build: dkms, whose modules the site's key signs")
    if driver.build_host:
        message = f"{prefix}: nothing is built, and nvidia_driver.build_host is {driver.build_host}"
        yield Problem(path=path, message=message, fix="no build_host; or build: dkms")
    if driver.source == "runfile":
        yield Problem(path=path, message=f"{prefix}, and a runfile has its modules built by DKMS", fix="build: dkms")


def of_kernel(ctx: Ctx, flavour: str, kernel: str) -> list[str]:
    """Return the packages of modules that a kernel needs, for the installed driver."""
    names, own_package = package_names(ctx.fragment, ctx.facts), module_package(ctx.fragment, ctx.facts)
    given = {flavour: names.precompiled.get(flavour, ())}
    rules = package_lists.precompiled_sets({flavour: []}, given, [kernel])[flavour]
    return list(resolve.fitting(rules, own_package.version)) if own_package else []


@check(
    "nvidia_driver.precompiled",
    *(*BASE_PROBES, modules.KERNELS),
    fields=("build",),
    moment="next-boot",
    evidence="dpkg -l 'linux-modules-nvidia-*' 'linux-image-*'; rpm -qa 'kmod-nvidia*' 'kernel*'; apt-mark showhold",
)
def precompiled(ctx: Ctx) -> Outcome:
    """Modules come from where `build` says: from DKMS, or from a package for every kernel that can boot, which is held,
    as are the kernels, since a new one would boot without a driver."""
    names, installed, present = package_names(ctx.fragment, ctx.facts), ctx.facts.get(PACKAGES), versions(ctx.facts)
    beside = names.built_otherwise(present)
    if ctx.fragment.build == "dkms":
        if beside:
            return fail("modules that DKMS builds", f"precompiled: {' '.join(beside)}", "gpuprov apply removes them")
        return not_asked("DKMS builds the modules")
    expected = "precompiled modules for every kernel that can boot, held with the kernels"
    if beside:
        fix = "gpuprov apply removes it: what DKMS has built is loaded before what was precompiled"
        return fail(expected, f"installed beside them: {' '.join(beside)}", fix)
    flavour = decide(ctx.fragment, ctx.facts).flavour
    by_kernel = {kernel.release: of_kernel(ctx, flavour, kernel.release) for kernel in build_targets(ctx.facts)}
    lacking = [
        kernel for kernel, names_of in by_kernel.items() if not names_of or not set(names_of) <= installed.keys()
    ]
    if lacking or not by_kernel:
        changes = [Change(kind="package", name=f"modules of {kernel}", after="installed") for kernel in lacking]
        fix = (
            "gpuprov apply installs them where they are offered; else remove that kernel, or nvidia_driver: "
            "{build: dkms}"
        )
        return fail(expected, f"none for {' '.join(lacking)}" if lacking else "no kernel found", fix, changes=changes)
    own_names = [name for names_of in by_kernel.values() for name in names_of]
    if broken := [name for name in own_names if not installed[name].whole]:
        repair = words(ctx.facts.get(system.OS_RELEASE)).repair
        return fail(expected, f"incomplete: {' '.join(broken)}", f"{repair}; gpuprov apply")
    kernels = [name for name, package in installed.items() if name == package.name and re.fullmatch(BOOTING, name)]
    loose = [name for name in (*own_names, *kernels) if not installed[name].held]
    if loose and ctx.fragment.hold:
        command = f"{words(ctx.facts.get(system.OS_RELEASE)).hold} {' '.join(loose)}"
        return fail(expected, f"not held: {' '.join(loose)}", command, changes=list_holds(loose))
    return ok(f"{' '.join(own_names)}", expected)


CHECKS = (precompiled,)
