"""Checks of the peer-memory modules: built against peer memory, loaded, with sound parameters."""

from __future__ import annotations

import re
from collections.abc import Mapping

from gpuprov.capabilities.answers import APPLY
from gpuprov.capabilities.base import Outcome, check, fail, not_asked, ok, skip
from gpuprov.capabilities.compared import build_modules, find_fault
from gpuprov.capabilities.gpudirect_rdma.checks import Ctx, decided, without
from gpuprov.capabilities.gpudirect_rdma.decision import OFED, PROBES, Decision
from gpuprov.capabilities.gpudirect_rdma.fragment import GpudirectRdma
from gpuprov.capabilities.gpudirect_rdma.fragment import parameters as asked_parameters
from gpuprov.catalog.rdma import gpudirect as catalogue
from gpuprov.catalog.verdicts import find_complaints
from gpuprov.facts.probes.host import pci, system
from gpuprov.facts.probes.kernel import modules
from gpuprov.facts.probes.rdma.gpudirect import GPUDIRECT, Gpudirect, KernelState
from gpuprov.host_code.peer_memory import compare
from gpuprov.resources import KernelModule, Modules, Setting

DKMS = "it does not come from DKMS, so nothing can build it again: nvidia_driver: {build: dkms}, or method dmabuf"
DEFAULTS = {"peerdirect_support": "0", "persistent_api_support": "1"}
# Modules beside which a peer module does not work.
OTHERS = {"nvidia_peermem": "nv_peer_mem", "nv_peer_mem": "nvidia_peermem"}


def list_parameters(block: GpudirectRdma, name: str) -> dict[str, str]:
    """Return the parameters of this peer module."""
    if name != "nvidia_peermem":
        return {}
    return {
        "peerdirect_support": str(block.peerdirect_support),
        "persistent_api_support": str(block.persistent_api_support),
    }


def find_differences(ctx: Ctx, name: str) -> dict[str, str]:
    """Return the modules and parameters that apply would change in the running kernel, each as it is."""
    state = ctx.facts.get(GPUDIRECT)
    return compare(name, OTHERS[name], list_parameters(ctx.fragment, name), state.loaded, state.parameters)


def find_obstacle(ctx: Ctx) -> str:
    """Return why no peer module can be loaded here; empty if one can."""
    if container := ctx.facts.get(system.CONTAINER):
        return f"{container} container: the loaded modules are the machine's, not this host's"
    return "" if pci.gpus(ctx.facts.get(pci.NVIDIA_FUNCTIONS)) else "no NVIDIA GPU on the PCI bus"


def not_peer(decision: Decision) -> Outcome | None:
    """Return the outcome of a check of peer modules on a host that is to have none."""
    if not decision.method:
        return without(decision)
    return not_asked("the method is dmabuf") if decision.method == "dmabuf" else None


def fault(kernel: KernelState, name: str) -> tuple[str, str]:
    """Return what is wrong with a kernel's peer module, and the fix; both empty for a sound one."""
    module = kernel.modules.get(name)
    if module is None and name == "nv_peer_mem":
        return (
            "no nv_peer_mem",
            "install nvidia-peer-memory-dkms yourself, or method nvidia_peermem, which comes with the driver",
        )
    if module is None:
        return "no nvidia-peermem", f"{APPLY}, with a driver of nvidia_driver from 470 on"
    if why := kernel.rebuild.get(name):
        builds = name == "nv_peer_mem" or kernel.dkms
        return f"{module.path}: {why}", f"{APPLY} builds it again, by DKMS" if builds else DKMS
    if module.symbols == "unknown":
        return (
            f"{module.path} cannot be looked into",
            "install xz-utils or zstd (EL: xz, zstd) on the host, which unpack it",
        )
    if module.symbols == "no":
        return (
            f"{module.path}: built without peer memory, and no OFED headers of this kernel are there",
            f"{OFED}; then {APPLY}",
        )
    if kernel.core_exports != "yes" and (kernel.bootable or kernel.core):
        what = kernel.core or "no ib_core at all"
        return (
            f"{what} has no peer memory, which {name} needs",
            "dkms status mlnx-ofed-kernel: OFED is not built for this kernel",
        )
    return "", ""


