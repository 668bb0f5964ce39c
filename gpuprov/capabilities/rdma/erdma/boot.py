"""Checks of eRDMA after the next boot, and with another kernel."""

from gpuprov.capabilities.answers import APPLY
from gpuprov.capabilities.base import Change, Outcome, check, fail, ok
from gpuprov.capabilities.compared import build_modules, rebuild_images
from gpuprov.capabilities.rdma.erdma.state import Ctx, list_parameters, of_vendor
from gpuprov.catalog.rdma import erdma as catalogue
from gpuprov.core.sanitize import counted
from gpuprov.facts.probes.rdma.erdma import ERDMA, IMAGES, ErdmaKernel
from gpuprov.facts.probes.rdma.erdma import Erdma as State
from gpuprov.host_code.at_boot.erdma_state import is_same_value


@check(
    "rdma.erdma_kernels",
    ERDMA,
    fields=("erdma",),
    moment="next-boot",
    evidence="dkms status erdma; modinfo -k $(uname -r) erdma",
)
@of_vendor
def kernels(ctx: Ctx) -> Outcome:
    """Each installed kernel has Alibaba's driver, in compat mode built with MAD; DKMS has it registered, so that the
    next kernel gets it."""
    state, compat = ctx.facts.get(ERDMA), bool(ctx.fragment.erdma.compat_mode)
    expected = "Alibaba's driver for each installed kernel, by DKMS"
    without = [kernel for kernel in state.kernels if not kernel.vendor]
    if without or not state.kernels:
        message = "; ".join(_describe_lack(kernel) for kernel in without) or "no kernel in /lib/modules"
        changes = build_modules("erdma", {kernel.release: "" for kernel in without})
        return fail(expected, message, f"{APPLY}; or dkms install erdma/VERSION -k KERNEL", changes=changes)
    if not state.registered:
        fix = "run Alibaba's installer again: its package registers erdma with DKMS"
        return fail(expected, "dkms status does not know erdma: the next kernel will have none", fix)
    simple = [kernel.release for kernel in state.kernels if not kernel.mad] if compat else []
    if simple:
        message = f"built without MAD for {' '.join(simple)}: no address handles, and so no rdma_cm, in compat mode"
        changes = build_modules("erdma", dict.fromkeys(simple, "without MAD"), "with MAD")
        fix = (
            f"{APPLY}; or ERDMA_FORCE_MAD_ENABLE=1 dkms build --force erdma/VERSION -k KERNEL, then dkms install "
            "--force"
        )
        return fail(expected, message, fix, changes=changes)
    return ok(f"{counted(len(state.kernels), 'kernel')}; {state.registered[0]}", expected)


def _describe_lack(kernel: ErdmaKernel) -> str:
    if kernel.path:
        return f"{kernel.release} has the kernel's own driver, {kernel.path}"
    return f"{kernel.release} has none" + ("" if kernel.headers else " and no headers to build it with")


@check(
    "rdma.erdma_options",
    ERDMA,
    fields=("erdma",),
    moment="next-boot",
    evidence="modprobe -c | grep erdma; cat /etc/modprobe.d/*erdma*",
)
@of_vendor
def options(ctx: Ctx) -> Outcome:
    """modprobe gives the driver the mode and the parameters that the spec asks for, from gpuprov's own file; the driver
    package's file still has its softdep, and no other file's options interfere."""
    state, values = ctx.facts.get(ERDMA), list_parameters(ctx.fragment)
    expected = "options erdma " + " ".join(f"{name}={value}" for name, value in values.items())
    if wrong := _judge_options(state, values, expected):
        return wrong
    foreign = [(file, line) for file, line in state.files if file != catalogue.OPTIONS]
    if foreign:
        file, line = foreign[0]
        message = f'{file} says "{line}", too'
        return fail(
            f"{catalogue.OPTIONS} alone says it",
            message,
            f"take that line out of {file}: of two, the later file counts",
        )
    if state.vendor_file and not state.vendor_softdep:
        message = (
            f"{catalogue.VENDOR_OPTIONS} has lost its softdep: it was overwritten, perhaps by a recipe for compat_mode"
        )
        fix = f"echo '{catalogue.SOFTDEP}' > {catalogue.VENDOR_OPTIONS}"
        return fail(catalogue.SOFTDEP, message, fix)
    if not state.softdep:
        change = Change(kind="file", name=catalogue.OPTIONS, after=catalogue.SOFTDEP)
        return fail(catalogue.SOFTDEP, "modprobe knows no softdep of erdma", APPLY, changes=[change])
    return ok(expected)


def _judge_options(state: State, values: dict[str, str], expected: str) -> Outcome | None:
    wrong = {
        name: state.options.get(name, "")
        for name in values
        if not is_same_value(state.options.get(name, ""), values[name])
    }
    spare = sorted(set(state.options) - set(values))
    if not wrong and not spare:
        return None
    message = " ".join(
        [f"{name} is {value or 'left to the build'}" for name, value in wrong.items()]
        + [f"{name} is set" for name in spare]
    )
    change = Change(
        kind="file",
        name=catalogue.OPTIONS,
        after=expected,
        before=" ".join(f"{name}={value}" for name, value in state.options.items()),
    )
    return fail(
        expected, message, f"{APPLY}; modprobe -c | grep '^options erdma' says what modprobe gives it", changes=[change]
    )


@check("rdma.erdma_initramfs", IMAGES, fields=("erdma",), moment="next-boot")
@of_vendor
def initramfs(ctx: Ctx) -> Outcome:
    """An initramfs that holds erdma also holds gpuprov's options for it: otherwise the boot loads it in the mode of its
    build."""
    images = [image for image in ctx.facts.get(IMAGES) if "erdma" in image.modules]
    if not images:
        return ok("no initramfs holds erdma")
    armed = [image for image in images if not image.holds_configuration]
    if armed:
        changes = rebuild_images(image.image for image in armed)
        message = (
            f"{' '.join(image.image for image in armed)} holds erdma without {catalogue.OPTIONS}, or is older than it"
        )
        return fail(f"{catalogue.OPTIONS} inside", message, armed[0].rebuild, changes=changes)
    return ok(f"erdma and its options in {counted(len(images), 'image')}")


CHECKS = (kernels, options, initramfs)
