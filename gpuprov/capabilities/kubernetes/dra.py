"""Dynamic Resource Allocation: values of the driver's chart, what contradicts it, and the ResourceSlices that it made.

https://github.com/kubernetes-sigs/dra-driver-nvidia-gpu
"""

from collections.abc import Iterable

from gpuprov.capabilities.base import Context, Outcome, check, fail, not_asked, ok, skip
from gpuprov.capabilities.driver import find_requested_branch
from gpuprov.capabilities.kubernetes.fragment import Kubernetes, get_strategy
from gpuprov.catalog import kubernetes as catalogue
from gpuprov.core.sanitize import counted
from gpuprov.facts.probes.containers import kubernetes
from gpuprov.facts.probes.gpus import mig
from gpuprov.facts.probes.host import pci, system
from gpuprov.host_code.json_members import Json
from gpuprov.rules import engines, resolve
from gpuprov.spec.model import HostSpec
from gpuprov.spec.problem import Path, Problem, report_under

HERE = "kubernetes"
GATES: Path = (HERE, "dra", "feature_gates")
DYNAMIC_MIG = "DynamicMIG"
problem = report_under()
Ctx = Context[Kubernetes]


def dra_values(block: Kubernetes) -> dict[str, Json]:
    """Return the values of the chart dra-driver-nvidia-gpu. The override says that no device plugin runs beside it."""
    return {
        "nvidiaDriverRoot": kubernetes.DRIVER_ROOT if block.gpu_operator.driver else "/",
        "gpuResourcesEnabledOverride": True,
        "resources": {"gpus": {"enabled": True}, "computeDomains": {"enabled": block.dra.compute_domains}},
        "featureGates": dict(block.dra.feature_gates),
    }


def dra_rules(host: HostSpec, block: Kubernetes) -> Iterable[Problem]:
    """Yield what contradicts DRA, or what its driver refuses."""
    if get_strategy(block) != "dra":
        return
    if block.plugin != "nvidia":
        message = f"is dra, and plugin {block.plugin} would give out the same GPUs"
        yield problem((HERE, "allocation"), message, "one of the two")
    if "mps" in host.capabilities:
        message = "is dra: pods would get GPUs that the host's MPS (mps) has in EXCLUSIVE_PROCESS"
        yield problem((HERE, "allocation"), message, "take mps out of the spec")
    domains, branch = block.dra.compute_domains, find_requested_branch(host)
    least = catalogue.read_kubernetes_file().dra_needs[0]
    needed = least.domain_driver if domains else least.driver
    if branch and branch < resolve.order(needed)[0]:
        message = f"is dra, whose driver for {'ComputeDomains' if domains else 'GPUs'} needs {needed} or newer"
        yield problem((HERE, "allocation"), message, f"nvidia_driver.version: {resolve.order(needed)[0]} or newer")
    imex = getattr(host.capabilities.get("fabric_manager"), "imex", None)
    if domains and imex is not None and (imex.nodes or imex.service == "enabled"):
        path: Path = (HERE, "dra", "compute_domains")
        fix = "fabric_manager.imex: {service: disabled}"
        yield problem(path, "is true, and the host runs an IMEX daemon of its own (fabric_manager.imex)", fix)
    yield from gate_rules(host, block)


def gate_rules(host: HostSpec, block: Kubernetes) -> Iterable[Problem]:
    """Yield feature gates that exclude each other, are missing, or are not known."""
    known = {gate.key: gate for gate in catalogue.read_kubernetes_file().dra_gates}
    on = {name for name, value in block.dra.feature_gates.items() if value}
    for name in block.dra.feature_gates:
        path: Path = (*GATES, name)
        if name not in known:
            fix = f"known: {', '.join(known)}"
            yield problem(path, "is not a feature gate that is known of the DRA driver", fix, warning=True)
            continue
        if name not in on:
            continue
        for other in sorted(on & set(known[name].excludes)):
            yield problem(path, f"is on, and so is {other}: the driver does not start with both", "one of the two")
        if missing := [
            need for need in known[name].needs if not block.dra.feature_gates.get(need, known[need].default)
        ]:
            yield problem(path, f"is on, and needs {missing[0]}", f"{missing[0]}: true")
    if DYNAMIC_MIG in on and "mig" in host.capabilities:
        message = "is on: the DRA driver makes MIG instances itself, and so does the host (mig)"
        yield problem((*GATES, DYNAMIC_MIG), message, "leave it out, or take mig out of the spec")


