"""Rules for a node that hold on any host: no two strategies at once, and no settings that the plugins ignore."""

from collections.abc import Iterable, Sequence

import msgspec

from gpuprov.capabilities.driver import find_requested_branch
from gpuprov.capabilities.kubernetes import documents, fit, layout
from gpuprov.capabilities.kubernetes.dra import dra_rules
from gpuprov.capabilities.kubernetes.fragment import (
    DevicePlugin,
    Kubernetes,
    MpsSharing,
    SharedResource,
    Sharing,
    TimeSlicing,
    get_plugin,
    get_strategy,
)
from gpuprov.catalog import kubernetes as catalogue
from gpuprov.catalog.gpus import find_gpu
from gpuprov.rules.cluster_engines import WRITTEN
from gpuprov.spec.model import HostSpec
from gpuprov.spec.problem import Path, Problem, format_path, report_under

HERE = "kubernetes"
SHARING: Path = (HERE, "device_plugin", "sharing")
OPERATOR: Path = (HERE, "gpu_operator")
# Labels that start a plugin or a daemon. The label gpu is also used by others than HAMi.
STARTS = {catalogue.MPS_CAPABLE: "true", catalogue.GPUSHARE_NODE: "true", catalogue.HAMI_NODE: "on"}


problem = report_under()


def rules(host: HostSpec, block: Kubernetes) -> Iterable[Problem]:
    """Yield every problem of the block on this host; of a configuration of the cluster's, at its own place."""
    yield from cluster_configs(block)
    for problem_ in find_problems(host, msgspec.structs.replace(block, device_plugin=get_plugin(block))):
        yield _place_at_config(problem_, block)


def cluster_configs(block: Kubernetes) -> Iterable[Problem]:
    """Yield problems of the node's choice of the cluster's configurations."""
    name = block.device_plugin.config
    if block.configs and get_strategy(block) == "nvidia" and name not in block.configs:
        fix = f"one of {', '.join(sorted(block.configs))}, or add it to kubernetes.configs"
        yield problem((HERE, "device_plugin", "config"), f'is "{name}", which kubernetes.configs does not have', fix)
    if name in block.configs and block.device_plugin != DevicePlugin(config=name):
        message = f"has settings of its own beside the configuration {name} of kubernetes.configs, which would win"
        yield problem((HERE, "device_plugin"), message, f"move them to kubernetes.configs.{name}")


def _place_at_config(described: Problem, block: Kubernetes) -> Problem:
    """Return a problem of the node's configuration at the place that it is written in."""
    name = block.device_plugin.config
    if name not in block.configs or described.path[:2] != (HERE, "device_plugin"):
        return described
    place: Path = (HERE, "configs", name)
    message = described.message.replace(format_path(described.path[:2]), format_path(place), 1)
    return msgspec.structs.replace(described, path=(*place, *described.path[2:]), message=message)


def find_problems(host: HostSpec, block: Kubernetes) -> Iterable[Problem]:
    """Yield every problem of the block, with the node's configuration in device_plugin."""
    yield from plugins(block)
    yield from sharing(host, block)
    yield from beside(host, block)
    yield from operator(host, block)
    yield from hami(host, block)
    yield from dra_rules(host, block)
    yield from node_labels(host, block)
    gpus = layout.planned(host)
    reason, fix = fit.misfit(block, layout.somewhere(host) if gpus is None else gpus)
    if reason:
        path: Path = (HERE, "device_plugin", "mig_strategy") if get_strategy(block) == "nvidia" else (HERE, "plugin")
        yield Problem(path=path, message=f"{format_path(path)}: by mig, {reason}", fix=fix)


