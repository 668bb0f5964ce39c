"""Checks of DOCA-OFED: its release, whether its modules are loaded, and whether they will be at the next boot."""

from gpuprov.capabilities import answers
from gpuprov.capabilities.answers import APPLY
from gpuprov.capabilities.base import Context, Outcome, check, fail, not_asked, ok, skip
from gpuprov.capabilities.compared import list_changes, restart_unit
from gpuprov.capabilities.rdma.fragment import Rdma
from gpuprov.capabilities.rdma.ofed.beside import BESIDE
from gpuprov.capabilities.rdma.ofed.decision import release_of
from gpuprov.capabilities.rdma.ofed.rules import rules
from gpuprov.catalog.rdma import ofed as catalogue
from gpuprov.core.sanitize import counted
from gpuprov.facts.probes.base import Facts
from gpuprov.facts.probes.host import system
from gpuprov.facts.probes.host.family import family, words
from gpuprov.facts.probes.rdma import ofed as probe
from gpuprov.facts.probes.rdma.ofed import OFED, PACKAGES, Ofed
from gpuprov.resources import Difference

Ctx = Context[Rdma]
FIELDS = ("stack", "ofed")
SKIPPED_FIX = (
    "dkms autoinstall -k KERNEL builds OFED's modules; FORCE_MODE=yes in openib.conf would load the kernel's own"
)


def other_stack(ctx: Ctx) -> Outcome | None:
    """Return the answer of every check here if the spec asks for another stack."""
    return None if ctx.fragment.own_stack == "doca-ofed" else not_asked(f"the stack is {ctx.fragment.own_stack}")


@check(
    "rdma.ofed_release",
    *(OFED, PACKAGES, system.OS_RELEASE),
    fields=FIELDS,
    evidence="ofed_info -s; dpkg -l doca-ofed; rpm -q doca-ofed",
)
def release(ctx: Ctx) -> Outcome:
    """DOCA-OFED is installed completely, in the release that the spec asks for."""
    if answer := other_stack(ctx):
        return answer
    state, packages = ctx.facts.get(OFED), ctx.facts.get(PACKAGES)
    version = ctx.fragment.ofed.version
    expected = f"{catalogue.PROFILE}, OFED {version or 'of any release'}"
    installed = release_of(ctx.facts, state)
    moved = list_changes([Difference(catalogue.PROFILE, installed, version or "newest", kind="package")])
    if catalogue.PROFILE not in packages:
        what = f"OFED {installed} without {catalogue.PROFILE}" if installed else f"{catalogue.PROFILE} is not installed"
        way = f"{catalogue.UNINSTALL}, then {APPLY}" if installed else APPLY
        return fail(expected, what, way, changes=moved)
    broken = sorted(name for name, package in packages.items() if not package.whole)
    if broken:
        return fail(
            expected, f"incomplete: {' '.join(broken)}", words(ctx.facts.get(system.OS_RELEASE)).repair, changes=moved
        )
    if not catalogue.is_fitting(installed, version):
        fix = f"{APPLY}, with the doca-host package of OFED {version} in rdma.ofed, or its repository on the host"
        return fail(expected, f"OFED {installed or 'of an unknown release'}", fix, changes=moved)
    return ok(
        f"{catalogue.PROFILE} {packages[catalogue.PROFILE].version}, OFED {installed or 'of an unknown release'}",
        expected,
    )


@check("rdma.ofed_held", PACKAGES, *answers.HOLDING, fields=("ofed",), moment="next-boot", evidence=answers.SHOWN)
def held(ctx: Ctx) -> Outcome:
    """Its packages are held, so that the distribution's own do not replace them; or none is held, if the spec asks for
    that."""
    if answer := other_stack(ctx):
        return answer
    kind = family(ctx.facts.get(system.OS_RELEASE)) or "debian"
    own = {
        name: package
        for name, package in ctx.facts.get(PACKAGES).items()
        if name in catalogue.list_packages(kind, held=True)
    }
    return answers.held(ctx.facts, own, "DOCA-OFED", hold=ctx.fragment.ofed.hold)


