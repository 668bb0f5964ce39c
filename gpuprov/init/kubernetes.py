"""`kubectl get nodes -o json` -> a draft: from labels of GPU feature discovery, and the instance type, of nodes.

https://github.com/NVIDIA/k8s-device-plugin/tree/main/docs/gpu-feature-discovery
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from gpuprov.catalog.instances import InstanceTypes, find_instance
from gpuprov.core import safe_parse
from gpuprov.core.errors import GpuprovError
from gpuprov.init.draft import BASE, HOST, Draft, Group, add, gpu_block, group_name
from gpuprov.inventory.names import fold_names

PREFIX = "nvidia.com/"
# `A100-PCIE-40GB-MIG-1g.5gb-SHARED`: blanks are -, and MIG devices and shared ones have a further word.
# https://github.com/NVIDIA/k8s-device-plugin/blob/main/internal/lm/resource.go
PRODUCT = re.compile(r"(?P<model>.+?)(?P<mig>-MIG-[0-9]+g\.[0-9a-z.+]+)?(?P<shared>-SHARED)?\Z")
VERSION = re.compile(r"[0-9]{3}\.[0-9]{1,3}(?:\.[0-9]{1,2})?\Z")
# https://kubernetes.io/docs/reference/labels-annotations-taints/#nodekubernetesioinstance-type
INSTANCE = ("node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type")
SHARING = "kubernetes: {device_plugin: {sharing: ...}} says it"
# Labels with a meaning that a spec could have, and why they are not taken over; their values without meaning.
OTHERS = {
    "mig.config": "a layout in the MIG manager's ConfigMap; gpuprov export reads it from a host, as mig: {layout: ...}",
    "device-plugin.config": "a configuration of the device plugin; kubernetes: {device_plugin: ...} renders one",
    "gpu.sharing-strategy": f"how the device plugin shares GPUs; {SHARING}",
    "vgpu.present": "a guest with vGPU; vgpu_guest says its licence",
}
NOTHING = {"", "false", "none", "all-disabled"}


class Node(msgspec.Struct):
    """The relevant data of a Kubernetes Node."""

    name: str
    address: str
    labels: dict[str, str]

    def label(self, name: str) -> str:
        return self.labels.get(PREFIX + name, "")

    @property
    def instance(self) -> InstanceTypes | None:
        """Return its instance type of a cloud, if that has NVIDIA GPUs."""
        return next((row for name in INSTANCE if (row := find_instance(self.labels.get(name, "")))), None)


def draft(path: Path) -> Draft:
    """Return the nodes with GPUs, in groups of one product, count and driver. Raises GpuprovError if there is none."""
    new_draft = Draft(source=path.name, common={**BASE, "reboot": "never"})
    alike: dict[tuple[str, ...], list[Node]] = {}
    without = unlabelled = 0
    for node, gpus in _read_nodes(path, new_draft):
        kind = next((node.labels[name] for name in INSTANCE if name in node.labels), "") if node.instance else ""
        if node.label("gpu.product") or kind:
            names = ("gpu.product", "gpu.count", "gpu.deploy.driver")
            alike.setdefault((*map(node.label, names), _find_driver(node), kind), []).append(node)
        elif gpus:
            unlabelled += 1
            alike.setdefault(("", "", "", "", ""), []).append(node)
        else:
            without += 1
    if not alike:
        fix = "GPU feature discovery sets the label nvidia.com/gpu.product: kubectl get nodes -L nvidia.com/gpu.product"
        raise GpuprovError(f"{path.name}: no node with a GPU is in it", fix)
    if without:
        new_draft.notes.append(f"{without} node{'s' if without != 1 else ''} without GPUs")
    if unlabelled:
        nodes = f"{unlabelled} nodes have" if unlabelled != 1 else "1 node has"
        new_draft.notes.append(f"{nodes} nvidia.com/gpu and no labels of GPU feature discovery")
    for (product, count, deployed, driver, _), members in alike.items():
        add(new_draft, _make_group(new_draft, product, safe_parse.parse_whole(count), deployed, driver, members))
    return new_draft


def _read_nodes(path: Path, new_draft: Draft) -> Iterator[tuple[Node, bool]]:
    """Yield each node, and True if it offers GPUs."""
    what = "the output of: kubectl get nodes -o json"
    try:
        document = safe_parse.parse_json(safe_parse.read_contents(str(path)), largest=safe_parse.FILE)
    except safe_parse.Unreadable as error:
        raise GpuprovError(f"{path}: {error.message}", f"allowed: {what}") from error
    except OSError as error:
        raise GpuprovError(f"{path} cannot be read: {error.strerror}", f"name {what}") from error
    items = _get_under(document, "items") or [document]
    for item in items if isinstance(items, list) else ():
        if _get_under(item, "kind") != "Node":
            raise GpuprovError(f"{path}: this is not a list of nodes", f"allowed: {what}")
        name = _get_under(item, "metadata", "name")
        if not isinstance(name, str) or not HOST.match(name):
            new_draft.notes.append(f"{str(name)[:80]!r} is not a name of a host")
            continue
        labels = _get_under(item, "metadata", "labels")
        plain = {str(key): str(value) for key, value in labels.items()} if isinstance(labels, Mapping) else {}
        capacity = _get_under(item, "status", "capacity")
        gpus = any(str(key).startswith((f"{PREFIX}gpu", f"{PREFIX}mig-")) for key in capacity or ())
        yield Node(name, _find_address(item), plain), gpus


def _get_under(value: Any, *keys: str) -> Any:
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def _find_address(item: Any) -> str:
    addresses = _get_under(item, "status", "addresses")
    for entry in addresses if isinstance(addresses, list) else ():
        address = _get_under(entry, "address")
        if (
            _get_under(entry, "type") == "InternalIP"
            and isinstance(address, str)
            and re.fullmatch(r"[0-9A-Fa-f.:]+", address)
        ):
            return address
    return ""


def _find_driver(node: Node) -> str:
    """Return the driver's version, by the current label, or by those of old versions of GPU feature discovery."""
    whole = node.label("cuda.driver-version.full")
    parts = [node.label(f"cuda.driver.{part}") for part in ("major", "minor", "rev")]
    version = whole or ".".join(part for part in parts if part)
    return version if VERSION.match(version) else ""


