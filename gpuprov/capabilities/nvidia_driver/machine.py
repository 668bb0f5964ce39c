"""Checks of virtual machines: whether this VM gives its GPUs what the driver needs, and which driver they need."""

from gpuprov.capabilities.base import Context, Outcome, check, fail, ok, skip
from gpuprov.capabilities.nvidia_driver.fragment import NvidiaDriver
from gpuprov.catalog import drivers, find_gpu, gpus
from gpuprov.catalog import vgpu as catalogue
from gpuprov.core.sanitize import counted
from gpuprov.facts.probes.driver import nvidia
from gpuprov.facts.probes.host import pci, system
from gpuprov.facts.probes.host.virtualization import FUNCTIONS, MACHINE, Machine, reset_by_reboot

Ctx = Context[NvidiaDriver]
NO_GPU = "no NVIDIA GPU on the PCI bus"
BARE_METAL = "bare metal: there is no hypervisor"
OF_MACHINE = "the driver is that of the machine that it is on"


def described(machine: Machine) -> str:
    """Return the machine in words: `Azure (Hyper-V), UEFI`."""
    known = catalogue.find_hypervisor(machine.kind)
    name = known.name if known else machine.kind or "bare metal"
    cloud = catalogue.find_cloud(machine.vendor, machine.product, machine.tag)
    firmware = "UEFI" if machine.efi else "BIOS"
    return f"{f'{cloud} ({name})' if cloud else name}, {firmware}"


def room(machine: Machine) -> str:
    """Return how to make room for the memory of GPUs on this kind of machine."""
    cloud = catalogue.find_cloud(machine.vendor, machine.product, machine.tag)
    if cloud and machine.kind:
        return catalogue.CLOUD.format(name=cloud)
    if not machine.kind:
        return catalogue.BARE_METAL
    known = catalogue.find_hypervisor(machine.kind)
    return f"{known.name}: {known.memory}" if known else f"{machine.kind}: {catalogue.OTHER_HYPERVISOR}"


def outside(ctx: Ctx) -> str:
    """Return why these checks do not apply to this host: it has no GPU, or is a container."""
    if not pci.gpus(ctx.facts.get(pci.NVIDIA_FUNCTIONS)):
        return NO_GPU
    container = ctx.facts.get(system.CONTAINER)
    return f"{container} container: {OF_MACHINE}" if container else ""


def outside_vm(ctx: Ctx) -> str:
    """Return the same, for checks of virtual machines only."""
    return outside(ctx) or ("" if ctx.facts.get(MACHINE).kind else BARE_METAL)


@check(
    "nvidia_driver.machine_memory",
    *(MACHINE, FUNCTIONS, pci.NVIDIA_FUNCTIONS, system.CONTAINER),
    moment="preflight",
    evidence="lspci -vv -d 10de: | grep Region; systemd-detect-virt; ls -d /sys/firmware/efi",
)
def memory(ctx: Ctx) -> Outcome:
    """The machine gave each GPU addresses for its registers and for the window on its memory, without which the driver
    refuses it."""
    if why := outside(ctx):
        return skip(why)
    machine, functions = ctx.facts.get(MACHINE), ctx.facts.get(FUNCTIONS)
    expected = "an address for region 0 and for the window on the GPU's memory, on every GPU"
    models = {gpu.address: find_gpu(gpu.identifier) for gpu in pci.gpus(ctx.facts.get(pci.NVIDIA_FUNCTIONS))}
    integrated = {address for address, model in models.items() if model and model.form_factor == "integrated"}
    lacking = {function.address: function.without_address(function.address in integrated) for function in functions}
    wrong = [f"{address} {' '.join(names)}" for address, names in lacking.items() if names]
    if wrong:
        message = (
            f"without an address (the driver says BAR is 0M, RmInitAdapter failed): {', '.join(wrong)}; "
            f"{described(machine)}"
        )
        return fail(expected, message, room(machine))
    return ok(f"{counted(len(functions), 'GPU')} with all their regions; {described(machine)}", expected)


