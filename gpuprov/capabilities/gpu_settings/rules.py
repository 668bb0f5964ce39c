"""Rules for a `gpu_settings` block that hold on any host: by the catalogue, the driver's branch and the other
blocks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from gpuprov.capabilities.driver import find_requested_branch
from gpuprov.capabilities.gpu_settings.fragment import HERE, Entry, GpuSettings, Settings, asks, settings
from gpuprov.catalog import gpu_settings as catalogue
from gpuprov.catalog import gpus
from gpuprov.catalog.gpus import Gpu
from gpuprov.host_code.gpu_settings.limits import is_within
from gpuprov.host_code.gpu_settings.selection import normalize_name
from gpuprov.spec.model import HostSpec
from gpuprov.spec.problem import Path, Problem, report_under

# Settings that the driver forgets when it releases the GPU.
VOLATILE = ("power_limit", "application_clocks", "locked_clocks", "compute_mode")


def rules(host: HostSpec, block: GpuSettings) -> Iterable[Problem]:
    yield from selectors(host, block)
    yield from hidden_entries(block)
    for path, entry in places(block):
        yield from clocks(path, entry)
        yield from hardware(path, entry, host)
        yield from others(path, entry, host)
    yield from confidential(host, block)
    if block == GpuSettings():
        message = f"{HERE} asks for nothing: all of it is keep"
        yield Problem(path=(HERE,), message=message, fix="name a setting, or leave the block out", severity="warning")
    elif any(asks(block, name) for name in VOLATILE) and "persistence" not in host.capabilities:
        message = f"{HERE} without persistence: the driver forgets limits and clocks when nothing uses a GPU"
        yield Problem(path=(HERE,), message=message, fix="add persistence: {}", severity="warning")


def places(block: GpuSettings) -> Iterator[tuple[Path, Settings]]:
    """Yield the places of settings: the block itself, and each entry."""
    yield (HERE,), block
    yield from (((HERE, "per_gpu", number), entry) for number, entry in enumerate(block.per_gpu))


problem = report_under()


def selectors(host: HostSpec, block: GpuSettings) -> Iterable[Problem]:
    """Yield entries that name no GPU, a GPU twice, a GPU that the host does not have, or that set nothing."""
    count = host.gpu.count if host.gpu else None
    for number, entry in enumerate(block.per_gpu):
        here: Path = (HERE, "per_gpu", number)
        if not entry.gpus:
            yield problem((*here, "gpus"), " is an empty list", "gpus: all, or a list of indexes, addresses and UUIDs")
        if not settings(entry):
            yield problem(here, " asks for nothing", "name a setting, or take the entry out", warning=True)
        names = () if entry.gpus == "all" else entry.gpus
        for place, name in enumerate(names):
            path: Path = (*here, "gpus", place)
            if normalize_name(name) in [normalize_name(name) for name in names[:place]]:
                yield problem(path, f": {name} is named twice", "take one out")
            if isinstance(name, int) and count is not None and name >= count:
                fix = f"allowed: 0 to {count - 1}, or correct gpu.count"
                yield problem(path, f" is {name}, and the host has {count} GPU{'s' * (count != 1)}", fix)


def hidden_entries(block: GpuSettings) -> Iterable[Problem]:
    """Yield settings without effect: later entries say the same setting of each of their GPUs."""
    entries = [dict(settings(entry)) for entry in block.per_gpu]
    chosen = [_select_gpus(entry) for entry in block.per_gpu]
    for number, own in enumerate(chosen):
        for name, value in entries[number].items():
            covering = [n for n in range(number + 1, len(entries)) if covers(entries[n].get(name), value)]
            later = {gpu for n in covering for gpu in chosen[n]}
            if own and later and ("all" in later or own <= later):
                message = f".{name} has no effect: later entries say it of the same GPUs, and the last one counts"
                fix = "take it out, or put what is for single GPUs after what is for all"
                yield problem((HERE, "per_gpu", number), message, fix, warning=True)


def covers(later: Any, earlier: Any) -> bool:
    """Return whether a setting replaces an earlier one wholly; locked clocks are settings by themselves."""
    if isinstance(later, dict) and isinstance(earlier, dict):
        return set(earlier) <= set(later)
    return later is not None


def clocks(path: Path, entry: Settings) -> Iterable[Problem]:
    """Yield problems of ranges, and of application clocks beside locked ones, which supersede them."""
    requested = settings(entry)
    locks = requested.get("locked_clocks", {})
    for name, span in locks.items():
        if span != "default" and span[0] > span[1]:
            fix = "write [least, most]"
            yield problem((*path, "locked_clocks", name), f" is {span}: the least is above the most", fix)
    ranges = [name for name, span in locks.items() if span != "default"]
    if ranges and isinstance(requested.get("application_clocks"), dict):
        message = f" and locked_clocks.{ranges[0]} exclude each other: locked clocks supersede application clocks"
        yield problem((*path, "application_clocks"), message, "take one of the two out; application_clocks: default")


def hardware(path: Path, entry: Settings, host: HostSpec) -> Iterable[Problem]:
    """Yield settings that the GPU model and the driver's branch do not support."""
    requested = settings(entry)
    gpu = gpus.find_gpu(host.gpu.model) if host.gpu else None
    yield from _check_power(path, requested.get("power_limit"), gpu)
    if "ecc" in requested and gpu and (why := catalogue.explain_missing_ecc(gpu)):
        yield problem((*path, "ecc"), f" is {requested['ecc']}: {why}", "leave ecc out, or correct gpu.model")
    for name in requested.get("locked_clocks", {}):
        if gpu and (why := catalogue.explain_missing_lock(gpu, name)):
            yield problem((*path, "locked_clocks", name), f": {why}", "leave it out, or correct gpu.model")
    branch = find_requested_branch(host)
    if requested.get("application_clocks", "default") != "default" and branch >= catalogue.DEPRECATED_SINCE:
        message = f": NVIDIA has deprecated application clocks, and driver branch {branch} may not have them"
        yield problem((*path, "application_clocks"), message, "locked_clocks in their place", warning=True)


