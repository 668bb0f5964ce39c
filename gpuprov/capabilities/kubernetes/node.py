"""Checks of the host as a GPU node: a running kubelet, NVIDIA's runtime in its engine, and no other manager of the
GPUs."""

from gpuprov.capabilities.answers import APPLY
from gpuprov.capabilities.base import Context, Outcome, check, fail, not_asked, ok, skip
from gpuprov.capabilities.compared import restart_unit
from gpuprov.capabilities.driver import find_requested_branch
from gpuprov.capabilities.kubernetes.documents import CDI
from gpuprov.capabilities.kubernetes.fragment import Kubernetes, get_plugin, get_strategy
from gpuprov.catalog import kubernetes as catalogue
from gpuprov.catalog.container_toolkit import CONFIG
from gpuprov.catalog.gpus import find_by_pci_id
from gpuprov.facts.probes.containers import kubernetes
from gpuprov.facts.probes.containers.container_engines import ENGINES
from gpuprov.facts.probes.containers.container_toolkit import TOOLKIT
from gpuprov.facts.probes.driver import nvidia
from gpuprov.facts.probes.host import pci
from gpuprov.rules import engines, resolve
from gpuprov.rules.cluster_engines import RANCHER, is_cluster_engine, read_written, takes_cdi
from gpuprov.rules.engine_output import Engine

Ctx = Context[Kubernetes]
VOLUME_MOUNTS = "accept-nvidia-visible-devices-as-volume-mounts"
# Settings of the runtime: https://github.com/NVIDIA/k8s-device-plugin#configuration-option-details
# (deviceListStrategy)
ENVVAR = "accept-nvidia-visible-devices-envvar-when-unprivileged"


@check("kubernetes.kubelet", kubernetes.NODE, evidence="systemctl status kubelet")
def kubelet(ctx: Ctx) -> Outcome:
    """The kubelet is running, and starts at boot."""
    services = ctx.facts.get(kubernetes.NODE).services
    if not services:
        return skip("no kubelet on this host: the node has not joined a cluster, or systemd does not run its kubelet")
    live = [service for service in services if service.active == "active"]
    if not live and not ctx.facts.get(kubernetes.NODE).kubeconfig:
        return skip(f"{services[0].name} is {services[0].active}: the node has not joined a cluster")
    if not live:
        service = services[0]
        changes = restart_unit(service.name, service.active, "active")
        return fail(f"{service.name} active", service.active, f"journalctl -u {service.name} -n 30", changes=changes)
    if live[0].file != "enabled":
        fix = f"systemctl enable {live[0].name}"
        return fail(f"{live[0].name} enabled", f"{live[0].name} is {live[0].file or 'not enabled'}", fix)
    return ok(f"{live[0].name} active, enabled")