@check(
    "nvidia_driver.machine_vgpu",
    *(MACHINE, FUNCTIONS, pci.NVIDIA_FUNCTIONS, system.CONTAINER),
    moment="preflight",
    evidence="lspci -vvv -d 10de: | grep -A1 'Vendor Specific'; nvidia-smi -q | grep 'Virtualization Mode'",
)
def vgpu(ctx: Ctx) -> Outcome:
    """No GPU is a vGPU: a vGPU needs the guest driver of NVIDIA's vGPU software, which this block does not install."""
    if why := outside_vm(ctx):
        return skip(why)
    machine, functions = ctx.facts.get(MACHINE), ctx.facts.get(FUNCTIONS)
    unread = [function.address for function in functions if function.kind == "unknown"]
    if unread:
        message = f"configuration space not readable: {' '.join(unread)}"
        return fail("GPUs that say whether they are vGPUs", message, "let gpuprov become root on the host")
    shared = [function for function in functions if function.kind == "vgpu"]
    if shared:
        hosts = " ".join(sorted({gpu.host_driver or "of unknown version" for gpu in shared}))
        message = f"vGPU: {' '.join(gpu.address for gpu in shared)}; vGPU manager {hosts}; {described(machine)}"
        return fail(
            "no vGPU, as nvidia_driver is in the spec",
            message,
            f"{catalogue.FIX}; then vgpu_guest: {{token_file: ...}}",
        )
    return ok(f"{counted(len(functions), 'GPU')} passed through; {described(machine)}")


@check(
    "nvidia_driver.machine_hypervisor",
    *(MACHINE, pci.NVIDIA_FUNCTIONS, nvidia.DRIVER, system.CONTAINER),
    fields=("version",),
    moment="preflight",
    evidence="systemd-detect-virt --vm; grep -o -m1 hypervisor /proc/cpuinfo",
)
def hypervisor(ctx: Ctx) -> Outcome:
    """The spec does not ask for a driver that refuses to start a GeForce under a hypervisor, or the hypervisor hides
    itself."""
    if why := outside_vm(ctx):
        return skip(why)
    on_bus, machine = pci.gpus(ctx.facts.get(pci.NVIDIA_FUNCTIONS)), ctx.facts.get(MACHINE)
    since = catalogue.read_vgpu_file().visible_hypervisor_since.branch
    version = ctx.fragment.version
    branch = (
        drivers.derive_branch(version) if version != "any" else ctx.facts.get(nvidia.DRIVER).version.partition(".")[0]
    )
    consumer = [gpu.address for gpu in on_bus if is_geforce(gpu.identifier)]
    if not consumer or not branch or int(branch) >= int(since):
        message = f"driver {branch or 'still to be chosen'}" if consumer else "no GeForce"
        return ok(f"{message}: the hypervisor may be seen; {described(machine)}")
    expected = f"driver {since} or newer, or a hypervisor that is not seen"
    if machine.hidden:
        return ok(f"driver {branch}, and {described(machine)} hides itself", expected)
    known = catalogue.find_hypervisor(machine.kind)
    way = f"; or hide the hypervisor: {known.hidden}" if known and known.hidden else ""
    message = f"driver {branch} starts no GeForce ({' '.join(consumer)}) where it sees {described(machine)}"
    return fail(expected, message, f'nvidia_driver: {{version: "{since}"}} or newer{way}')


def is_geforce(identifier: str) -> bool:
    """Return whether the catalogue knows the function as a GeForce."""
    gpu = gpus.find_by_pci_id(identifier)
    return gpu is not None and gpus.is_of(gpu, "GeForce")


@check(
    "nvidia_driver.machine_reset",
    *(MACHINE, FUNCTIONS, pci.NVIDIA_FUNCTIONS, system.CONTAINER),
    moment="preflight",
    evidence="cat /sys/bus/pci/devices/*/reset_method; nvidia-smi -r",
)
def reset(ctx: Ctx) -> Outcome:
    """The requested settings can take effect: in a VM that may not reset its GPUs, MIG mode changes only by a
    reboot."""
    if why := outside_vm(ctx):
        return skip(why)
    machine = ctx.facts.get(MACHINE)
    why = reset_by_reboot(machine, ctx.facts.get(FUNCTIONS))
    needs = [name for name in ("mig",) if name in ctx.host.capabilities]
    if why and needs and ctx.host.reboot == "never":
        fix = "gpuprov.reboot: if-needed, which lets apply reboot this VM once"
        return fail(f"a reset for {' '.join(needs)}, or leave to reboot", f"{why}; reboot: never", fix)
    return ok(
        f"{why}: changes that need a reset come with a reboot" if why else f"GPUs can be reset; {described(machine)}"
    )


CHECKS = (memory, vgpu, hypervisor, reset)
