"""A node's files, read back as a spec."""

import re

from gpuprov.capabilities.kubernetes.fragment import Kubernetes
from gpuprov.catalog import kubernetes as catalogue
from gpuprov.core import safe_parse
from gpuprov.core.safe_parse import Tree, TreeView
from gpuprov.facts.probes.base import Facts
from gpuprov.facts.probes.containers import kubernetes
from gpuprov.rules.engines import at
from gpuprov.spec.build import convert
from gpuprov.spec.model import Fragment

# Labels that follow from the rest of a spec.
FOLLOWING = (
    *(
        catalogue.PLUGIN_CONFIG,
        catalogue.MPS_CAPABLE,
        catalogue.MIG_LABEL,
        catalogue.HAMI_NODE,
        catalogue.GPUSHARE_NODE,
        catalogue.GPU_PRESENT,
    ),
)


def snake(name: str) -> str:
    """Return `renameByDefault` as a spec has it."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=ID)(?=[A-Z])", "_", name).lower()


def export(facts: Facts) -> Fragment | None:
    """Return the block that gpuprov's files on the host came from; None without them."""
    try:
        return _build_block({name: safe_parse.parse_yaml(text) for name, text in facts.get(kubernetes.FILES).items()})
    except (ValueError, KeyError, IndexError, TypeError, AttributeError):
        return None  # what somebody made of the files is not a spec


def _build_block(read: TreeView) -> Fragment | None:
    labels = at(read.get(catalogue.NODE_LABELS), "metadata", "labels")
    if not isinstance(labels, dict):
        return None
    values: Tree = {"labels": {key: value for key, value in labels.items() if key not in FOLLOWING}}
    if catalogue.DEVICE_PLUGIN in read:
        values["device_plugin"] = plugin(read[catalogue.DEVICE_PLUGIN], labels.get(catalogue.PLUGIN_CONFIG))
        if len(configs := cluster_configs(read)) > 1:
            values["device_plugin"] = plugin({}, labels.get(catalogue.PLUGIN_CONFIG))
            values["configs"] = {name: plugin(safe_parse.parse_yaml(text), None) for name, text in configs.items()}
    elif catalogue.HAMI_VALUES in read:
        values |= {"plugin": "hami", **hami(read[catalogue.HAMI_VALUES])}
    elif catalogue.GPUSHARE_VALUES in read:
        values |= {
            "plugin": "gpushare",
            "gpushare": {"master_count": at(read[catalogue.GPUSHARE_VALUES], "masterCount")},
        }
    if catalogue.DRA_VALUES in read:
        own = read[catalogue.DRA_VALUES]
        domains = at(own, "resources", "computeDomains", "enabled") is True
        values |= {
            "dra": {"compute_domains": domains, "feature_gates": at(own, "featureGates") or {}},
            "allocation": "dra",
        }
    if catalogue.OPERATOR_VALUES in read:
        values["gpu_operator"] = operator(read[catalogue.OPERATOR_VALUES])
    block, _ = convert(values, Kubernetes)
    return block if isinstance(block, Kubernetes) else None


def cluster_configs(read: TreeView) -> dict[str, str]:
    """Return the texts of the cluster's configurations, by name."""
    configs = at(read.get(catalogue.PLUGIN_VALUES), "config", "map")
    return configs or at(read.get(catalogue.OPERATOR_VALUES), "devicePlugin", "config", "data") or {}


def plugin(read: object, name: object) -> Tree:
    """Return the block of a plugin's configuration."""
    made: Tree = {"config": name} if name else {}
    flags = at(read, "flags") or {}
    own = {**flags, **(at(flags, "plugin") or {})}
    for key in ("migStrategy", "failOnInitError", "passDeviceSpecs", "deviceListStrategy", "deviceIDStrategy"):
        if key in own:
            made[snake(key)] = own[key]
    for key, name_here in (("timeSlicing", "time_slicing"), ("mps", "mps")):
        if way := at(read, "sharing", key):
            made["sharing"] = {name_here: {snake(key): value for key, value in way.items()}}
    return made


def operator(read: object) -> Tree:
    """Return the block of an operator's values."""
    parts = {"driver": "driver", "toolkit": "toolkit", "mig_manager": "migManager", "dcgm_exporter": "dcgmExporter"}
    return {"enabled": True, **{name: at(read, key, "enabled") is True for name, key in parts.items()}}


def hami(read: object) -> Tree:
    """Return the block of HAMi's values, and the node's name if a mode is given for it."""
    values = at(read, "devicePlugin") or {}
    keys = {
        "split_count": "deviceSplitCount",
        "memory_scaling": "deviceMemoryScaling",
        "core_scaling": "deviceCoreScaling",
        "mig_strategy": "migStrategy",
    }
    block = {name: values[key] for name, key in keys.items() if key in values}
    table = at(values, "nodeConfiguration", "config")
    if not table:
        return {"hami": block}
    node_config = safe_parse.parse_json(table)["nodeconfig"][0]
    return {"node": node_config["name"], "hami": {**block, "mode": node_config["operatingmode"]}}