@check(
    "kubernetes.runtime",
    *(ENGINES, TOOLKIT, kubernetes.NODE),
    fields=("device_plugin", "configs", "allocation"),
    evidence=f"containerd config dump; crio status config; cat {CONFIG}",
)
def runtime(ctx: Ctx) -> Outcome:
    """The engine that pods run in has NVIDIA's runtime, and accepts GPUs in the form in which the device plugin names
    them."""
    if ctx.fragment.gpu_operator.enabled and ctx.fragment.gpu_operator.toolkit:
        return not_asked("the operator registers the runtime")
    if not ctx.facts.get(kubernetes.NODE).services:
        return skip("no kubelet on this host, so no engine that its pods would run in")
    everyone = ctx.facts.get(ENGINES)
    bundled = {name: engine for name, engine in everyone.items() if is_cluster_engine(name)}
    runtimes = bundled or {name: engine for name, engine in everyone.items() if name in ("containerd", "crio")}
    live = {name: engine for name, engine in runtimes.items() if engine.active == "active"} or runtimes
    if not live:
        return skip("no containerd, cri-o, k3s, RKE2 or MicroK8s has a unit here")
    ways: tuple[str, ...] = get_plugin(ctx.fragment).device_list_strategy
    ways = {"nvidia": ways, "dra": (CDI[1],)}.get(get_strategy(ctx.fragment), ())
    expected = f"runtime {engines.NAME} in {', '.join(live)}" + (f", GPUs by {', '.join(ways)}" if ways else "")
    toolkit = ctx.facts.get(TOOLKIT)
    for name, engine in live.items():
        try:
            config = read_written(name, engine) if name in bundled else engines.configuration(name, engine)
            registration = engines.registered(name, config)
        except ValueError as error:
            return fail(expected, str(error), "fix it; see container_toolkit.configured")
        if registration.path not in engines.PROGRAMS and get_strategy(ctx.fragment) != "dra":
            fix = f"container_toolkit: {{runtimes: [{name}]}}, then {APPLY}"
            return fail(expected, f"{name} has no runtime {engines.NAME}", fix)
        if set(ways) & set(CDI) and (why := without_cdi(name, engine, registration.cdi)):
            fix = f"upgrade {name}" if name in RANCHER else f"container_toolkit: {{runtimes: [{name}]}}, then {APPLY}"
            return fail(expected, why, f"{fix}; or [envvar]")
    if "volume-mounts" in ways and engines.at(toolkit.settings, VOLUME_MOUNTS) is not True:
        return fail(expected, f"{VOLUME_MOUNTS} is not true in {CONFIG}", f"set it there, or {CDI[1]}")
    if ways == ("envvar",) and engines.at(toolkit.settings, ENVVAR) is False:
        return fail(
            expected, f"{ENVVAR} is false in {CONFIG}", "device_list_strategy: [volume-mounts], or set it to true"
        )
    return ok(expected)


def without_cdi(name: str, engine: Engine, cdi_enabled: bool | None) -> str:
    """Return why an engine takes no CDI devices; empty if it does."""
    version = engine.version
    if is_cluster_engine(name):
        since = ", which has it from 1.31.6 and 1.32.2 on" if name in RANCHER else ""
        return (
            "" if takes_cdi(name, engine, cdi_enabled) else f"CDI is off in the containerd of {name} {version}{since}"
        )
    if name != "containerd":
        return ""
    if engines.number(version) < engines.CDI_SINCE["containerd"]:
        return f"containerd {version} knows no CDI"
    if cdi_enabled is False or (cdi_enabled is None and engines.number(version) < (2,)):
        return "CDI is off in containerd (enable_cdi)"
    return ""


@check(
    "kubernetes.one_manager",
    kubernetes.NODE,
    fields=("plugin", "allocation", "gpu_operator"),
    evidence=f"mount | grep {kubernetes.DRIVER_ROOT}; ls {kubernetes.TOOLKIT_ROOT}; ps -e | grep -E "
    "'nvidia-|gpushare|vGPU'",
)
def one_manager(ctx: Ctx) -> Outcome:
    """Nothing in the cluster manages what the host manages: driver, toolkit, MIG; and only the node's own device plugin
    runs."""
    managers, operator = ctx.facts.get(kubernetes.NODE).managers, ctx.fragment.gpu_operator
    own = get_strategy(ctx.fragment)
    expected = f"{'DRA' if own == 'dra' else f'device plugin {own}'}, and nobody else who manages the host's GPUs"
    conflicts = []
    if kubernetes.DRIVER in managers and not (operator.enabled and operator.driver):
        conflicts.append((f"the operator's driver is at {kubernetes.DRIVER_ROOT}", "driver.enabled=false"))
    if kubernetes.TOOLKIT in managers and not (operator.enabled and operator.toolkit):
        conflicts.append((f"the operator's toolkit is in {kubernetes.TOOLKIT_ROOT}", "toolkit.enabled=false"))
    if kubernetes.MIG_MANAGER in managers and "mig" in ctx.host.capabilities and not operator.mig_manager:
        conflicts.append(("nvidia-mig-manager runs beside mig", "migManager.enabled=false"))
    if conflicts:
        what, value = "; ".join(setting for setting, _ in conflicts), ",".join(setting for _, setting in conflicts)
        return fail(
            expected, what, f"helm upgrade the operator with {catalogue.OPERATOR_VALUES} (--set {value}), then reboot"
        )
    others = [name for name, plugins in OTHERS.items() if name in managers and own not in plugins]
    if others:
        return fail(
            expected,
            f"another device plugin or DRA driver runs: {', '.join(others)}",
            "delete its DaemonSet, or its label of this node",
        )
    return ok(expected)