def fleet_rules(hosts: Sequence[HostSpec], _unmanaged: Sequence[str], *, whole: bool) -> Iterable[tuple[str, Problem]]:
    """Yield configurations of the same name with different content, and hosts that know others than the first: a
    cluster has one ConfigMap, with each name once."""
    first: dict[str, tuple[str, str]] = {}
    whole_map: tuple[str, set[str]] | None = None
    for host in hosts:
        block = host.capabilities.get(HERE)
        if not isinstance(block, Kubernetes) or get_strategy(block) != "nvidia":
            continue
        if block.configs:
            whole_map = whole_map or (host.name, set(block.configs))
            if others := whole_map[1] ^ set(block.configs):
                message = f"differs from that of {whole_map[0]} in {', '.join(sorted(others))}"
                fix = "kubernetes.configs in the vars of the whole cluster; or they are of different clusters"
                yield host.name, problem((HERE, "configs"), message, fix, warning=True)
        path: Path = (HERE, "configs") if block.configs else (HERE, "device_plugin", "config")
        for name, text in documents.plugin_configs(block).items():
            other, theirs = first.setdefault(name, (host.name, text))
            if theirs != text:
                message = f'has "{name}", and {other} has another configuration of that name'
                fix = "a name of its own, or kubernetes.configs for all of them; unless they are in different clusters"
                yield host.name, problem(path, message, fix, warning=True)


def plugins(block: Kubernetes) -> Iterable[Problem]:
    """Yield problems of more than one device plugin per node: settings for another would have no effect."""
    dra = get_strategy(block) == "dra"
    other = "allocation is dra" if dra else f"plugin is {block.plugin}"
    fix = f"{'allocation: device-plugin' if dra else 'plugin: nvidia'}, or leave it out"
    if get_strategy(block) != "nvidia" and block.device_plugin.sharing != Sharing():
        message = f"has no effect: kubernetes.{other}, and one node has one strategy of sharing"
        yield problem(SHARING, message, fix)
    kept = DevicePlugin(sharing=block.device_plugin.sharing)
    if block.gpu_operator.enabled:  # whose feature discovery goes by it too
        kept = msgspec.structs.replace(kept, mig_strategy=block.device_plugin.mig_strategy)
    if get_strategy(block) != "nvidia" and block.device_plugin != kept:
        yield problem((HERE, "device_plugin"), f"has no effect: kubernetes.{other}", fix)
    own = block.device_plugin.device_list_strategy
    for place, value in enumerate(own):
        if value in own[:place]:
            path: Path = (HERE, "device_plugin", "device_list_strategy", place)
            yield problem(path, f'is "{value}" again', "take one out")


def sharing(host: HostSpec, block: Kubernetes) -> Iterable[Problem]:
    """Yield problems of time slicing or MPS: of whole resources, within the limits."""
    own = block.device_plugin.sharing
    if own.mps.resources and own.time_slicing.resources:
        yield problem(SHARING, "has mps and time_slicing: the plugin takes mps and ignores the other", "leave one out")
    ways: tuple[tuple[str, TimeSlicing | MpsSharing], ...] = (("time_slicing", own.time_slicing), ("mps", own.mps))
    for name, way in ways:
        path: Path = (*SHARING, name)
        yield from resources(block, path, way, way.resources)
    if own.mps.resources:
        yield from mps(host, block)


def resources(
    block: Kubernetes, path: Path, way: TimeSlicing | MpsSharing, shared: Sequence[SharedResource]
) -> Iterable[Problem]:
    """Yield problems of each resource: named once, of the node, with fields that the plugin honours."""
    names = [resource.name for resource in shared]
    for number, resource in enumerate(shared):
        here: Path = (*path, "resources", number)
        if resource.name in names[:number]:
            yield problem((*here, "name"), f'is "{resource.name}" again', "name each resource once")
        if resource.replicas < catalogue.MIN_REPLICAS:
            fix = f"allowed: {catalogue.MIN_REPLICAS} or more; without sharing leave the resource out"
            yield problem((*here, "replicas"), f"is {resource.replicas}", fix)
        if resource.devices != "all":
            message = "names devices, which the plugin ignores: it shares every GPU of the node alike"
            yield problem(
                (*here, "devices"), message, "leave devices out; MIG GPUs are shared apart by mig_strategy: mixed"
            )
        suffixed = f"{resource.name}.shared" if way.rename_by_default else ""
        if resource.rename not in ("", suffixed):
            message = f'is "{resource.rename}", which the plugin ignores'
            yield problem(
                (*here, "rename"), message, f"leave it out; rename_by_default: true makes it {resource.name}.shared"
            )
        if resource.name != documents.GPU and block.device_plugin.mig_strategy != "mixed":
            message = f'is "{resource.name}", which there is with mig_strategy mixed only'
            yield problem((*here, "name"), message, f"mig_strategy: mixed, or {documents.GPU}")


