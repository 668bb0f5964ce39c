"""Content of a node's files: plain values by file name, and the text of them that is written to the host."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from gpuprov.capabilities.kubernetes import layout
from gpuprov.capabilities.kubernetes.dra import dra_values
from gpuprov.capabilities.kubernetes.fragment import (
    Kubernetes,
    MpsSharing,
    PluginConfig,
    SharedResource,
    TimeSlicing,
    get_plugin,
    get_strategy,
)
from gpuprov.catalog import kubernetes as catalogue
from gpuprov.spec.model import HostSpec

GPU = "nvidia.com/gpu"
# The name of the runtime in the engines, and of its RuntimeClass.
RUNTIME = "nvidia"
DRIVER_ROOT = "/"
# Device list strategies that the operator sets for the plugin if its value cdi.enabled is true:
# https://github.com/NVIDIA/gpu-operator/blob/main/controllers/object_controls.go
CDI = ("cdi-annotations", "cdi-cri")
Document = dict[str, Any]


def shared(block: Kubernetes) -> TimeSlicing | MpsSharing | None:
    """Return how the plugin shares GPUs; None if it does not."""
    return _find_sharing(get_plugin(block))


def _find_sharing(own: PluginConfig) -> TimeSlicing | MpsSharing | None:
    sharing = own.sharing
    return sharing.mps if sharing.mps.resources else sharing.time_slicing if sharing.time_slicing.resources else None


def plugin_config(own: PluginConfig) -> Document:
    """Return the plugin's own configuration."""
    # https://github.com/NVIDIA/k8s-device-plugin/tree/v0.20.0/api/config/v1
    flags = {
        "migStrategy": own.mig_strategy,
        "failOnInitError": own.fail_on_init_error,
        "plugin": {
            "passDeviceSpecs": own.pass_device_specs,
            "deviceListStrategy": list(own.device_list_strategy),
            "deviceIDStrategy": own.device_id_strategy,
        },
    }
    made: Document = {"version": "v1", "flags": flags}
    if ways := _find_sharing(own):
        made["sharing"] = {
            "mps" if isinstance(ways, MpsSharing) else "timeSlicing": {
                "renameByDefault": ways.rename_by_default,
                "failRequestsGreaterThanOne": ways.fail_requests_greater_than_one,
                "resources": [{"name": resource.name, "replicas": resource.replicas} for resource in ways.resources],
            }
        }
    return made


def plugin_values(block: Kubernetes) -> Document:
    """Return the values of the chart nvidia-device-plugin."""
    configs = plugin_configs(block)
    return {
        "config": {"map": configs, "default": _choose_default_config(configs)},
        "gfd": {"enabled": True},
        "nvidiaDriverRoot": DRIVER_ROOT,
        "runtimeClassName": RUNTIME,
    }


def plugin_configs(block: Kubernetes) -> dict[str, str]:
    """Return the data of the cluster's ConfigMap: the text of each configuration by name."""
    own = block.configs or {block.device_plugin.config: block.device_plugin}
    return {name: text(plugin_config(config)) for name, config in sorted(own.items())}


def _choose_default_config(configs: Mapping[str, str]) -> str:
    """Return the configuration of nodes without the label; empty for none of several, where the plugin does not
    start."""
    # https://github.com/NVIDIA/k8s-device-plugin/blob/v0.20.0/cmd/config-manager/main.go (updateConfigName)
    return "default" if "default" in configs else min(configs) if len(configs) == 1 else ""


def operator_values(host: HostSpec, block: Kubernetes) -> Document:
    """Return the values of the chart gpu-operator: on for what the spec asks of it, off for what the host provides."""
    operator, own = block.gpu_operator, get_plugin(block)
    plugin: Document = {"enabled": get_strategy(block) == "nvidia"}
    if get_strategy(block) == "nvidia":
        data = plugin_configs(block)
        plugin["config"] = {
            "create": True,
            "name": "gpuprov-device-plugin",
            "default": _choose_default_config(data),
            "data": data,
        }
    manager: Document = {"enabled": operator.mig_manager}
    if operator.mig_manager and "mig" in host.capabilities:
        data = {"config.yaml": text(mig_config(host))}
        name = layout.get_label(host)
        manager["config"] = {"create": True, "name": "gpuprov-mig-parted", "default": name, "data": data}
    return {
        "cdi": {"enabled": get_strategy(block) == "dra" or set(own.device_list_strategy) == set(CDI)},
        "driver": {"enabled": operator.driver},
        "toolkit": {"enabled": operator.toolkit},
        "mig": {"strategy": own.mig_strategy},
        "devicePlugin": plugin,
        "migManager": manager,
        "dcgm": {"enabled": False},
        "dcgmExporter": {"enabled": operator.dcgm_exporter},
    }


def mig_config(host: HostSpec) -> Document:
    """Return the host's layout as a mig-parted file; of a file that the spec names, all layouts."""
    return {"version": "v1", "mig-configs": layout.parted_configs(host)}


def runtime_class() -> Document:
    """Return the RuntimeClass that the charts' pods request."""
    kind = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass"}
    return {**kind, "metadata": {"name": RUNTIME}, "handler": RUNTIME}