def _make_group(draft: Draft, product: str, count: int | None, deployed: str, driver: str, nodes: list[Node]) -> Group:
    named = PRODUCT.match(product)
    mig, shared = (named["mig"], named["shared"]) if named else (None, None)
    spec, notes = gpu_block(named["model"] if named else "", None if mig or not count or count > 64 else count)
    instance = nodes[0].instance
    if instance and (mig or "gpu" not in spec):
        spec, notes = gpu_block(instance.model, instance.count)
    if instance:
        kinds = ", ".join(
            sorted({node.labels[name].strip() for node in nodes for name in INSTANCE if name in node.labels})
        )
        fabric = f"; its fabric: rdma: {{fabric: {instance.fabric}}}" if instance.fabric else ""
        notes.append(f"instance type {kinds}: {instance.count} x {instance.model}{fabric}")
    if mig:
        profile = mig.removeprefix("-MIG-")
        notes.append(f"MIG: the label's count ({count}) is of devices {profile}, and not of GPUs; mig says the layout")
    if shared:
        notes.append(f"SHARED: the device plugin offers each GPU several times; {SHARING}")
    if deployed == "true":
        spec["nvidia_driver"] = False
        spec["persistence"] = False
        notes.append(
            f"nvidia_driver: GPU operator brings {driver or 'it'} in a container "
            "(nvidia.com/gpu.deploy.driver=true), and gpuprov leaves it alone; to have it on the host: "
            "driver.enabled=false in the operator, and nvidia_driver here"
        )
        spec.pop("fabric_manager", None)
    elif driver:
        spec["nvidia_driver"] = {"version": driver}
    notes += _list_left(nodes)
    name = group_name(spec, named["model"] if named else "gpu", [group.name for group in draft.groups])
    hosts = {node.name: {"ansible_host": node.address} if node.address else {} for node in nodes}
    kind = next(iter(instance.types), "") if instance else ""
    return Group(name=name, spec=spec, hosts=hosts, notes=notes, instance=kind)


def _list_left(nodes: list[Node]) -> Iterator[str]:
    """Yield labels that were not taken over, with the hosts that have them."""
    for label, why in OTHERS.items():
        values: dict[str, list[str]] = {}
        for node in nodes:
            if (value := node.label(label)) not in NOTHING:
                values.setdefault(value, []).append(node.name)
        for value, names in values.items():
            yield f"{PREFIX}{label}={value} ({fold_names(names)}): {why}"
    profiles = {
        key.split("-", 1)[1].removesuffix(".count") for node in nodes for key in node.labels if _is_counted(key)
    }
    if profiles:
        yield f"MIG devices ({', '.join(sorted(profiles))}): labels have their sum, and not which GPU has which"


def _is_counted(key: str) -> bool:
    return key.startswith(f"{PREFIX}mig-") and key.endswith(".count")