def mps(host: HostSpec, block: Kubernetes) -> Iterable[Problem]:
    """Yield problems of the plugin's MPS: whole GPUs only, as many clients as it allows."""
    path: Path = (*SHARING, "mps")
    if block.device_plugin.mig_strategy != "none":
        message = (
            f"does not work with mig_strategy {block.device_plugin.mig_strategy}: the plugin has MPS for "
            "whole GPUs only"
        )
        yield problem(path, message, "mig_strategy: none, or time_slicing in place of mps")
    gpu = find_gpu(host.gpu.model) if host.gpu else None
    limit, why = catalogue.find_replica_limit([gpu] if gpu else [], find_requested_branch(host))
    for number, resource in enumerate(block.device_plugin.sharing.mps.resources):
        here: Path = (*path, "resources", number)
        if resource.name != documents.GPU:
            yield problem(
                (*here, "name"), f'is "{resource.name}": MPS shares {documents.GPU} only', f"name: {documents.GPU}"
            )
        if resource.replicas > limit:
            yield problem((*here, "replicas"), f"is {resource.replicas}, over {limit}: {why}", f"allowed: 2 to {limit}")


def beside(host: HostSpec, block: Kubernetes) -> Iterable[Problem]:
    """Yield conflicts with other capabilities of the host."""
    own = block.device_plugin.sharing
    if "mps" in host.capabilities:
        fix = "take mps out of the spec, or the sharing out of kubernetes"
        if own.mps.resources:
            yield problem((*SHARING, "mps"), "starts MPS daemons of its own beside the host's (mps)", fix)
        if own.time_slicing.resources:
            message = "lets pods take turns on GPUs that the host's MPS (mps) has in EXCLUSIVE_PROCESS"
            yield problem((*SHARING, "time_slicing"), message, fix)
        if get_strategy(block) not in ("nvidia", "dra"):
            yield problem(
                (HERE, "plugin"),
                f"is {get_strategy(block)}, which shares GPUs by itself, beside the host's MPS (mps)",
                "take mps out of the spec, or plugin: nvidia",
            )
    if "cgpu" in host.capabilities and (get_strategy(block) == "hami" or documents.shared(block)):
        path: Path = (HERE, "plugin") if get_strategy(block) == "hami" else SHARING
        yield problem(
            path, "shares GPUs that cgpu shares already", "cgpu: false, or take the sharing out of kubernetes"
        )
    toolkit = host.capabilities.get("container_toolkit")
    runtimes: Sequence[str] = getattr(toolkit, "runtimes", ())
    if toolkit and runtimes and not {"containerd", "crio", *WRITTEN} & set(runtimes):
        message = f"is {', '.join(runtimes)}: a kubelet takes containerd or cri-o"
        yield problem(
            ("container_toolkit", "runtimes"), message, "add containerd, crio, k3s, rke2 or microk8s", warning=True
        )
    if get_strategy(block) == "gpushare" and toolkit and not getattr(toolkit, "default_runtime", False):
        message = "is gpushare, whose pods ask for no RuntimeClass: they need NVIDIA's runtime as the default one"
        yield problem((HERE, "plugin"), message, "container_toolkit.default_runtime: true")


