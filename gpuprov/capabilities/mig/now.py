"""Checks that the GPUs are partitioned as the block says: mode, GPU instances, compute instances, CDI devices, device
files."""

from collections.abc import Iterable, Sequence

from gpuprov.capabilities.answers import APPLY
from gpuprov.capabilities.base import Change, Context, Outcome, check, fail, not_asked, ok, skip
from gpuprov.capabilities.mig import host
from gpuprov.capabilities.mig.fragment import Mig
from gpuprov.core.sanitize import counted
from gpuprov.facts.probes.containers.container_toolkit import CDI
from gpuprov.facts.probes.gpus import mig
from gpuprov.facts.probes.host import pci, system
from gpuprov.facts.probes.host.virtualization import FUNCTIONS, MACHINE, reset_by_reboot
from gpuprov.host_code.cdi import SPECIFICATION
from gpuprov.host_code.mig import fit as mig_fit
from gpuprov.host_code.mig import layout as mig_layout

Ctx = Context[Mig]
STATE = (mig.STATE, pci.NVIDIA_FUNCTIONS, system.CONTAINER)
HOST_STATE = (*STATE, mig.HOLDERS, mig.CAPABILITIES)
FIELDS = ("mode", "layout", "config_file", "selected")


def unreadable(ctx: Ctx) -> Outcome | None:
    """Return the outcome if the state of the GPUs cannot be determined; None if it can."""
    state = ctx.facts.get(mig.STATE)
    if not pci.gpus(ctx.facts.get(pci.NVIDIA_FUNCTIONS)):
        return skip("no NVIDIA GPU on the PCI bus: there is nothing to cut up")
    kind = ctx.facts.get(system.CONTAINER)
    if state.complaint and kind:
        return skip(f"{kind} container without a loaded driver of its machine's: {state.complaint}")
    if state.complaint:
        return fail("GPUs that NVML reports", state.complaint, "see nvidia_driver.loaded")
    if state.unread:
        return fail("GPUs that answer", "; ".join(state.unread), "dmesg | grep -E 'NVRM|Xid'; reset the GPU or reboot")
    return None


def list_changes(ctx: Ctx) -> list[host.Needs] | Outcome:
    """Return the changes that each GPU of the block needs; or the outcome if that cannot be determined."""
    if answer := unreadable(ctx):
        return answer
    state = ctx.facts.get(mig.STATE)
    theirs = [user for user in users(ctx) if not host.is_service(user.holder.unit, ctx.host)]
    try:
        targets = host.list_targets(ctx.fragment, state)
        needs = [host.needs(gpu, targets[gpu.index], theirs) for gpu in state.gpus if gpu.index in targets]
    except mig_layout.LayoutError as error:
        fix = "correct mig in the spec; nvidia-smi -L lists the GPUs"
        return fail("a layout for this host's GPUs", f"mig: {error}", fix)
    if not needs and not host.enables(ctx.fragment):
        return not_asked("no GPU here has MIG, and the spec has none")
    if not needs:
        listed = ", ".join(f"{gpu.label} {gpu.name}" for gpu in state.gpus) or "no GPU"
        fix = "mig: false for this host, or an entry whose gpus are here"
        return fail("a GPU with MIG that the layout names", f"the host has {listed}", fix)
    return needs


def users(ctx: Ctx) -> tuple[mig.User, ...]:
    """Return the processes that use the GPUs."""
    return mig.users(ctx.facts.get(mig.STATE), ctx.facts.get(mig.HOLDERS), ctx.facts.get(mig.CAPABILITIES))


