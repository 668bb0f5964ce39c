"""Rules for a `mig` block that hold on any host: by the catalogue, the driver's version and the other blocks."""

import re
from collections.abc import Iterable, Iterator
from typing import Any

from gpuprov.capabilities.driver import find_requested_version
from gpuprov.capabilities.mig import config_file
from gpuprov.capabilities.mig.fitting import HERE, entry_problems
from gpuprov.capabilities.mig.fragment import GpuInstances, Mig, ProfileCounts, plain_entry
from gpuprov.catalog import gpus
from gpuprov.catalog.gpus import Gpu
from gpuprov.catalog.mig import list_profiles
from gpuprov.core.safe_parse import is_whole, parse_whole
from gpuprov.hardware.mig import model_of
from gpuprov.hardware.mig.judge import of_model
from gpuprov.host_code.mig import layout as mig_layout
from gpuprov.spec.build import convert
from gpuprov.spec.model import HostSpec
from gpuprov.spec.problem import Path, Problem

_UUID = re.compile(r"GPU-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
OFF = "switch it off for these hosts: mig: false"


def rules(host_spec: HostSpec, block: Mig) -> Iterable[Problem]:
    yield from contradictions(block)
    gpu = gpus.find_gpu(host_spec.gpu.model) if host_spec.gpu else None
    shapes = list(shape_problems(block, gpu))
    yield from shapes
    if block.mode == "disabled" and not block.layout and not block.config_file:
        return
    if gpu:
        yield from hardware_problems(gpu, find_requested_version(host_spec))
        yield from fabric_problems(host_spec, gpu)
    if gpu and not gpu.mig.capable:
        return
    yield from hidden_entries(block)
    yield from selector_problems(host_spec, gpu, block)
    if not shapes:
        yield from entry_problems(host_spec, gpu, block)


def contradictions(block: Mig) -> Iterable[Problem]:
    if block.layout and block.config_file:
        message = "mig.layout and mig.config_file exclude each other: one of them says how GPUs are cut up"
        yield Problem(path=(HERE, "config_file"), message=message, fix="take one of them out")
    if block.selected and not block.config_file:
        message = f'mig.selected is "{block.selected}", and there is no mig.config_file that it could be a label of'
        yield Problem(
            path=(HERE, "selected"), message=message, fix="config_file: /path/of/config.yaml, or take selected out"
        )
    if block.mode == "disabled" and (block.layout or block.config_file):
        other = "layout" if block.layout else "config_file"
        message = f"mig.mode is disabled, and mig.{other} asks for something"
        yield Problem(
            path=(HERE, "mode"), message=message, fix=f"take mode out, or {other}; an entry has a mode of its own"
        )
    if block.mode == "enabled" and not block.layout and not block.config_file:
        message = "mig asks for MIG mode without instances: no CUDA program finds a GPU then"
        fix = "layout: [{gpus: all, instances: {PROFILE: COUNT}}]; gpuprov catalog mig lists profiles"
        yield Problem(path=(HERE,), message=message, fix=fix, severity="warning")


def hidden_entries(block: Mig) -> Iterable[Problem]:
    """Yield entries that have no effect: later ones name each of their GPUs, by the same name or by all."""
    names = [["all"] if entry.gpus == "all" else [str(name) for name in entry.gpus] for entry in block.layout]
    for number, own in enumerate(names):
        later = {name for others in names[number + 1 :] for name in others}
        if own and later and ("all" in later or set(own) <= later):
            message = (
                f"mig.layout[{number}] has no effect: later entries name its GPUs, and the last that names one wins"
            )
            fix = "take it out, or put what is for single GPUs after what is for all"
            yield Problem(path=(HERE, "layout", number), message=message, fix=fix, severity="warning")


def shape_problems(block: Mig, gpu: Gpu | None) -> Iterable[Problem]:
    """Yield what cannot be read in the layout, or in the file that replaces it."""
    for number, entry in enumerate(block.layout):
        path: Path = (HERE, "layout", number)
        kind: Any = ProfileCounts if isinstance(entry.instances, dict) else GpuInstances
        instances, ids = split_ids(entry.instances)
        _, problems = convert(instances, kind, (*path, "instances"))
        for profile_id in ids:
            message = f"mig.layout[{number}].instances: {profile_id} is an id of nvidia-smi, and no profile's name"
            problems.append(((*path, "instances"), message, explain_id(profile_id, gpu)))
        for name in named_profiles(instances):
            try:
                mig_layout.parse_profile(name)
            except mig_layout.LayoutError as error:
                fix = "gpuprov catalog mig lists profiles"
                problems.append(((*path, "instances"), f"mig.layout[{number}].instances: {error}", fix))
        yield from (Problem(path=where, message=message, fix=fix) for where, message, fix in problems)
        if not entry.gpus:
            fix = "gpus: all, or a list of indexes, PCI addresses, UUIDs and models"
            yield Problem(path=(*path, "gpus"), message=f"mig.layout[{number}].gpus is an empty list", fix=fix)
        elif not problems:
            try:
                mig_layout.normalize_layout("enabled", [plain_entry(entry)])
            except mig_layout.LayoutError as error:
                text = str(error).replace("layout[0]", f"mig.layout[{number}]", 1)
                yield Problem(path=path, message=text, fix="gpuprov explain mig.layout")
    if block.config_file:
        for trouble in config_file.read(block.config_file, block.selected).troubles:
            yield Problem(
                path=(HERE, trouble.field), message=f"mig.{trouble.field}: {trouble.message}", fix=trouble.fix
            )


def split_ids(instances: Any) -> tuple[Any, list[str]]:
    """Return the instances without those that are named by an id of `nvidia-smi mig -lgip`, and these ids."""
    ids: list[str] = []

    def is_named(item: Any) -> bool:
        text = str(item.get("profile") if isinstance(item, dict) else item)
        ids.extend([text] * is_whole(text))
        return not is_whole(text)

    if isinstance(instances, dict):
        return {name: count for name, count in instances.items() if is_named(name)}, ids
    return [item for item in instances if is_named(item)], list(dict.fromkeys(ids))


def explain_id(number: str, gpu: Gpu | None) -> str:
    """Return the name to write in place of an id: what an id means differs from GPU to GPU."""
    names = [profile.name for profile in list_profiles(gpu) if str(profile.nvsmi_id) == number] if gpu else []
    return f"its name is {names[0]}" if names else "gpuprov catalog mig lists the names and ids of each GPU"


def named_profiles(instances: Any) -> list[str]:
    """Return the texts in place of a profile's name."""
    listed = (
        instances
        if isinstance(instances, dict)
        else [instance.get("profile") for instance in instances if isinstance(instance, dict)]
    )
    return [name for name in listed if isinstance(name, str)]


def hardware_problems(gpu: Gpu, driver: str) -> Iterable[Problem]:
    """Yield problems of a GPU without MIG, and of a driver that is too old for MIG on this GPU."""
    if not gpu.mig.capable:
        severity = "warning" if gpu.mig.confidence == "unconfirmed" else "error"
        message = f"mig: {gpu.key} has no MIG"
        yield Problem(path=(HERE,), message=message, fix=OFF, severity=severity)  # type: ignore[arg-type]
    sure = gpu.mig.confidence == "confirmed"
    for message, fix in of_model(model_of(gpu), driver) if gpu.mig.capable else ():
        text = message if sure else f"{message}; that minimum is published for another machine with this GPU"
        yield Problem(path=(HERE,), message=f"mig: {text}", fix=fix, severity="error" if sure else "warning")


def fabric_problems(spec: HostSpec, gpu: Gpu) -> Iterable[Problem]:
    """Yield a problem if Fabric Manager's modes for virtual machines are combined with MIG on NVSwitches of A100; from
    H100 on they are compatible."""
    # https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide
    mode = str(getattr(spec.capabilities.get("fabric_manager"), "fabric_mode", "bare-metal"))
    if mode != "bare-metal" and gpu.nvswitch and gpu.nvswitch.generation == 2:
        message = (
            f"mig: with fabric_manager.fabric_mode {mode}, partitions of several {gpu.key} cannot be "
            "activated in MIG mode"
        )
        fix = "fabric_mode: bare-metal, or MIG on GPUs that are given out alone"
        yield Problem(path=(HERE,), message=message, fix=fix, severity="warning")


def selector_problems(spec: HostSpec, gpu: Gpu | None, block: Mig) -> Iterable[Problem]:
    """Yield names that match no GPU of these hosts, and GPUs that one entry names twice."""
    count = spec.gpu.count if spec.gpu else None
    for number, entry in enumerate(block.layout):
        for place, name in enumerate(entry.gpus if entry.gpus != "all" else ()):
            path: Path = (HERE, "layout", number, "gpus", place)
            label = f"mig.layout[{number}].gpus[{place}]"
            if name in entry.gpus[:place]:
                yield Problem(path=path, message=f"{label}: {name} is named twice", fix="take one out")
            elif isinstance(name, int):
                if count is not None and name >= count:
                    message = f"{label} is {name}, and the host has {count} GPU{'s' * (count != 1)}"
                    yield Problem(path=path, message=message, fix=f"allowed: 0 to {count - 1}, or correct gpu.count")
            elif not _is_hardware(name):
                yield from _check_model(path, label, name, gpu)
    for number, chosen in parted_indexes(block):
        if count is not None and (far := [index for index in chosen if index >= count]):
            message = (
                f"mig.selected: entry {number} names GPU {far[0]}, and the host has {count} GPU{'s' * (count != 1)}"
            )
            fix = f"allowed: 0 to {count - 1}; mig-parted passes over others"
            yield Problem(path=(HERE, "selected"), message=message, fix=fix, severity="warning")


def parted_indexes(block: Mig) -> Iterator[tuple[int, list[int]]]:
    if block.config_file:
        for number, entry in enumerate(config_file.read(block.config_file, block.selected).entries):
            if isinstance(entry["devices"], list):
                yield number, entry["devices"]


def _is_hardware(name: str) -> bool:
    """Return whether a name is a PCI address or a whole UUID, which no catalogue knows."""
    return bool(_UUID.fullmatch(name)) or mig_layout.is_address(name) is not None


def _explain_list(name: str) -> str:
    """Return how to write a range of indexes, or all GPUs; empty for another word."""
    if name.casefold() in ("all", "*"):
        return "write gpus: all, without brackets"
    if (index := parse_whole(name)) is not None:
        return f"write {index} without quotes"
    match = re.fullmatch(r"([0-9]{1,2}) ?(?:-|:|\.\.) ?([0-9]{1,2})", name)
    first, last = (int(match[1]), int(match[2])) if match else (1, 0)
    return f"write each index: [{', '.join(map(str, range(first, last + 1)))}]" if first < last else ""


def _check_model(path: Path, label: str, name: str, gpu: Gpu | None) -> Iterable[Problem]:
    known = gpus.find_gpu(name)
    if name.upper().startswith(("GPU-", "MIG-")) or _UUID.fullmatch(f"GPU-{name}"):
        message, fix = f'{label} is "{name}", which is not a UUID of a GPU', "a whole one, as nvidia-smi -L prints it"
        if _UUID.fullmatch(f"GPU-{name}"):
            fix = f'write "GPU-{name.lower()}"'
        yield Problem(path=path, message=message, fix=fix)
    elif known is None:
        near = gpus.find_nearest(name)
        fix = (
            _explain_list(name)
            or (near and f'did you mean "{near[0]}"?')
            or "an index, 0000:3b:00.0, GPU-<uuid>, or a model of gpuprov catalog gpus"
        )
        yield Problem(
            path=path, message=f'{label} is "{name}", which is not a PCI address, UUID or known model', fix=fix
        )
    elif gpu and known.key != gpu.key:
        message = f'{label} is "{name}", and the GPUs of the host are {gpu.key}'
        yield Problem(path=path, message=message, fix="correct it, or gpu.model")
