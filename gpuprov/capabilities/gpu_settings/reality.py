"""Settings of a host's GPUs that differ from the GPUs' defaults, written as a `gpu_settings` block."""

from __future__ import annotations

from gpuprov.capabilities.gpu_settings.fragment import GpuSettings
from gpuprov.core import safe_parse
from gpuprov.facts.probes.base import Facts
from gpuprov.facts.probes.gpus import gpu_settings as probe
from gpuprov.facts.probes.gpus import mps
from gpuprov.host_code.gpu_settings.compare import Locks, Settings, Span
from gpuprov.spec.build import convert
from gpuprov.spec.model import Fragment

PROBES = (probe.SETTINGS, probe.KEPT, mps.MPS)


def export(facts: Facts) -> Fragment | None:
    """Return the block; None if every GPU has its default settings. Settings that all GPUs share are written once."""
    state, boot = facts.get(probe.SETTINGS), facts.get(probe.KEPT)
    shared = any(on for _, on in facts.get(mps.MPS).units.values())
    kept = _is_kept(boot)
    rows = [_read_settings(gpu, boot.locks.get(gpu.address, {}), kept, shared) for gpu in state.gpus]
    if not any(rows):
        return None
    common = {key: value for key, value in rows[0].items() if all(row.get(key) == value for row in rows)}
    rest = [{key: value for key, value in row.items() if key not in common} for row in rows]
    groups: dict[str, list[int]] = {}
    for number, row in enumerate(rest):
        if row:
            groups.setdefault(repr(sorted(row.items())), []).append(number)
    entries = [{"gpus": numbers, **rest[numbers[0]]} for numbers in groups.values()]
    block, _ = convert({**common, **({"per_gpu": entries} if entries else {})}, GpuSettings)
    return block if isinstance(block, GpuSettings) else None


def _is_kept(boot: probe.Kept) -> bool:
    """Return whether gpuprov's unit keeps ECC modes, so that a default mode belongs into the block, too."""
    try:
        kept = safe_parse.parse_json(boot.text) if boot.text and boot.enabled else {}
    except ValueError:
        return False
    return isinstance(kept, dict) and '"ecc"' in boot.text


def _read_settings(gpu: probe.GpuSettings, locks: Locks, kept: bool, shared: bool) -> Settings:
    values: Settings = {}
    if gpu.ecc_pending and (kept or gpu.ecc_pending == "disabled"):
        values["ecc"] = gpu.ecc_pending
    if gpu.power is not None and gpu.power != gpu.power_default:
        values["power_limit"] = round(gpu.power)
    memory, graphics = gpu.application_memory, gpu.application_graphics
    if memory and graphics and (memory, graphics) != (gpu.default_memory, gpu.default_graphics):
        values["application_clocks"] = {"memory": memory, "graphics": graphics}
    ranges: dict[str, Span] = {name: lock for name, lock in locks.items() if lock != "default"}
    if ranges:
        values["locked_clocks"] = ranges
    if gpu.compute_mode in ("exclusive_process", "prohibited") and not shared:
        values["compute_mode"] = gpu.compute_mode
    return values
