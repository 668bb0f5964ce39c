"""The layout of the host's `mig` block: in the form of a mig-parted file, and its result for the GPUs of the spec."""

from collections.abc import Iterable
from typing import Any

import msgspec

from gpuprov.catalog import kubernetes as catalogue
from gpuprov.catalog.gpus import Gpu, find_gpu
from gpuprov.core.safe_parse import Tree
from gpuprov.hardware.mig.parted import read_parted
from gpuprov.host_code.at_boot.mig_names import name_device
from gpuprov.host_code.mig import layout as mig_layout
from gpuprov.spec.model import Fragment, HostSpec

Entry = dict[str, Any]


class NotExpressible(Exception):
    """A layout that a mig-parted file cannot express; one line."""


def of_host(host: HostSpec) -> Tree | None:
    """Return the `mig` block as plain values; None if the host has none."""
    block: Fragment | None = host.capabilities.get("mig")
    return None if block is None else msgspec.json.decode(msgspec.json.encode(block))


def of_file(block: Tree) -> Tree:
    """Return the configurations of the block's mig-parted file; empty if it names none. Raises NotExpressible."""
    if not (path := str(block.get("config_file", ""))):
        return {}
    try:
        read = read_parted(path)
    except (OSError, ValueError) as error:
        raise NotExpressible(f"{path} cannot be read: {error}") from error
    configs = read.get("mig-configs") if isinstance(read, dict) else None
    if not isinstance(configs, dict) or not configs:
        raise NotExpressible(f"{path} has no mig-configs")
    return {str(name): config for name, config in configs.items()}


def get_label(host: HostSpec) -> str:
    """Return the name of the host's layout in the ConfigMap, and the value of nvidia.com/mig.config."""
    block = of_host(host) or {}
    try:
        configs = of_file(block)
    except NotExpressible:
        configs = {}
    return str(block.get("selected", "")) or next(iter(configs), catalogue.LAYOUT)


def parted_configs(host: HostSpec) -> dict[str, list[Entry]]:
    """Return the content of the cluster's ConfigMap of layouts: all of the file that the spec names, or the host's own.
    Raises NotExpressible."""
    own = parted(host)
    return {**of_file(of_host(host) or {}), get_label(host): own}


def selected(block: Tree) -> list[Entry] | None:
    """Return the entries of the block's mig-parted file; None if it names none. Raises NotExpressible if it cannot be
    read."""
    path, label = str(block.get("config_file", "")), str(block.get("selected", ""))
    if not (configs := of_file(block)):
        return None
    config = configs.get(label) if label else next(iter(configs.values())) if len(configs) == 1 else None
    if not isinstance(config, list):
        raise NotExpressible(f'{path} has no layout "{label}"; it has: {", ".join(map(str, configs))}')
    return config


def parted(host: HostSpec) -> list[Entry]:
    """Return the host's layout as the entries of a mig-parted file. Raises NotExpressible."""
    block = of_host(host)
    if block is None:
        raise NotExpressible("the host has no mig block")
    taken = selected(block)
    try:  # the rules of mig report a layout that cannot be read
        mig_layout.normalize_layout(str(block["mode"]), block["layout"], taken)
    except mig_layout.LayoutError as error:
        raise NotExpressible(str(error)) from error
    if taken is not None:
        return taken
    on = block.get("mode", "enabled") == "enabled"
    if not on or not block.get("layout"):
        return [{"devices": "all", "mig-enabled": on, **({"mig-devices": {}} if on else {})}]
    made = [
        part for place, entry in enumerate(block["layout"]) for part in _list_entries(entry, f"mig.layout[{place}]")
    ]
    return made if _are_disjoint(made) else _merge_entries(made, host)


def _are_disjoint(entries: list[Entry]) -> bool:
    """Return whether no GPU can be in two entries: mig-parted stops if they differ about a GPU, in a spec the later
    entry wins."""
    indexes = [index for entry in entries if entry["devices"] != "all" for index in entry["devices"]]
    filters = [pattern for entry in entries for pattern in entry.get("device-filter", ())]
    rest = sum(entry["devices"] == "all" and "device-filter" not in entry for entry in entries)
    kinds = bool(indexes) + bool(filters) + rest
    return kinds <= 1 and len(set(indexes)) == len(indexes) and len(set(filters)) == len(filters)


