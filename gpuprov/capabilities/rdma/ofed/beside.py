"""Software that must not be installed beside DOCA-OFED, or DOCA-OFED beside it; and hosts on which it cannot be
installed."""

from gpuprov.capabilities.answers import APPLY
from gpuprov.capabilities.base import Context, Outcome, check, fail, not_asked, ok, skip
from gpuprov.capabilities.rdma.fragment import Rdma
from gpuprov.capabilities.rdma.ofed.decision import ENDS, PROBES, decide, named
from gpuprov.catalog.gds import MODULE as NVIDIA_FS
from gpuprov.catalog.rdma import ofed as catalogue
from gpuprov.facts.probes.host import system
from gpuprov.facts.probes.host.family import family
from gpuprov.facts.probes.rdma.ofed import OFED, PACKAGES

Ctx = Context[Rdma]
OFED_NAMES = ("doca-ofed", "mlnx-ofed-kernel-dkms", "mlnx-ofa_kernel", "mlnx-ofa_kernel-dkms")


@check(
    "rdma.ofed_alone",
    OFED,
    PACKAGES,
    system.OS_RELEASE,
    fields=("stack",),
    evidence="dpkg -l 'mlnx-*'; rpm -qa 'mlnx-*'; dnf repolist -v",
)
def alone(ctx: Ctx) -> Outcome:
    """There is one RDMA stack: no OFED beneath the kernel's own; with OFED, no older modules of others, and no package
    source that would replace OFED's packages."""
    state, packages = ctx.facts.get(OFED), ctx.facts.get(PACKAGES)
    stack = ctx.fragment.own_stack
    if stack == "inbox":
        conflicting = [name for name in OFED_NAMES if name in packages]
        if conflicting:
            message = f"{' '.join(conflicting)} is installed: modules and libraries of two stacks"
            return fail(
                "the kernel's own RDMA stack alone",
                message,
                f"stack: doca-ofed; or {catalogue.UNINSTALL}, and a reboot",
            )
        return ok("no OFED beside the kernel's own stack")
    if stack != "doca-ofed":
        return not_asked(f"the stack is {stack}")
    older = [f"{name} for {kernel.release}" for kernel in state.targets() for name in kernel.older]
    if older:
        message = f"built before this OFED, against another ib_core: {', '.join(older)}"
        ours = "gds" in ctx.host.capabilities and {NVIDIA_FS} >= {
            name for kernel in state.targets() for name in kernel.older
        }
        fix = APPLY if ours else "dkms remove and dkms install it anew; or its vendor's installer"
        return fail("other modules built against this OFED", message, fix)
    if state.mft_open and "mft" in packages and not packages["mft"].held:
        message = (
            f"{', '.join(state.mft_open)} also offers mft, which would take the place of DOCA's, and it is not held"
        )
        fix = "gpuprov apply, with rdma.ofed.hold: true; or excludepkgs=mft* in that file's section"
        return fail("mft of DOCA, held or excluded from CUDA's repository", message, fix)
    if family(ctx.facts.get(system.OS_RELEASE)) == "debian" and not state.dkms_pinned:
        message = "apt would take DOCA's dkms in place of the distribution's"
        return fail(f"{catalogue.PIN} keeps DOCA's dkms out", message, "gpuprov apply")
    return ok("nothing that works against DOCA-OFED")


@check(
    "rdma.ofed_fits",
    OFED,
    PACKAGES,
    system.OS_RELEASE,
    fields=("ofed",),
    moment="preflight",
    evidence="cat /etc/os-release; ofed_info -s",
)
def fits(ctx: Ctx) -> Outcome:
    """This OFED builds on this distribution, and its package is for this family."""
    if ctx.fragment.own_stack != "doca-ofed":
        return not_asked(f"the stack is {ctx.fragment.own_stack}")
    system_is, requested = ctx.facts.get(system.OS_RELEASE), ctx.fragment.ofed
    kind = family(system_is)
    if kind not in ENDS:
        message = f"no package names are known for DOCA-OFED on {system_is.name or system_is.id}"
        return fail("Debian, Ubuntu, EL or what descends from them", message, "stack: inbox")
    end = f".{ENDS[kind]}"
    for key in ("url", "file"):
        if (value := getattr(requested, key)) and not value.endswith(end):
            return fail(
                f"a doca-host package *{end} for {system_is.name}",
                f"rdma.ofed.{key} is {value}",
                "the package of this distribution",
            )
    for version in dict.fromkeys((requested.version, ctx.facts.get(OFED).release)):
        if why := catalogue.find_unbuildable(kind, system_is.version, version):
            return fail(f"an OFED that builds on {system_is.name}", f"OFED {version}: {why.why}", why.way)
    return ok(f"{system_is.name}, OFED {requested.version or 'of any release'}")


@check(
    "rdma.ofed_resolvable",
    *PROBES,
    fields=("ofed",),
    moment="preflight",
    evidence="apt-cache madison doca-ofed mlnx-ofed-kernel-dkms; dnf repoquery --showduplicates doca-ofed; "
    "zypper search -s doca-ofed; ofed_info -s",
)
def resolvable(ctx: Ctx) -> Outcome:
    """The host's repositories have DOCA-OFED in the release that the spec asks for, it builds here, and no older OFED
    is in its way."""
    if ctx.fragment.own_stack != "doca-ofed":
        return not_asked(f"the stack is {ctx.fragment.own_stack}")
    decision, expected = decide(ctx.fragment.ofed, ctx.facts), f"OFED {ctx.fragment.ofed.version or 'of any release'}"
    if decision.problem:
        return fail(expected, decision.problem, decision.fix)
    if decision.waits:
        return skip(f"not among the package sources yet: resolved when apply has added {named(ctx.fragment.ofed)}")
    return ok(" ".join(decision.install) or f"{catalogue.PROFILE} is there", expected)


BESIDE = (alone, fits, resolvable)
