"""Checks that the host can have the requested eRDMA, made before anything is changed."""

from gpuprov.capabilities.base import Outcome, check, fail, not_asked, ok, skip
from gpuprov.capabilities.rdma.erdma.decision import BUILT, PROBES, decide
from gpuprov.capabilities.rdma.erdma.now import clashes
from gpuprov.capabilities.rdma.erdma.rules import together
from gpuprov.capabilities.rdma.erdma.state import Ctx, advise_reboot, holders, of_erdma, of_vendor, vendor
from gpuprov.catalog.rdma import erdma as catalogue
from gpuprov.facts.probes.rdma import DEVICES
from gpuprov.facts.probes.rdma.erdma import ERDMA


@check(
    "rdma.erdma_function",
    *PROBES,
    fields=("fabric",),
    moment="preflight",
    evidence="lspci -nn -d 1ded:107f; modinfo erdma",
)
@of_erdma
def function(ctx: Ctx) -> Outcome:
    """The instance has an eRDMA interface (PCI 1ded:107f), and a driver that is installed or can be installed."""
    state, block = ctx.facts.get(ERDMA), ctx.fragment.erdma
    identifier = catalogue.read_erdma_file().functions[0].id
    if not state.functions:
        fix = (
            "bind an elastic RDMA interface (ERI) to the instance; DescribeInstanceTypes.EriQuantity 0: the type "
            "has none"
        )
        return fail(f"a PCI function {identifier}", "none", fix)
    module = state.running
    if not vendor(ctx.fragment) and not (module and module.path):
        release = module.release if module else "this kernel"
        message = f"{release} is built without erdma"
        return fail(
            "the kernel's own driver erdma",
            message,
            "stack: erdma-vendor, with rdma.erdma.installer; Debian's kernels have none",
        )
    sources = (block.installer, block.url, block.file, *block.packages)
    has_vendor = any(kernel.vendor for kernel in state.kernels)
    if vendor(ctx.fragment) and not any(sources) and not has_vendor:
        message = "the host has none, and the spec names no installer"
        return fail(
            "Alibaba's driver", message, 'rdma.erdma.installer: "1.5.7", or url or file with sha256, or packages'
        )
    if vendor(ctx.fragment) and not state.kernels:
        message = "neither a kernel in /boot nor kernel headers in /lib/modules: there is nothing to build for"
        return fail(
            "a kernel", message, "install a kernel, or, in a container, the headers package of the machine's kernel"
        )
    if unknown := decide(ctx.fragment, ctx.facts).unknown:
        message = f"no names are known on {unknown} of the packages that its build needs"
        return fail(
            "Alibaba's driver for each kernel",
            message,
            "another distribution; or an image that has the driver for each kernel",
        )
    return ok(f"{identifier} at {' '.join(address for address, _ in state.functions)}")


@check(
    "rdma.erdma_users",
    *PROBES,
    fields=("erdma",),
    moment="preflight",
    evidence="rdma res show qp; cat /sys/module/erdma/parameters/compat_mode",
)
@of_vendor
def users(ctx: Ctx) -> Outcome:
    """No process uses a device of a driver that must be reloaded: for another build, or for its mode and parameters,
    which are read-only while it is loaded."""
    state = ctx.facts.get(ERDMA)
    wrong = decide(ctx.fragment, ctx.facts).anew
    used = holders(state)
    if wrong and used:
        message = f"{', '.join(wrong)} must change, and {used} hold its devices"
        out = "" if BUILT in wrong else advise_reboot(state, ctx.fragment)
        return fail("nothing uses erdma", message, f"end them, then apply again{out}")
    return ok(f"{used} hold it, and nothing must change" if used else "nothing uses it")


@check("rdma.erdma_asked", fields=("erdma",), moment="preflight", evidence="gpuprov check")
@of_erdma
def check_settings(ctx: Ctx) -> Outcome:
    """The settings of the block are consistent. `gpuprov check` proves this for an inventory; a play's variables may
    have changed since."""
    for problem in together(ctx.fragment):
        return fail("another rdma block", problem.message, problem.fix)
    return ok("eRDMA's settings are consistent")


@check("rdma.erdma_free", ERDMA, DEVICES, fields=("erdma",), moment="preflight", evidence="ss -tlnp; rdma link")
@of_vendor
def free(ctx: Ctx) -> Outcome:
    """In compat mode, no other program has the driver's TCP ports, and no rxe device has RoCE's UDP port."""
    if not ctx.fragment.erdma.compat_mode:
        return not_asked("only compat mode needs ports")
    return clashes(ctx) or ok("free, or eRDMA's own")


@check(
    "rdma.erdma_ofed",
    ERDMA,
    fields=("erdma",),
    moment="preflight",
    evidence="ls /usr/src/ofa_kernel; modinfo -n ib_core",
)
@of_vendor
def ofed(ctx: Ctx) -> Outcome:
    """A tree of OFED's sources matches the kernel's ib_core: otherwise erdma is built against symbols that nothing
    provides."""
    state = ctx.facts.get(ERDMA)
    if not state.ofed:
        return skip("no tree of OFED: erdma is built for the kernel's own ib_core")
    if "/kernel/drivers/" in state.core or not state.core:
        message = (
            f"{state.ofed} is there, and ib_core is {state.core or 'not there'}: erdma would not load (Unknown symbol)"
        )
        fix = (
            "rdma.stack doca-ofed first, or remove its packages (mlnx-ofed-kernel-dkms); or move that folder "
            "away for the build"
        )
        return fail("OFED's sources and OFED's ib_core, or neither", message, fix)
    return ok(f"{state.ofed} and {state.core}")


CHECKS = (check_settings, function, users, free, ofed)