def _check_power(path: Path, limit: Any, gpu: Gpu | None) -> Iterable[Problem]:
    known = catalogue.find_power(gpu) if gpu else None
    if not isinstance(limit, int) or not gpu or not known or is_within(limit, (known.least, known.most)):
        return
    fix = f"allowed: {known.least} to {known.most} W, or default, which is {known.default} W"
    yield problem((*path, "power_limit"), f" is {limit} W, which a {gpu.key} does not take", fix)


def others(path: Path, entry: Settings, host: HostSpec) -> Iterable[Problem]:
    """Yield settings that another block owns, or that the GPU's host keeps for itself."""
    requested = settings(entry)
    if "vgpu_guest" in host.capabilities:
        for name in ("power_limit", "application_clocks", "locked_clocks"):
            if name in requested:
                message = ": a vGPU has none of its own; the hypervisor's GPU has it"
                yield problem((*path, name), message, "take it out of this host's spec")
    mode = requested.get("compute_mode")
    chosen = _select_gpus(entry)
    if mode is None:
        return
    by_mps = _list_mps_gpus(host)
    if by_mps and (taken := _describe_overlap(chosen, by_mps)):
        message = f" is {mode}, and mps sets the compute mode of {taken}"
        yield problem((*path, "compute_mode"), message, "take it out here; mps.compute_mode says the same there")
    if mode != "default" and (taken := _describe_overlap(chosen, _list_mig_gpus(host))):
        message = f" is {mode}, and mig puts {taken} into MIG mode, in which compute mode is default"
        yield problem((*path, "compute_mode"), message, "take it out, or name GPUs without MIG in per_gpu")


def _select_gpus(entry: Settings) -> set[str]:
    if not isinstance(entry, Entry) or entry.gpus == "all":
        return {"all"}
    return {normalize_name(name) for name in entry.gpus}


def _describe_overlap(chosen: set[str], taken: set[str]) -> str:
    """Return the overlap of both, in words; `all` overlaps with anything."""
    if not taken:
        return ""
    if "all" in taken:
        return "every GPU"
    both = taken if "all" in chosen else chosen & taken
    return f"GPU {', '.join(sorted(both))}" if both else ""


def _list_mps_gpus(host: HostSpec) -> set[str]:
    """Return the GPUs with an MPS daemon."""
    block: Any = host.capabilities.get("mps")
    if block is None or block.scope == "none":
        return set()
    if block.scope != "groups":
        return {"all"}
    return {normalize_name(name) for group in block.groups for name in group.gpus}


def _list_mig_gpus(host: HostSpec) -> set[str]:
    """Return the GPUs that the block `mig` puts into MIG mode; those of a file and of models are not known here."""
    block: Any = host.capabilities.get("mig")
    if block is None or block.mode == "disabled" or block.config_file:
        return set()
    if not block.layout:
        return {"all"}
    on: set[str] = set()
    for entry in block.layout:
        names = {"all"} if entry.gpus == "all" else {normalize_name(name) for name in entry.gpus}
        if entry.mode == "enabled":
            on |= names
        else:
            on = set() if "all" in names else on - names
    return on


def confidential(host: HostSpec, block: GpuSettings) -> Iterable[Problem]:
    """Yield a problem of confidential computing on GPUs before Hopper."""
    gpu = gpus.find_gpu(host.gpu.model) if host.gpu else None
    mode = block.confidential_computing
    if gpu and mode not in ("keep", "disabled") and gpu.arch in catalogue.BEFORE_CONFIDENTIAL:
        message = f" is {mode}, and {gpu.key} ({gpu.arch}) has no confidential computing"
        fix = "take it out, or correct gpu.model; Hopper and newer have it"
        yield problem((HERE, "confidential_computing"), message, fix)