# Processes that give out GPUs, each with the strategies it belongs to; volcano's plugins are none of gpuprov's.
OTHERS = {
    kubernetes.PLUGIN: ("nvidia", "hami"),
    kubernetes.HAMI: ("hami",),
    kubernetes.GPUSHARE: ("gpushare",),
    kubernetes.DRA: ("dra",),
    **dict.fromkeys(kubernetes.VOLCANO, ()),
}


@check(
    "kubernetes.replicas",
    *(pci.NVIDIA_FUNCTIONS, nvidia.LIBRARIES),
    fields=("device_plugin", "configs"),
    moment="preflight",
    evidence="lspci -nn -d 10de:; nvidia-smi",
)
def replicas(ctx: Ctx) -> Outcome:
    """With MPS, no GPU of the host gets more replicas than the plugin and the driver allow."""
    requested = max((resource.replicas for resource in get_plugin(ctx.fragment).sharing.mps.resources), default=0)
    if not requested or get_strategy(ctx.fragment) != "nvidia":
        return not_asked("no MPS by the device plugin")
    here = pci.gpus(ctx.facts.get(pci.NVIDIA_FUNCTIONS))
    installed = ctx.facts.get(nvidia.LIBRARIES).get("libcuda", "")
    own = find_requested_branch(ctx.host) or (resolve.order(installed)[0] if installed else 0)
    limit, why = catalogue.find_replica_limit(
        [gpu for function in here if (gpu := find_by_pci_id(function.identifier))], own
    )
    if requested > limit:
        return fail(f"at most {limit} replicas", f"{requested}: {why}", f"replicas: {limit} or fewer")
    return ok(f"{requested} of at most {limit}")


@check("kubernetes.kubectl", kubernetes.NODE, fields=("label_node",), moment="preflight", evidence="command -v kubectl")
def check_access(ctx: Ctx) -> Outcome:
    """If the host is to label its node, it has kubectl, a kubelet's credentials, and a cluster that answers."""
    node = ctx.facts.get(kubernetes.NODE)
    if not ctx.fragment.label_node:
        return not_asked("the site sets the labels")
    if node.unasked:
        fix = "label_node: false until the node has joined; the site sets the labels"
        return fail("kubectl and the kubelet's credentials", node.unasked, fix)
    if node.labels is None:
        return fail("an answer from the cluster", node.complaint, f"kubectl --kubeconfig={node.kubeconfig} get node")
    if ctx.fragment.node not in ("", node.name):
        fix = f'kubernetes.node: "{node.name}", or label_node: false'
        return fail(f"node {ctx.fragment.node}", f"the kubelet of this host calls the node {node.name}", fix)
    return ok(f"{node.kubectl}, as {node.name}")


@check(
    "kubernetes.one_driver",
    kubernetes.NODE,
    moment="preflight",
    evidence=f"mount | grep {kubernetes.DRIVER_ROOT}; ls {kubernetes.DRIVER_ROOT}/usr/bin/nvidia-smi",
)
def one_driver(ctx: Ctx) -> Outcome:
    """The GPU operator's driver container is absent if the spec installs a driver on the host."""
    if "nvidia_driver" not in ctx.host.capabilities:
        return not_asked("no nvidia_driver in the spec")
    if kubernetes.DRIVER in ctx.facts.get(kubernetes.NODE).managers:
        fix = (
            "helm upgrade the operator with driver.enabled=false and reboot the node; or take nvidia_driver out "
            "of the spec"
        )
        return fail("the host's driver alone", f"the operator's driver container is at {kubernetes.DRIVER_ROOT}", fix)
    return ok("no driver of the operator")


CHECKS = (kubelet, runtime, one_manager, one_driver, replicas, check_access)