@check(
    "kubernetes.resource_slices",
    *(mig.STATE, pci.NVIDIA_FUNCTIONS, system.CONTAINER, kubernetes.NODE),
    fields=("allocation", "dra"),
    evidence="kubectl get resourceslices -o wide; nvidia-smi -L",
)
def resource_slices(ctx: Ctx) -> Outcome:
    """The cluster's ResourceSlices of this node have exactly the GPUs and MIG devices that the host has, by UUID, and
    all slices of one generation; the kubelet is of a release with DRA."""
    block, node = ctx.fragment, ctx.facts.get(kubernetes.NODE)
    if get_strategy(block) != "dra":
        return not_asked("GPUs are given out by a device plugin")
    if not pci.gpus(ctx.facts.get(pci.NVIDIA_FUNCTIONS)):
        return skip("no NVIDIA GPU on the PCI bus")
    state, container = ctx.facts.get(mig.STATE), ctx.facts.get(system.CONTAINER)
    if state.complaint and container:
        return skip(f"{container} container without a loaded driver of its machine's: {state.complaint}")
    if state.complaint or state.unread:
        return fail("GPUs that answer", state.complaint or "; ".join(state.unread), "see nvidia_driver.loaded")
    devices = list_devices(state)
    expected = f"ResourceSlices of {catalogue.DRA_DRIVER} with {counted(len(devices), 'device')}"
    if node.unasked:
        return skip(f"the cluster was not queried for {expected}: {node.unasked}")
    least = catalogue.read_kubernetes_file().dra_needs[0].kubernetes
    if node.kubelet and engines.number(node.kubelet) < engines.number(least):
        return fail(
            f"a kubelet of {least} or newer", f"{node.kubelet}", "upgrade Kubernetes, or allocation: device-plugin"
        )
    if node.slices is None:
        fix = f"is {catalogue.DRA_VALUES} on the host, the API server reachable, and resource.k8s.io/v1 served?"
        return fail(expected, node.slices_complaint or "the cluster was not queried", fix)
    if block.dra.feature_gates.get(DYNAMIC_MIG) and node.slices and not node.slices_complaint:
        return ok(
            f"{counted(len(node.slices), 'device')}; with {DYNAMIC_MIG} they are all that could be made", expected
        )
    return compare_slices(node, devices, expected)


def list_devices(state: mig.MigState) -> dict[str, str]:
    """Return the devices that the driver publishes, by UUID, with what they are: whole GPUs without MIG mode, and MIG
    devices."""
    whole = {gpu.uuid: f"GPU {gpu.index}" for gpu in state.gpus if not gpu.current}
    parts = {
        part.uuid: f"{instance.profile} of GPU {gpu.index}"
        for gpu in state.gpus
        if gpu.current
        for instance in gpu.instances
        for part in instance.compute
        if part.uuid
    }
    return {**whole, **parts}


def compare_slices(node: kubernetes.Node, devices: dict[str, str], expected: str) -> Outcome:
    """Compare the published devices with those of the host."""
    published = {device.uuid: device.name for device in node.slices or ()}
    missing = [f"{name} ({uuid})" for uuid, name in devices.items() if uuid not in published]
    gone = [f"{name} ({uuid})" for uuid, name in published.items() if uuid not in devices]
    problems = [f"not published: {', '.join(missing)}"] if missing else []
    problems += [f"published, and missing: {', '.join(gone)}"] if gone else []
    problems += [node.slices_complaint] if node.slices_complaint else []
    if not problems:
        return ok(f"{counted(len(published), 'device')} of node {node.name}", expected)
    fix = (
        "restart the DRA driver's kubelet plugin on this node: it reads GPUs and MIG devices when it starts; "
        "then see its log"
    )
    return fail(expected, "; ".join(problems), fix)


CHECKS = (resource_slices,)