@check(
    "mig.mode",
    *(*HOST_STATE, MACHINE, FUNCTIONS),
    fields=FIELDS,
    evidence="nvidia-smi --query-gpu=pci.bus_id,mig.mode.current,mig.mode.pending --format=csv",
)
def mode(ctx: Ctx) -> Outcome:
    """Each GPU is in the MIG mode that the spec asks for, and no other mode waits for its next reset. GPUs that `all`
    leaves out because the driver reports that they have no MIG, although their model has it, are reported."""
    needs = list_changes(ctx)
    if isinstance(needs, Outcome):
        return needs
    bad = [need for need in needs if need.mode]
    if not bad:
        on = sum(need.target.enabled for need in needs)
        left = [f"; left out: {host.without(gpu)}" for gpu in host.left_out(ctx.fragment, ctx.facts.get(mig.STATE))]
        return ok(f"enabled on {on}, disabled on {len(needs) - on} GPUs{''.join(left)}")
    expected = describe_gpus((need.gpu, _describe_mode_word(need.target.enabled)) for need in bad)
    changes = [change for need in bad for change in host.changes(need)[:1]]
    pending = [need for need in bad if need.gpu.pending == need.target.enabled]
    reboot = ""
    if any(host.resets(need.gpu) for need in pending) and not ctx.facts.get(system.CONTAINER):
        reboot = reset_by_reboot(ctx.facts.get(MACHINE), ctx.facts.get(FUNCTIONS))
    fix = f"MIG mode waits for a reset of the GPU; reboot the VM: {reboot}" if reboot else _describe_way(ctx, pending)
    return fail(
        expected,
        describe_gpus((need.gpu, _describe_mode(need.gpu)) for need in bad),
        fix,
        changes=changes,
        reboot=reboot,
    )


def _describe_way(ctx: Ctx, pending: Sequence[host.Needs]) -> str:
    if not pending:
        return APPLY
    here = {need.gpu.index for need in pending}
    holders = ", ".join(dict.fromkeys(str(user.holder) for user in users(ctx) if user.gpu in here))
    held = f", which is held by {holders}" if holders else ""
    return f"MIG mode waits for a reset of the GPU{held}: {APPLY} stops services that hold it, and resets it"


def _describe_mode_word(enabled: bool) -> str:
    return "enabled" if enabled else "disabled"


def _describe_mode(gpu: mig.MigGpu) -> str:
    waits = "" if gpu.pending == gpu.current else f", {_describe_mode_word(gpu.pending)} is pending"
    return f"{_describe_mode_word(gpu.current)}{waits}"


@check("mig.instances", *HOST_STATE, fields=FIELDS, evidence="nvidia-smi mig -lgi; nvidia-smi mig -lci")
def instances(ctx: Ctx) -> Outcome:
    """Each GPU has exactly the GPU instances and compute instances that the spec asks for, each at its place if one is
    given."""
    needs = list_changes(ctx)
    if isinstance(needs, Outcome):
        return needs
    expected = describe_gpus((need.gpu, _describe_needs(need)) for need in needs)
    for need in needs:
        if need.problem:
            return fail(expected, need.problem, "correct mig in the spec: gpuprov mig fit, gpuprov mig layouts")
    bad = [need for need in needs if need.instances]
    if bad:
        changes = [change for need in bad for change in host.changes(need)[need.mode :]]
        return fail(
            expected, describe_gpus((need.gpu, _describe_instances(need.gpu)) for need in bad), APPLY, changes=changes
        )
    return ok(describe_gpus((need.gpu, _describe_instances(need.gpu)) for need in needs), expected)


def describe_gpus(words: Iterable[tuple[mig.MigGpu, str]]) -> str:
    """Return the words of each GPU; GPUs with the same words together."""
    alike: dict[str, list[mig.MigGpu]] = {}
    for gpu, text in words:
        alike.setdefault(text, []).append(gpu)
    names = {
        text: gpus[0].label if len(gpus) == 1 else f"GPUs {', '.join(str(gpu.index) for gpu in gpus)}"
        for text, gpus in alike.items()
    }
    return "; ".join(f"{names[text]}: {text}" for text in alike)


def _describe_needs(needs: host.Needs) -> str:
    if not needs.target.enabled:
        return "no instance, MIG mode disabled"
    parts = [
        f"{part.profile}{'' if part.start is None else f' at {part.start}'}"
        + ("" if not part.compute else f" with {', '.join(f'{size}c' for size in part.compute)}")
        for part in needs.target.instances
    ]
    return mig_fit.format_profiles(parts) or "no instance"