@check(
    "rdma.ofed_loaded",
    OFED,
    system.CONTAINER,
    fields=FIELDS,
    evidence="modinfo -n ib_core; cat /sys/module/ib_core/srcversion",
)
def loaded(ctx: Ctx) -> Outcome:
    """The loaded RDMA modules are all OFED's: not the kernel's own, and no mixture."""
    if answer := other_stack(ctx):
        return answer
    if kind := ctx.facts.get(system.CONTAINER):
        return skip(f"{kind} container: kernel modules are the machine's")
    state = ctx.facts.get(OFED)
    expected = f"{', '.join(catalogue.list_modules('core'))} of OFED"
    if not state.loaded:
        return fail(expected, "none of them is loaded", "systemctl restart openibd; journalctl -u openibd")
    wrong = [module.name for module in state.loaded if not module.of_ofed]
    if not wrong:
        return ok(f"{', '.join(module.name for module in state.loaded)} of OFED", expected)
    right = [module.name for module in state.loaded if module.of_ofed]
    mixed = f", beside OFED's {' '.join(right)}: symbols of two stacks" if right else ""
    message = f"{' '.join(wrong)}: the kernel's own, or of another OFED{mixed}"
    if not all(probe.of_ofed(module.file) for module in state.loaded):
        return fail(
            expected, message, f"OFED is not built for {state.running}: {SKIPPED_FIX.replace('KERNEL', state.running)}"
        )
    if held_by := holders(state):
        why = f"DOCA-OFED's modules are not loaded, and openibd cannot restart: {held_by}"
        return fail(expected, message, f"end what uses RDMA, then {APPLY}; or a reboot", reboot=why)
    moved = restart_unit(catalogue.UNIT, "the kernel's modules", "OFED's modules")
    return fail(expected, message, f"systemctl restart openibd ({APPLY} does)", changes=moved)


def foreign(facts: Facts) -> list[str]:
    """Return the loaded modules that are not OFED's; none in a container, where they are the machine's and cannot be
    changed."""
    return (
        [] if facts.get(system.CONTAINER) else [module.name for module in facts.get(OFED).loaded if not module.of_ofed]
    )


def holders(state: Ofed) -> str:
    """Return what prevents a restart of openibd, in words; empty if nothing does."""
    reasons = [f"{name} is in use" for name in state.busy]
    reasons += [f"RDMA devices are open in {', '.join(state.clients)}"] if state.clients else []
    reasons += [f"the default route runs over {state.uplink}, which would go down"] if state.uplink else []
    reasons += [
        f"{name} would go down, with {counted(count, 'TCP connection')} over it" for name, count in state.talks.items()
    ]
    return "; ".join(reasons)


@check(
    "rdma.ofed_built",
    OFED,
    fields=FIELDS,
    moment="next-boot",
    evidence="dkms status; modinfo -k $(uname -r) -n ib_core",
)
def built(ctx: Ctx) -> Outcome:
    """OFED's modules are built for every installed kernel, so that any of them can boot next."""
    if answer := other_stack(ctx):
        return answer
    state = ctx.facts.get(OFED)
    targets = state.targets()
    names = [name for name in catalogue.list_modules("dkms") if name in state.dkms] or ["OFED's modules"]
    expected = f"{', '.join(names)} for each of {counted(len(targets), 'kernel')}"
    if not targets:
        return fail(expected, "no kernel that modules could be built for", "install a kernel, and its headers")
    problems = []
    for kernel in targets:
        file = kernel.files.get("ib_core", "")
        lacking = [name for name in state.dkms if name not in kernel.built]
        if not probe.of_ofed(file):
            problems.append(
                f"{kernel.release} would load {'the kernel' + chr(39) + 's own ib_core' if file else 'no ib_core'}"
            )
        elif lacking:
            problems.append(f"{kernel.release} has no {' '.join(lacking)}")
    if problems:
        return fail(
            expected,
            "; ".join(problems),
            "headers of that kernel, then dkms autoinstall -k KERNEL; its log: /var/lib/dkms/*/*/build/make.log",
        )
    return ok(f"{', '.join(kernel.release for kernel in targets)}", expected)


@check("rdma.ofed_openibd", OFED, fields=("ofed",), moment="next-boot")
def openibd(ctx: Ctx) -> Outcome:
    """openibd loaded OFED's modules without skipping any at its last start."""
    if answer := other_stack(ctx):
        return answer
    state = ctx.facts.get(OFED)
    if state.skipped:
        message = f"openibd skipped {' '.join(state.skipped)}, as not OFED's"
        return fail(
            "OFED's modules loaded by openibd", message, SKIPPED_FIX.replace("KERNEL", state.running or "KERNEL")
        )
    return ok("openibd skipped no module")


def conf(block: Rdma) -> dict[str, str]:
    """Return the keys of openib.conf as the file has them."""
    words = {True: "yes", False: "no"}
    return {key: value if isinstance(value, str) else words[value] for key, value in block.ofed.openib_conf.items()}


CHECKS = (release, held, loaded, built, openibd, *BESIDE)
__all__ = ("CHECKS", "rules")
