"""Rules for `mps` that hold on any host: groups, MIG, driver branch, GPU model, client limits, environments of
clients."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from gpuprov.capabilities.driver import find_requested_branch
from gpuprov.capabilities.mps.fragment import Mps, canonical, daemon_pattern, group_names
from gpuprov.catalog import gpus
from gpuprov.catalog import mps as catalogue
from gpuprov.core.safe_parse import is_whole
from gpuprov.core.sanitize import counted
from gpuprov.spec.model import HostSpec
from gpuprov.spec.problem import Path, Problem, report_under

HERE = "mps"


problem = report_under(HERE)


def rules(host: HostSpec, block: Mps) -> Iterable[Problem]:
    """Yield every problem of the block on this host."""
    yield from grouping(host, block)
    yield from beside_mig(host, block)
    yield from features(host, block)
    yield from limits(host, block)
    yield from environments(host, block)


def grouping(host: HostSpec, block: Mps) -> Iterable[Problem]:
    """Yield problems of groups: they go with scope groups, do not overlap, and name GPUs that the host has."""
    if block.scope == "groups" and not block.groups:
        yield problem(("groups",), " is empty, and scope is groups", "groups: [{gpus: [0, 1]}, {gpus: [2, 3]}]")
    if block.groups and block.scope != "groups":
        yield problem(("groups",), f" has no effect with scope {block.scope}", "scope: groups, or leave groups out")
    names = group_names(block)
    seen: dict[str, str] = {}
    count = host.gpu.count if host.gpu else None
    for number, (name, group) in enumerate(zip(names, block.groups, strict=True)):
        if name in names[:number]:
            yield problem(("groups", number, "name"), f' is "{name}" again', "each group has a name of its own")
        for place, selector in enumerate(group.gpus):
            key, path = canonical(selector), ("groups", number, "gpus", place)
            if key in seen:
                yield problem(
                    path, f" is {selector}, which {seen[key]} has already", "a GPU has one daemon: take it out of one"
                )
            seen.setdefault(key, name)
            yield from unknown_index(path, key, count)


def unknown_index(path: Path, selector: str, count: int | None) -> Iterable[Problem]:
    """Yield a problem for an index beyond the last GPU of the spec."""
    if is_whole(selector) and count is not None and int(selector) >= count:
        yield problem(path, f" is {selector}, and the host has {counted(count, 'GPU')}", f"allowed: 0 to {count - 1}")


def beside_mig(host: HostSpec, block: Mps) -> Iterable[Problem]:
    """Yield problems with MIG: its devices have daemons of their own, in compute mode DEFAULT."""
    if block.scope == "mig":
        on = mig_indexes(host)
        if not on:
            message = "is mig, and the host has no MIG devices by its spec"
            yield problem("scope", message, "add mig with a layout, or scope: gpu")
        if block.compute_mode == "exclusive_process":
            fix = "leave compute_mode out: it is default there"
            yield problem(("compute_mode",), " is exclusive_process, which a GPU in MIG mode cannot be in", fix)
        for key in block.pinned_memory_limit:
            if key != "all":
                reason = f" names GPU {key}, and daemons of scope mig have MIG devices"
                yield problem(("pinned_memory_limit", key), reason, "all: one limit for each MIG device")
        return
    taken = mig_indexes(host)
    if block.scope in ("host", "gpu") and taken:
        fix = "scope: mig for a daemon on each MIG device, or scope: groups with the GPUs that are left"
        message = f"is {block.scope}, and mig puts {('every GPU' if 'all' in taken else 'GPUs')} into MIG mode"
        yield problem("scope", message, fix)
    for number, group in enumerate(block.groups if block.scope == "groups" else ()):
        for place, selector in enumerate(group.gpus):
            if "all" in taken or canonical(selector) in taken:
                path = ("groups", number, "gpus", place)
                yield problem(path, f" is {selector}, which mig puts into MIG mode", "scope: mig, or take it out")


def mig_indexes(host: HostSpec) -> set[str]:
    """Return selectors of the GPUs that the block mig puts into MIG mode: `all`, or each as it is written; for a file
    only `all`."""
    block: Any = host.capabilities.get("mig")
    if block is None or block.mode == "disabled":
        return set()
    if block.config_file:
        return {"?"}
    on: set[str] = set()
    for entry in block.layout:
        chosen = {"all"} if entry.gpus == "all" else {canonical(gpu) for gpu in entry.gpus}
        if entry.mode == "enabled":
            on |= chosen
        else:
            on = set() if "all" in chosen else on - chosen
    return on if block.layout else {"all"}


def features(host: HostSpec, block: Mps) -> Iterable[Problem]:
    """Yield features that the driver branch or the GPU model lacks."""
    branch, gpu = find_requested_branch(host), gpus.find_gpu(host.gpu.model) if host.gpu else None
    if block.protocol == "v3" and (why := catalogue.explain_missing_feature("v3", branch, gpu)):
        yield problem(("protocol",), f" is v3: {why}", "protocol: v2, or a newer nvidia_driver.version")
    limits: tuple[tuple[catalogue.Feature, str, bool], ...] = (
        ("thread_percentage", "active_thread_percentage", block.active_thread_percentage != 100),
        ("memory_limit", "pinned_memory_limit", bool(block.pinned_memory_limit)),
    )
    for feature, field, requested in limits:
        if requested and (why := catalogue.explain_missing_feature(feature, branch, gpu)):
            yield problem((field,), f" is set: {why}", f"leave {field} out: MPS has no limits there")
    if not block.static_partitions:
        return
    here = ("static_partitions",)
    if why := catalogue.explain_missing_feature("static_partitions", branch, gpu):
        yield problem(here, f": {why}", "active_thread_percentage in their place, or a newer nvidia_driver.version")
    most, each = (catalogue.compute_most_sms(gpu), catalogue.find_chunk_sms(gpu)) if gpu else (0, 0)
    if gpu and most and (sms := sum(block.static_partitions) * each) > most:
        message = f" asks for {sms} SMs, {each} a chunk, and {gpu.key} has at most {most}"
        yield problem(here, message, f"at most {most // each} chunks in all")
    if block.active_thread_percentage != 100:
        message = f" is {block.active_thread_percentage}, which has no effect beside static_partitions"
        yield problem(("active_thread_percentage",), message, "leave one of the two out")
    if block.scope in ("host", "mig") or any(len(group.gpus) > 1 for group in block.groups):
        message = " goes with daemons of one whole GPU each: a partition belongs to one GPU"
        yield problem(here, message, "scope: gpu, or groups of one GPU")


def limits(host: HostSpec, block: Mps) -> Iterable[Problem]:
    """Yield problems of memory limits by GPU, and of the number of clients that a device takes."""
    count = host.gpu.count if host.gpu else None
    gpu = gpus.find_gpu(host.gpu.model) if host.gpu else None
    memory = max(gpu.memory_gb, default=0) if gpu else 0
    for key, value in block.pinned_memory_limit.items():
        path = ("pinned_memory_limit", key)
        if block.protocol == "v3" and key != "all":
            yield problem(
                path, f" names GPU {key}, and protocol v3 has one limit for a daemon's GPUs", "all, or protocol: v2"
            )
        yield from unknown_index(path, canonical(key) if key != "all" else key, count)
        size = int(value[:-1]) / (1 if value.endswith("G") else 1024)
        if gpu and memory and size > memory:
            yield problem(path, f" is {value}, more than the {memory} GB of {gpu.key}", f"{memory}G or less")
    branch = find_requested_branch(host)
    limit = catalogue.find_client_limit(gpu, branch)
    if block.clients > limit:
        known = [f"driver branch {branch}"] if branch else []
        what = " and ".join([*known, *([f"a {gpu.key}"] if gpu else [])]) or "any driver"
        fix = f"allowed: {limit} or fewer" + (", 60 from branch 590 on" if limit == 48 else "")
        yield problem(("clients",), f" is {block.clients}, and a device takes {limit} with {what}", fix)
    if block.scope == "mig" and block.clients and (slices := smallest(host)):
        share = catalogue.compute_mig_share(limit, slices)
        if share < block.clients <= limit:
            fix = "fewer clients, or larger MIG devices; NVIDIA gives no table of it"
            message = f"is {block.clients}, and MIG devices of {slices} compute slices take about {share} of {limit}"
            yield problem("clients", message, fix, warning=True)


def smallest(host: HostSpec) -> int:
    """Return the fewest compute slices of a MIG device in the spec's layout; 0 if it names none."""
    numbers = []
    for entry in getattr(host.capabilities.get("mig"), "layout", ()):
        instances: Any = entry.instances
        for name in instances if isinstance(instances, dict) else [instance.profile for instance in instances]:
            if match := re.match(r"(?:(\d+)c\.)?(\d+)g\.", name):
                numbers.append(int(match[1] or match[2]))
    return min(numbers, default=0)