def operator(host: HostSpec, block: Kubernetes) -> Iterable[Problem]:
    """Yield what both the host and the operator would install."""
    own = block.gpu_operator
    conflicts = {
        "driver": ("nvidia_driver", "installs the driver"),
        "toolkit": ("container_toolkit", "installs the toolkit"),
        "dcgm_exporter": ("dcgm", "runs DCGM; two engines take the profiling counters from each other"),
    }
    enabled = [name for name in (*conflicts, "mig_manager") if getattr(own, name)]
    if not own.enabled:
        for name in enabled:
            yield problem((*OPERATOR, name), "has no effect without the operator", "enabled: true, or leave it out")
        return
    for name in enabled:
        capability, does = conflicts.get(name, ("", ""))
        if capability in host.capabilities:
            fix = "dcgm.exporter: true in place of it" if name == "dcgm_exporter" else "leave it out"
            message = f"is true, and the host {does} ({capability})"
            yield problem((*OPERATOR, name), message, f"{fix}, or take {capability} out of the spec")
    for capability in ("persistence", "fabric_manager"):
        if own.driver and capability in host.capabilities:
            message = f"is true: its container runs a daemon of its own beside the host's ({capability})"
            yield problem((*OPERATOR, "driver"), message, f"leave it out, or {capability}: false")
    for capability in ("mig", "mps", "dcgm", "cgpu"):
        if own.driver and capability in host.capabilities:
            message = f"is true: that driver is in a container, and {capability} needs one on the host"
            yield problem(
                (*OPERATOR, "driver"), message, f"leave it out, with nvidia_driver in the spec, or {capability}: false"
            )
    cdi = set(block.device_plugin.device_list_strategy)
    if get_strategy(block) == "nvidia" and cdi & set(documents.CDI) and cdi != set(documents.CDI):
        path: Path = (HERE, "device_plugin", "device_list_strategy")
        message = (
            f"is {', '.join(block.device_plugin.device_list_strategy)}: with CDI the operator sets "
            f"{' and '.join(documents.CDI)}"
        )
        yield problem(path, message, f"[{', '.join(documents.CDI)}], or [envvar]")
    if own.mig_manager and "mig" in host.capabilities:
        try:
            layout.parted(host)
        except layout.NotExpressible as error:
            message = f"is true, and its file cannot have the layout: {error}"
            yield problem((*OPERATOR, "mig_manager"), message, "mig_manager: false; the host makes the layout itself")


def hami(host: HostSpec, block: Kubernetes) -> Iterable[Problem]:
    """Yield problems of HAMi's own MIG mode."""
    if get_strategy(block) != "hami" or block.hami.mode != "mig":
        return
    path: Path = (HERE, "hami", "mode")
    if not block.node:
        yield problem(
            path, "is mig, which HAMi takes from a table of nodes by name", "kubernetes.node: the node's name"
        )
    if "mig" in host.capabilities:
        yield problem(
            path,
            "is mig: HAMi makes MIG instances itself, and so does the host (mig)",
            "mode: hami-core and mig_strategy: mixed, or take mig out of the spec",
        )


def node_labels(host: HostSpec, block: Kubernetes) -> Iterable[Problem]:
    """Yield labels that already have a meaning, and labels that a kubelet may not set."""
    own = documents.labels(host, msgspec.structs.replace(block, labels={}))
    for key, value in block.labels.items():
        path: Path = (HERE, "labels", key)
        if key in own and own[key] != value:
            message = f'is "{value}", and the node needs "{own[key]}" there'
            yield problem(path, message, "leave it out: it follows from the rest of kubernetes")
        elif key == catalogue.MIG_LABEL and "mig" in host.capabilities:
            message = "makes the operator's MIG manager change a layout that the host keeps (mig)"
            yield problem(path, message, "leave it out, or gpu_operator.mig_manager: true with the same layout")
        elif STARTS.get(key) == value and key not in own:
            message = f'is "{value}", by which something is started on the node that is not of its strategy'
            yield problem(
                path, message, "leave it out, or ask for it in kubernetes", warning=key == catalogue.HAMI_NODE
            )
        if block.label_node and not catalogue.is_settable_by_kubelet(key):
            message = "may not be set with a kubelet's credentials (NodeRestriction)"
            yield problem(path, message, "leave it out, or label_node: false and set it as an administrator")