def hami_values(block: Kubernetes) -> Document:
    """Return the values of HAMi's chart. Its mode is in a table of nodes, by name."""
    own = block.hami
    values: Document = {
        "deviceSplitCount": own.split_count,
        "deviceMemoryScaling": own.memory_scaling,
        "deviceCoreScaling": own.core_scaling,
        "migStrategy": own.mig_strategy,
        "runtimeClassName": RUNTIME,
    }
    if block.node:
        node = {
            "name": block.node,
            "operatingmode": own.mode,
            "devicesplitcount": own.split_count,
            "devicememoryscaling": own.memory_scaling,
            "migstrategy": own.mig_strategy,
        }
        values["nodeConfiguration"] = {"config": json.dumps({"nodeconfig": [node]}, indent=2) + "\n"}
    return {"devicePlugin": values}


def labels(host: HostSpec, block: Kubernetes) -> dict[str, str]:
    """Return every label that the node needs, and those that the spec adds."""
    made: dict[str, str] = {}
    if get_strategy(block) == "nvidia":
        made[catalogue.PLUGIN_CONFIG] = block.device_plugin.config
        made |= {catalogue.MPS_CAPABLE: "true"} if get_plugin(block).sharing.mps.resources else {}
    elif get_strategy(block) == "dra":
        made[catalogue.GPU_PRESENT] = "true"
    elif get_strategy(block) == "hami":
        made[catalogue.HAMI_NODE] = "on"
    else:
        made[catalogue.GPUSHARE_NODE] = "true"
    if block.gpu_operator.enabled and block.gpu_operator.mig_manager and "mig" in host.capabilities:
        made[catalogue.MIG_LABEL] = layout.get_label(host)
    return {**made, **block.labels}


def unwanted(host: HostSpec, block: Kubernetes) -> dict[str, str]:
    """Return labels by which something outside the node's strategy would run on it."""
    others = {catalogue.MPS_CAPABLE: "true", catalogue.GPUSHARE_NODE: "true"}
    return {key: value for key, value in others.items() if key not in labels(host, block)}


def allocatable(block: Kubernetes, gpus: Iterable[tuple[bool, tuple[str, ...]]]) -> dict[str, int]:
    """Return the resources that NVIDIA's plugin offers for these GPUs, with counts. A GPU: whether it is in MIG mode,
    its MIG devices' profiles."""
    strategy = get_plugin(block).mig_strategy
    counts: Counter[str] = Counter()
    for on, profiles in gpus:
        if not on or strategy == "none":
            counts[GPU] += 1
        else:
            counts.update(catalogue.name_mig_resource(profile) if strategy == "mixed" else GPU for profile in profiles)
    ways = shared(block)
    resources: tuple[SharedResource, ...] = ways.resources if ways else ()
    times = {resource.name: resource.replicas for resource in resources}
    suffix = ".shared" if ways and ways.rename_by_default else ""
    return {f"{name}{suffix if name in times else ''}": count * times.get(name, 1) for name, count in counts.items()}


def summary(host: HostSpec, block: Kubernetes) -> Document:
    """Return a summary of what the node will offer, for readers and for a comparison with the cluster."""
    ways = shared(block)
    sharing = "none" if ways is None else "mps" if isinstance(ways, MpsSharing) else "time-slicing"
    values: Document = {"migStrategy": get_plugin(block).mig_strategy, "sharing": sharing}
    if ways:
        values["replicas"] = {resource.name: resource.replicas for resource in ways.resources}
    gpus = layout.planned(host)
    return values if gpus is None else {**values, "allocatable": dict(sorted(allocatable(block, gpus).items()))}


def documents(host: HostSpec, block: Kubernetes) -> dict[str, Document]:
    """Return every file of the node, by name. Raises layout.NotExpressible if the layout cannot be expressed for the
    MIG manager."""
    made: dict[str, Document] = {}
    if get_strategy(block) == "nvidia":
        made[catalogue.DEVICE_PLUGIN] = plugin_config(get_plugin(block))
        made[catalogue.SUMMARY] = summary(host, block)
    if block.gpu_operator.enabled:
        made[catalogue.OPERATOR_VALUES] = operator_values(host, block)
        if block.gpu_operator.mig_manager and "mig" in host.capabilities:
            made[catalogue.MIG_CONFIG] = mig_config(host)
    elif get_strategy(block) != "dra":
        made[catalogue.RUNTIME_CLASS] = runtime_class()
        if get_strategy(block) == "nvidia":
            made[catalogue.PLUGIN_VALUES] = plugin_values(block)
    if get_strategy(block) == "dra":
        made[catalogue.DRA_VALUES] = dra_values(block)
    elif get_strategy(block) == "hami":
        made[catalogue.HAMI_VALUES] = hami_values(block)
    elif get_strategy(block) == "gpushare":
        made[catalogue.GPUSHARE_VALUES] = {"masterCount": block.gpushare.master_count}
    made[catalogue.NODE_LABELS] = {"metadata": {"labels": labels(host, block)}}
    return dict(sorted(made.items()))


def text(document: Mapping[str, Any]) -> str:
    """Return a document as YAML; multi-line text is written as a block."""
    import yaml  # 10 ms

    return yaml.dump(dict(document), Dumper=_dumper(), sort_keys=False, width=120, allow_unicode=True)


@cache
def _dumper() -> Any:
    import yaml

    class Dumper(yaml.SafeDumper):
        """Writes lists indented below their key, as charts do."""

        def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
            super().increase_indent(flow, False)

    def block_text(dumper: Dumper, value: str) -> yaml.ScalarNode:
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)

    Dumper.add_representer(str, block_text)
    return Dumper
