"""Checks that every kernel that can boot has what the driver's modules need: headers, matching modules, and DKMS for
the next kernel."""

from gpuprov.capabilities.base import Change, Context, Outcome, check, fail, not_asked, ok
from gpuprov.capabilities.nvidia_driver.fragment import (
    BASE_PROBES,
    NvidiaDriver,
    built_here,
    package_names,
    served,
    spares,
)
from gpuprov.capabilities.nvidia_driver.kernels import before_the_boot, repair, why
from gpuprov.capabilities.nvidia_driver.transaction import header_metapackages, installed_version
from gpuprov.facts.probes.driver.dkms_logs import DKMS_LOGS, NO_AUTOINSTALL
from gpuprov.facts.probes.host import system
from gpuprov.facts.probes.kernel import modules
from gpuprov.facts.probes.software.packages import PACKAGES
from gpuprov.rules import package_lists

Ctx = Context[NvidiaDriver]


@check(
    "nvidia_driver.headers", *BASE_PROBES, modules.KERNELS, moment="next-boot", evidence="ls -d /lib/modules/*/build"
)
def headers(ctx: Ctx) -> Outcome:
    """Every kernel that can boot has its headers, and the next one brings its own: without them DKMS builds nothing."""
    if served(ctx.host, ctx.fragment):
        return not_asked(f"the modules come from {ctx.fragment.build_host}")
    if ctx.fragment.build == "precompiled":
        return not_asked("the modules are precompiled")
    targets = built_here(ctx.fragment, ctx.facts)
    if not targets:
        return fail("kernel headers", "no kernel and no kernel headers found", "install the headers of the kernel")
    missing = [kernel.release for kernel in targets if not kernel.headers]
    next_ones = [n for n in header_metapackages(ctx.fragment, ctx.facts) if n not in ctx.facts.get(PACKAGES)]
    if missing or next_ones:
        problems = [f"none for {' '.join(missing)}"] * bool(missing)
        problems += [f"the next kernel comes without: {' '.join(next_ones)} not installed"] * bool(next_ones)
        forms = [form for form in package_names(ctx.fragment, ctx.facts).headers if "{kernel}" in form]
        names = package_lists.header_packages(forms, missing) + next_ones
        changes = [Change(kind="package", name=name, after="installed") for name in names]
        return fail("headers for every kernel", "; ".join(problems), "gpuprov apply", changes=changes)
    return ok(" ".join(kernel.release for kernel in targets) + without(ctx))


def without(ctx: Ctx) -> str:
    """Return the kernels that are left out, in words."""
    left = " ".join(kernel.release for kernel in spares(ctx.fragment, ctx.facts))
    return f"; left out, without headers and neither running nor next: {left}" if left else ""


@check(
    "nvidia_driver.modules_built",
    *BASE_PROBES,
    modules.KERNELS,
    system.PLATFORM,
    DKMS_LOGS,
    fields=("version",),
    moment="next-boot",
    evidence="dkms status; modinfo -k $(uname -r) -F vermagic nvidia",
)
def modules_built(ctx: Ctx) -> Outcome:
    """Every kernel that can boot has the NVIDIA module on disk, in the same version as the packages, and built for this
    kernel."""
    version = installed_version(ctx.fragment, ctx.facts)
    if not version:
        return fail("kernel modules", "no kernel module package is installed", "gpuprov apply")
    targets = built_here(ctx.fragment, ctx.facts)
    if not targets:
        return fail(f"{version} for every kernel", "no kernel found to build for", "install the headers of the kernel")
    lacking = [kernel for kernel in targets if kernel.nvidia != version or kernel.missing]
    wrong = [
        f"{kernel.release}: "
        f"{' '.join(f'no {name}' for name in kernel.missing) or kernel.nvidia or 'none'}{why(ctx, kernel)}"
        for kernel in lacking
    ]
    if wrong:
        fix = f"{repair(ctx)}dkms status; ls /var/lib/dkms/*/*/build/make.log lists the logs of failed builds"
        if ctx.fragment.build == "precompiled":
            fix = "gpuprov apply, where precompiled modules of that kernel are offered; else remove the kernel"
        fix += before_the_boot(ctx, {kernel.release for kernel in lacking})
        return fail(f"{version} for every kernel", "; ".join(wrong), fix)
    if strays := [f"{kernel.release}: {stray}" for kernel in targets for stray in kernel.strays]:
        fix = (
            "dkms status; find /lib/modules -name 'nvidia*.ko*', and remove what an earlier installation has "
            "left; gpuprov apply"
        )
        return fail(f"every module of the set in {version}", "; ".join(strays), fix)
    if alien := [f"{kernel.release}: {kernel.nvidia} is for {kernel.built}" for kernel in targets if kernel.alien]:
        fix = "gpuprov apply builds it anew; this kernel refuses it, and boots without a driver"
        return fail(f"{version}, built for the kernel that it lies with", "; ".join(alien), fix)
    return ok(f"{version} for {' '.join(kernel.release for kernel in targets)}{without(ctx)}")


@check("nvidia_driver.autobuild", *BASE_PROBES, NO_AUTOINSTALL, moment="next-boot", evidence=NO_AUTOINSTALL.evidence)
def autobuild(ctx: Ctx) -> Outcome:
    """DKMS builds for the next kernel by itself: sources that it does not know or find, /etc/dkms/no-autoinstall,
    AUTOINSTALL in the driver's dkms.conf, or a hook of kernel packages that does not run would silently switch that
    off."""
    if served(ctx.host, ctx.fragment):
        return ok(
            f"DKMS builds nothing here: the modules come from {ctx.fragment.build_host}, and the kernels are held"
        )
    if ctx.fragment.build == "precompiled":
        return not_asked("DKMS builds nothing here: the modules are precompiled")
    if off := ctx.facts.get(NO_AUTOINSTALL):
        return fail(
            "DKMS builds for new kernels",
            "; ".join(each.message for each in off),
            "; ".join(each.fix for each in off),
        )
    return ok("DKMS builds for new kernels")


CHECKS = (headers, modules_built, autobuild)