def environments(host: HostSpec, block: Mps) -> Iterable[Problem]:
    """Yield problems of clients' environments: each names an existing daemon, and only one."""
    several = block.scope not in ("host", "none") and not (block.scope == "groups" and len(block.groups) == 1)
    if block.profile and (several or block.static_partitions):
        message = " is true, and login shells cannot tell which of several daemons or partitions is theirs"
        yield problem(("profile",), message, "scope: host, or units in place of profile")
    pattern = daemon_pattern(block, host.gpu.count if host.gpu else None)
    for unit, name in block.units.items():
        path = ("units", unit)
        if not pattern or not re.fullmatch(pattern, name):
            allowed = {
                "host": "host",
                "gpu": "gpu0, gpu1 ...",
                "mig": "gpu0-mig0 ...: GPU and first memory slice",
                "groups": ", ".join(group_names(block)),
                "none": "none with scope none",
            }[block.scope]
            extra = "; a partition as gpu0-0" if block.static_partitions else ""
            yield problem(path, f' is "{name}", and there is no such daemon', f"allowed: {allowed}{extra}")
            continue
        partition = re.fullmatch(r".*-([0-9]+)", name) if block.static_partitions else None
        if block.static_partitions and not partition:
            yield problem(path, f' is "{name}", and with static_partitions a client has to have one', f"{name}-0")
        elif partition and int(partition[1]) >= len(block.static_partitions):
            message = f' is "{name}", and there are {len(block.static_partitions)} partitions'
            yield problem(path, message, f"allowed: 0 to {len(block.static_partitions) - 1} at the end")