def _describe_instances(gpu: mig.MigGpu) -> str:
    ordered = sorted(gpu.instances, key=lambda instance: instance.start)
    return ", ".join(host.named(instance) for instance in ordered) or "no instance"


@check("mig.cdi", *(*STATE, CDI), evidence="nvidia-ctk cdi list; nvidia-smi -L")
def devices(ctx: Ctx) -> Outcome:
    """Every MIG device is available to containers: the CDI specification names each, if the spec asks for
    container_toolkit."""
    if "container_toolkit" not in ctx.host.capabilities:
        return not_asked("the spec has no container_toolkit")
    if answer := unreadable(ctx):
        return answer
    parts = [
        (gpu, part) for gpu in ctx.facts.get(mig.STATE).gpus for instance in gpu.instances for part in instance.compute
    ]
    specified = {name for fact in ctx.facts.get(CDI) for name in fact.devices}
    names = [(f"{gpu.number}:{part.number}", part.uuid) for gpu, part in parts]
    missing = [name for name, uuid in names if not {name, uuid} & specified]
    if missing:
        folder = getattr(ctx.host.capabilities["container_toolkit"], "cdi_directory", "/var/run/cdi")
        change = Change(kind="file", name=f"{folder}/{SPECIFICATION}", after="made anew")
        fix = "systemctl restart nvidia-cdi-refresh.service, or gpuprov-cdi-refresh.service with a toolkit before 1.18"
        return fail(
            f"{counted(len(parts), 'MIG device')} in the CDI specification",
            f"not in it: {' '.join(missing)}",
            fix,
            changes=[change],
        )
    return ok(f"{counted(len(parts), 'MIG device')} in the CDI specification")


@check("mig.capabilities", *(*STATE, mig.CAPABILITIES), evidence=mig.CAPABILITIES.evidence)
def capabilities(ctx: Ctx) -> Outcome:
    """Users without root can use each instance: its device file in /dev/nvidia-caps exists, and they may read it."""
    if answer := unreadable(ctx):
        return answer
    known = ctx.facts.get(mig.CAPABILITIES)
    state = ctx.facts.get(mig.STATE)
    paths = [path for gpu in state.gpus for path in _list_paths(gpu)]
    kind = ctx.facts.get(system.CONTAINER)
    if not paths:
        return not_asked("no instance")
    if not known and kind:
        return skip(f"{kind} container: the files of the driver's capabilities are its machine's")
    files = {capability.path: capability for capability in known}
    untold = [path for path in paths if path not in files]
    absent = [files[path].node for path in paths if path in files and not files[path].mode]
    closed = [
        capability
        for path in paths
        if (capability := files.get(path))
        and capability.mode
        and not capability.kept
        and not int(capability.mode, 8) & 0o4
    ]
    expected = f"{counted(len(paths), 'device file')} that everyone may read"
    if untold:
        fix = "see nvidia_driver.loaded; the driver makes a file for each instance"
        return fail(expected, f"not in /proc/driver/nvidia/capabilities: {' '.join(untold)}", fix)
    if absent:
        changes = [Change(kind="file", name=node, after="made") for node in absent]
        fix = f"{APPLY}; nvidia-modprobe -f /proc/driver/nvidia/capabilities/... makes one"
        return fail(expected, f"missing: {' '.join(absent)}", fix, changes=changes)
    if closed:
        listed = ", ".join(f"{capability.node} {capability.mode} {capability.owner}" for capability in closed)
        return fail(expected, listed, f"chmod o+r {' '.join(capability.node for capability in closed)}")
    return ok(expected)


def _list_paths(gpu: mig.MigGpu) -> list[str]:
    folders = [(f"gpu{gpu.minor}/mig/gi{instance.id}", instance) for instance in gpu.instances]
    return [f"{folder}/access" for folder, _ in folders] + [
        f"{folder}/ci{part.id}/access" for folder, instance in folders for part in instance.compute
    ]


CHECKS = (mode, instances, devices, capabilities)