@check(
    "gpudirect_rdma.built",
    *PROBES,
    fields=("method",),
    moment="next-boot",
    evidence="nm $(modinfo -n nvidia-peermem) | grep ib_register_peer_memory_client; modinfo -F depends nvidia-peermem",
)
def built(ctx: Ctx) -> Outcome:
    """Every kernel that can boot has the peer module, built against the peer memory of this kernel's ib_core."""
    decision = decided(ctx)
    if answer := not_peer(decision):
        return answer
    name, state = decision.method, ctx.facts.get(GPUDIRECT)
    faults = [(kernel, *fault(kernel, name)) for kernel in state.targets()]
    wrong = [(kernel, problem, way) for kernel, problem, way in faults if problem]
    expected = f"{name}, built against OFED's peer memory, for every kernel"
    if wrong or not faults:
        message = (
            "; ".join(f"{kernel.release}: {what}" for kernel, what, _ in wrong)
            or "no kernel with headers or an image in /boot"
        )
        again = {kernel.release: kernel.rebuild[name] for kernel, _, _ in wrong if name in kernel.rebuild}
        changes = build_modules(name, again, "built again")
        return fail(expected, message, wrong[0][2] if wrong else "install a kernel", changes=changes)
    return ok(f"{name} for {' '.join(kernel.release for kernel in state.targets())}", expected)


def why_not(state: Gpudirect, name: str) -> tuple[str, str]:
    """Return why a module that is sound on disk is not loaded: by its parameters, its build, the kernel's messages,
    other loaded modules."""
    running = next((kernel for kernel in state.kernels if kernel.release == state.running), None)
    match = catalogue.find_message(state.log)
    if match and match.key == "parameter":
        return match.cause, match.way
    if running and (defect := fault(running, name))[0] and name in running.modules:
        return f"{defect[0]}: modprobe answers Invalid argument", defect[1]
    if match:
        return match.cause, match.way
    if running and not state.exported:
        return (
            "the ib_core that is loaded has no peer memory",
            "systemctl restart openibd, or a reboot into OFED's ib_core",
        )
    return "the kernel says nothing of it", f"modprobe {name}; journalctl -k -b | tail"


@check(
    "gpudirect_rdma.loaded",
    *(*PROBES, system.CONTAINER),
    fields=("method",),
    evidence="lsmod | grep -E '^ib_core|peermem|peer_mem'; journalctl -k -b | grep -E 'peermem|peer_mem'",
)
def loaded(ctx: Ctx) -> Outcome:
    """The peer module is loaded and holds ib_core; if not, the reason is shown: a parameter, its build, or the loaded
    ib_core."""
    decision = decided(ctx)
    if answer := not_peer(decision):
        return answer
    if obstacle := find_obstacle(ctx):
        return skip(obstacle)
    state, name = ctx.facts.get(GPUDIRECT), decision.method
    expected = f"{name} loaded, and ib_core used by it"
    module, other = KernelModule(name=name, loaded=True), KernelModule(name=OTHERS[name], loaded=False)
    present = Modules(loaded=state.loaded)
    differences = find_differences(ctx, name)
    reason, way = _explain_unloaded(state, name) if name in differences else ("", "")
    if fault := find_fault(module, present, expected, reason, fix=way):
        return fault
    beside = f"{OTHERS[name]} is loaded, too, which registers the same client"
    if fault := find_fault(other, present, expected, beside, fix=f"{APPLY} unloads it while no program uses RDMA"):
        return fault
    if name not in state.holders:
        users = ", ".join(state.holders) or "nothing"
        again = f"rmmod {name}; systemctl restart openibd; modprobe {name}"
        return fail(expected, f"loaded, and ib_core is used by {users}", again)
    return ok(expected)


def _explain_unloaded(state: Gpudirect, name: str) -> tuple[str, str]:
    if "nvidia" not in state.loaded:
        return (
            f"not loaded, and neither is the NVIDIA driver, which {name} needs",
            f"modprobe nvidia; then {APPLY}",
        )
    obstacle, way = why_not(state, name)
    return f"not loaded: {obstacle}", way