def _merge_entries(entries: list[Entry], host: HostSpec) -> list[Entry]:
    """Return the entries by index, each GPU in the last one that names it. Raises NotExpressible if the number of GPUs
    is unknown."""
    gpu = find_gpu(host.gpu.model) if host.gpu else None
    if gpu is None or host.gpu is None or host.gpu.count is None:
        raise NotExpressible(
            "mig.layout names a GPU twice, and a mig-parted file may do so once: give gpu.model and gpu.count"
        )
    here = [_make_stand_in(gpu, index) for index in range(host.gpu.count)]
    taken: dict[int, list[int]] = {}
    for host_gpu in here:
        if (
            last := max((place for place, entry in enumerate(entries) if _names_gpu(entry, host_gpu)), default=None)
        ) is not None:
            taken.setdefault(last, []).append(host_gpu.index)
    bodies = ({key: value for key, value in entry.items() if key != "device-filter"} for entry in entries)
    return [{**body, "devices": taken[place]} for place, body in enumerate(bodies) if place in taken]


def _names_gpu(entry: Entry, gpu: mig_layout.Gpu) -> bool:
    filters = entry.get("device-filter")
    passed = filters is None or any(mig_layout.passes(pattern, gpu) for pattern in filters)
    return passed and (entry["devices"] == "all" or gpu.index in entry["devices"])


def _list_entries(entry: Entry, place: str) -> Iterable[Entry]:
    on = entry.get("mode", "enabled") == "enabled"
    body: Entry = {"mig-enabled": on}
    if on:
        body["mig-devices"] = _count_devices(entry.get("instances", {}), place)
    if entry["gpus"] == "all":
        yield {"devices": "all", **body}
        return
    indexes = [index for index in entry["gpus"] if isinstance(index, int)]
    if indexes:
        yield {"devices": indexes, **body}
    for name in (selector for selector in entry["gpus"] if not isinstance(selector, int)):
        gpu = find_gpu(name)
        if gpu is None:
            raise NotExpressible(f"{place}.gpus has {name}: a mig-parted file names GPUs by index or model only")
        yield {"device-filter": [device_filter(pci_id.id) for pci_id in gpu.pci_ids], "devices": "all", **body}


def device_filter(identifier: str) -> str:
    """Return `10de:2330` as a mig-parted file has it: device, then vendor."""
    vendor, _, device = identifier.partition(":")
    return f"0x{device.upper()}{vendor.upper()}"


def _count_devices(instances: Any, place: str) -> dict[str, int]:
    if isinstance(instances, dict):
        return dict(instances)
    made: dict[str, int] = {}
    for instance in instances:
        if instance.get("placement") is not None:
            raise NotExpressible(f"{place}.instances has a placement, which a mig-parted file cannot say")
        count = int(instance.get("count", 1))
        parts = instance.get("compute") or {}
        for name, number in (
            {f"{c}.{instance['profile']}": n for c, n in parts.items()} or {instance["profile"]: 1}
        ).items():
            made[name] = made.get(name, 0) + number * count
    return made


def planned(host: HostSpec) -> list[tuple[bool, tuple[str, ...]]] | None:
    """Return for each GPU of the spec whether it is in MIG mode, and the profiles of its MIG devices. None if the spec
    does not define them."""
    gpu = find_gpu(host.gpu.model) if host.gpu else None
    if gpu is None or host.gpu is None or host.gpu.count is None:
        return None
    block = of_host(host)
    if block is None:
        return [(False, ())] * host.gpu.count
    gpus = [_make_stand_in(gpu, index) for index in range(host.gpu.count)]
    try:
        entries = mig_layout.normalize_layout(str(block["mode"]), block["layout"], selected(block))
        targets = mig_layout.select_targets(entries, gpus)
    except (mig_layout.LayoutError, NotExpressible):
        return None
    return [_describe_target(targets[gpu.index]) for gpu in gpus] if len(targets) == len(gpus) else None


def somewhere(host: HostSpec) -> list[tuple[bool, tuple[str, ...]]]:
    """Return one GPU in MIG mode, if the layout has any, however many GPUs there are and whichever it names."""
    try:
        entries = parted(host)
    except NotExpressible:
        block = of_host(host) or {}
        entries = [{"mig-enabled": entry.get("mode", "enabled") == "enabled"} for entry in block.get("layout", [])]
    return [(True, ("a profile",))] if any(entry.get("mig-enabled") for entry in entries) else []


def _make_stand_in(gpu: Gpu, index: int) -> mig_layout.Gpu:
    pci = device_filter(gpu.pci_ids[0].id)
    return mig_layout.Gpu(index, "", "", gpu.key, gpu.name, pci, "", gpu.mig.capable)


def _describe_target(target: mig_layout.Target) -> tuple[bool, tuple[str, ...]]:
    names = [name for instance in target.instances for name in device_names(instance.profile, instance.compute)]
    return target.enabled, tuple(names)


def device_names(profile: str, compute: Iterable[int]) -> list[str]:
    """Return the names of the MIG devices of a GPU instance: one for each of its compute instances."""
    return [name_device(profile, size) for size in compute] or [profile]
