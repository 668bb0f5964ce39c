"""Comparison of GPUs, as they are or as a spec wants them, with the node's strategy: one rule for `check` and for
`verify`."""

from collections.abc import Sequence

from gpuprov.capabilities.kubernetes.fragment import Kubernetes, get_plugin, get_strategy
from gpuprov.capabilities.kubernetes.layout import device_names
from gpuprov.core.sanitize import counted
from gpuprov.facts.probes.gpus.mig import MigState

# A GPU: whether it is in MIG mode, and the profiles of its MIG devices.
Seen = tuple[bool, tuple[str, ...]]


def seen(state: MigState) -> list[Seen]:
    """Return the GPUs of a host."""
    return [
        (
            gpu.current,
            tuple(
                name
                for instance in gpu.instances
                if instance.compute
                for name in device_names(instance.profile, [part.slices for part in instance.compute])
            ),
        )
        for gpu in state.gpus
    ]


def misfit(block: Kubernetes, gpus: Sequence[Seen]) -> tuple[str, str]:
    """Return why these GPUs do not suit the node's strategy, and the fix; empty if they do."""
    on = [index for index, (enabled, _) in enumerate(gpus) if enabled]
    if not on:
        return "", ""
    named = f"GPU {on[0]} is in MIG mode"
    if get_strategy(block) == "dra":
        empty = [index for index in on if not gpus[index][1]]
        why = (
            f"GPU {empty[0]} is in MIG mode without MIG devices, and DRA offers neither it nor parts of it"
            if empty
            else ""
        )
        return why, EMPTY.partition(";")[0] if empty else ""
    if get_strategy(block) == "gpushare":
        return f"{named}, which gpushare does not know", "plugin: nvidia, or mig.mode: disabled"
    if get_strategy(block) == "hami":
        if block.hami.mig_strategy == "none" and block.hami.mode != "mig":
            return f"{named}, and hami.mig_strategy none gives no MIG devices out", "hami.mig_strategy: mixed"
        return "", ""
    own = get_plugin(block)
    if own.sharing.mps.resources:
        return (
            f"{named}, where the device plugin's MPS does not work",
            "time_slicing in place of mps, or mig.mode: disabled",
        )
    if own.mig_strategy == "none":
        return (
            f"{named}, which strategy none offers as a whole GPU that no program can use",
            "mig_strategy: single or mixed",
        )
    if own.mig_strategy == "single":
        return _explain_unfit_single(gpus, on)
    return "", ""


def _explain_unfit_single(gpus: Sequence[Seen], on: Sequence[int]) -> tuple[str, str]:
    """Return why the GPUs do not suit strategy single, which needs every GPU in MIG mode, none empty, and one
    profile."""
    if off := [index for index in range(len(gpus)) if index not in on]:
        return f"GPU {on[0]} is in MIG mode and GPU {off[0]} is not: strategy single wants all or none", MIXED
    if empty := [index for index in on if not gpus[index][1]]:
        return f"GPU {empty[0]} is in MIG mode without MIG devices, on which strategy single fails", EMPTY
    profiles = sorted({profile for _, names in gpus for profile in names})
    if len(profiles) > 1:
        return (
            f"MIG devices of {counted(len(profiles), 'profile')} ({', '.join(profiles)}): strategy single wants one",
            MIXED,
        )
    return "", ""


MIXED = "mig_strategy: mixed, or the same layout on all GPUs"
EMPTY = "mig.layout: give it instances, then gpuprov apply; mig_strategy: mixed leaves it out"