@check(
    "gpudirect_rdma.parameters",
    *(*PROBES, modules.MODPROBE, system.CONTAINER),
    fields=("peerdirect_support", "persistent_api_support"),
    evidence="grep -r . /sys/module/nvidia_peermem/parameters; modprobe -c | grep peermem",
)
def parameters(ctx: Ctx) -> Outcome:
    """nvidia_peermem has the parameters that the spec asks for, in modprobe's configuration and loaded; values other
    than 0 and 1 keep it from loading."""
    decision = decided(ctx)
    if decision.method != "nvidia_peermem":
        return not_peer(decision) or ok("nv_peer_mem has none of nvidia_peermem's parameters")
    targets = list_parameters(ctx.fragment, decision.method)
    expected = " ".join(f"{key}={value}" for key, value in targets.items())
    return _judge_configured(ctx, targets, expected) or _judge_loaded(ctx, targets, expected)


def _judge_configured(ctx: Ctx, targets: Mapping[str, str], expected: str) -> Outcome | None:
    """Return what is wrong in modprobe's configuration; None if nothing is."""
    names = {modules.underscored(name) for name in catalogue.get_method("nvidia_peermem").modules}
    given = [
        (key, value)
        for name, values in ctx.facts.get(modules.MODPROBE).options.items()
        if name in names
        for key, value in values.items()
        if key in targets
    ]
    configured = DEFAULTS | dict(given)
    wrong = sorted({f"{key}={value}" for key, value in {*configured.items(), *given} if value != targets[key]})
    if not wrong:
        return None
    strange = [setting for setting in wrong if not re.fullmatch(r"\w+=[01]", setting)]
    message = f"modprobe says {' '.join(wrong)}" + (": the module answers Invalid argument" if strange else "")
    ours = [setting for setting in wrong if setting.partition("=")[0] in asked_parameters(ctx.fragment)]
    look = f"grep -r {wrong[0].partition('=')[0]} /etc/modprobe.d"
    way = (
        f"{APPLY}; another file may say otherwise: {look}"
        if ours
        else f"{look}: take it out of that file, or say it in the spec"
    )
    options = Setting(kind="nvidia_peermem", value=expected, moment="next-boot")
    fault = find_fault(options, {("", ""): " ".join(ours)}, expected, message, fix=way) if ours else None
    return fault or fail(expected, message, way)


def _judge_loaded(ctx: Ctx, targets: Mapping[str, str], expected: str) -> Outcome:
    """Judge the module that the kernel has loaded, or would load."""
    state = ctx.facts.get(GPUDIRECT)
    running = next((kernel for kernel in state.targets() if kernel.release == state.running), None) or next(
        iter(state.targets()), None
    )
    module = running.modules.get("nvidia_peermem") if running else None
    unknown = [
        key for key in asked_parameters(ctx.fragment) if module and module.parameters and key not in module.parameters
    ]
    if unknown:
        first = catalogue.find_first_branch(unknown[0])
        return fail(
            expected, f"{module.path if module else 'the module'} has no {unknown[0]}", f"a driver from {first} on"
        )
    if ctx.facts.get(system.CONTAINER) or "nvidia_peermem" not in state.loaded:
        return ok(f"{expected}, for when it is loaded", expected)
    differences = find_differences(ctx, "nvidia_peermem")
    off = [f"{key}={value}" for key, value in differences.items() if key in targets]
    other = KernelModule(name="nvidia_peermem", loaded=True, outdated=" ".join(off), right=expected)
    way = f"{APPLY} loads it again; or {catalogue.UNIT} restarted"
    fault = find_fault(other, Modules(loaded=state.loaded), expected, f"loaded with {' '.join(off)}", fix=way)
    return fault or ok(expected)


@check("gpudirect_rdma.log", *PROBES, system.CONTAINER, evidence="journalctl -k -b | grep nvidia-peermem")
def log(ctx: Ctx) -> Outcome:
    """The kernel has logged no GPU memory whose context peer memory had lost."""
    if container := ctx.facts.get(system.CONTAINER):
        return skip(f"{container} container: the kernel's log is the machine's")
    bad = catalogue.read_gpudirect_file().bad_context
    lines = find_complaints(ctx.facts.get(GPUDIRECT).log, f"peermem-{bad.key}")
    if lines:
        return fail("no lost context", lines[-1].strip(), bad.way)
    return ok("no lost context in the kernel's log")


CHECKS = (built, loaded, parameters, log)
