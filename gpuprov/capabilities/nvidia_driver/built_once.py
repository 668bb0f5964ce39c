"""`build_host`: modules that one host builds and others install, without a compiler."""

from collections.abc import Iterable, Sequence

from gpuprov.capabilities.answers import list_holds
from gpuprov.capabilities.base import Change, Context, Outcome, check, fail, not_asked, ok
from gpuprov.capabilities.nvidia_driver.fragment import BASE_PROBES, NvidiaDriver, build_targets, served
from gpuprov.core.sanitize import counted
from gpuprov.facts.probes.host import system
from gpuprov.facts.probes.host.family import NAMES, family, words
from gpuprov.facts.probes.kernel import modules
from gpuprov.facts.probes.software.packages import PACKAGES
from gpuprov.facts.probes.software.prebuilt import PREBUILT
from gpuprov.spec.model import HostSpec
from gpuprov.spec.problem import Problem

Ctx = Context[NvidiaDriver]
HERE = "nvidia_driver"
# Fields that decide which modules a host gets.
SAME = ("version", "cuda", "kernel_modules", "source")


@check("nvidia_driver.build_family", system.OS_RELEASE, fields=("build_host",), moment="preflight")
def build_family(ctx: Ctx) -> Outcome:
    """Modules are packed only on hosts of the Debian family: others have no program for it."""
    kind = family(ctx.facts.get(system.OS_RELEASE))
    if not ctx.fragment.build_host or kind in (None, "debian"):
        return not_asked(f"modules come from {ctx.fragment.build_host}") if ctx.fragment.build_host else not_asked()
    fix = "no build_host for this host, which builds its own"
    return fail("a host of the Debian family", f"the {NAMES[kind]} family: rpmbuild is not on its hosts", fix)


@check(
    "nvidia_driver.built_once",
    *(*BASE_PROBES, PREBUILT, modules.KERNELS),
    fields=("build_host",),
    moment="next-boot",
    evidence=PREBUILT.evidence,
)
def built_once(ctx: Ctx) -> Outcome:
    """The modules of every kernel that can boot are, byte for byte, those that the build host packed, and no kernel
    lacks them."""
    prebuilt = ctx.facts.get(PREBUILT)
    if not served(ctx.host, ctx.fragment):
        if prebuilt:
            fix = "gpuprov apply puts the DKMS package in its place"
            return fail("modules that the host builds", f"{prebuilt[0].package} is installed", fix)
        return not_asked("the host builds its modules itself")
    expected = f"the modules of {ctx.fragment.build_host}, whole"
    if len(prebuilt) != 1:
        listed = ", ".join(package.package for package in prebuilt) or "no package of another host's modules"
        return fail(
            expected,
            listed,
            "gpuprov apply",
            changes=[Change(kind="package", name=f"modules of {ctx.fragment.build_host}", after="installed")],
        )
    first = prebuilt[0]
    again = "gpuprov apply installs it again; what changed the files is not known"
    if not first.sums or first.sums != first.recorded:
        return fail(expected, f"the list of {first.package} is not the recorded one", again)
    if damaged := [path for path, right in first.files.items() if not right]:
        return fail(expected, f"not as packed: {' '.join(damaged)}", again)
    targets = [kernel.release for kernel in build_targets(ctx.facts)]
    if lacking := [kernel for kernel in targets if kernel not in first.kernels()]:
        fix = f"install that kernel on {ctx.fragment.build_host}, apply it, then this host"
        return fail(expected, f"{first.package} has none for {' '.join(lacking)}", fix)
    installed = ctx.facts.get(PACKAGES)
    loose = [name for name in installed if name.startswith("linux-image-") and not installed[name].held]
    if loose and ctx.fragment.hold:
        command = f"{words(ctx.facts.get(system.OS_RELEASE)).hold} {' '.join(loose)}"
        changes = list_holds(loose)
        return fail(
            "kernels held: a new one would have no modules", f"not held: {' '.join(loose)}", command, changes=changes
        )
    return ok(f"{first.package}: {counted(len(first.files), 'file')} for {' '.join(sorted(first.kernels()))}", expected)


def fleet_rules(hosts: Sequence[HostSpec], unmanaged: Sequence[str], *, whole: bool) -> Iterable[tuple[str, Problem]]:
    """Yield the hosts that name an unsuitable build host. Without the `whole` inventory a build host that is missing is
    not judged."""
    drivers = {host.name: d for host in hosts if isinstance(d := host.capabilities.get(HERE), NvidiaDriver)}
    for name, driver in drivers.items():
        builder = driver.build_host
        if not builder or builder == name:
            continue
        message, fix = "", ""
        other = drivers.get(builder)
        if other is None:
            known = builder in unmanaged or any(host.name == builder for host in hosts)
            if not known and not whole:
                continue
            message = "has no nvidia_driver of its own" if known else "is not a host of the inventory"
            fix = "name a host that has the same driver"
        elif other.build_host != builder:
            message = f"builds for itself only: its own build_host is {other.build_host or 'not set'}"
            fix = f"build_host: {builder} on that host, too: it packs what it builds"
        elif differing := [field for field in SAME if getattr(driver, field) != getattr(other, field)]:
            field = differing[0]
            message = (
                f"has another driver: {field} {getattr(other, field) or 'not set'}, here "
                f"{getattr(driver, field) or 'not set'}"
            )
            fix = f"the same {', '.join(SAME)} for both"
        if message:
            text = f"nvidia_driver.build_host {builder} {message}"
            yield name, Problem(path=(HERE, "build_host"), message=text, fix=fix)


CHECKS = (built_once,)
PREFLIGHT = (build_family,)
