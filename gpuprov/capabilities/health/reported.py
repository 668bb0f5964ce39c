"""GPUs for the checks of what they report, and the outcome for those that report less than others."""

from collections.abc import Callable, Collection, Iterable, Sequence

import msgspec

from gpuprov.capabilities.base import Outcome, fail, not_asked, ok, skip
from gpuprov.capabilities.health.fragment import Ctx
from gpuprov.catalog.xids import Action
from gpuprov.core.sanitize import counted
from gpuprov.facts.probes.base import NotRecorded, ProbeFailed
from gpuprov.facts.probes.gpus.gpu_health import GPU_HEALTH
from gpuprov.facts.probes.gpus.gpu_settings import normalize_address
from gpuprov.facts.probes.gpus.gpu_state import GpuHealth, State

Gpus = tuple[GpuHealth, ...]
NO_BUS = "nvidia-smi -q shows no GPU; the record does not hold the PCI bus"


def shown(ctx: Ctx) -> Gpus:
    """Return the GPUs. Raises ProbeFailed if nvidia-smi shows none of those that the host has."""
    state: State = ctx.facts.get(GPU_HEALTH)
    if state.complaint and state.present:
        raise ProbeFailed(f"nvidia-smi shows no GPU: {state.complaint}", "see health.gpus")
    if not state.gpus and not state.bus:
        raise NotRecorded(NO_BUS)
    return state.gpus


def describe_gpus(rows: Sequence[tuple[GpuHealth, str]]) -> str:
    return "; ".join(f"{gpu.address} {words}" for gpu, words in rows)


def concern(outcome: Outcome, addresses: Iterable[str]) -> Outcome:
    """Return the outcome with the devices that it is about."""
    # The kernel log names them without their function.
    given = [normalize_address(address) for address in addresses if address]
    known = [address if "." in address else f"{address}.0" for address in given]
    return msgspec.structs.replace(outcome, devices=tuple(dict.fromkeys(known)))


def fail_gpus(expected: str, rows: Sequence[tuple[GpuHealth, str]], fix: str, action: Action) -> Outcome:
    """Return the failure of these GPUs."""
    outcome = fail(expected, describe_gpus(rows), fix, action=action)
    return concern(outcome, (gpu.address for gpu, _ in rows))


def select_gpus_with(gpus: Gpus, has: Callable[[GpuHealth], bool], what: str) -> tuple[Gpus, Outcome | None]:
    """Return the GPUs that have such a feature; if none has it, the outcome that it is not judged."""
    matches = tuple(gpu for gpu in gpus if has(gpu))
    if not gpus:
        return (), not_asked("no NVIDIA GPU on the PCI bus")
    return matches, None if matches else not_asked(f"{gpus[0].name or 'the GPU'} has no {what}")


def list_unread_headings(gpus: Gpus, headings: Collection[str]) -> str:
    """Return those of the headings below which a GPU's value cannot be read."""
    return ", ".join(dict.fromkeys(name for gpu in gpus for name in gpu.untold if name in headings))


def judge_rest(
    relevant: Gpus, gpus: Gpus, what: str, more: str, expected: str, headings: Collection[str] = ()
) -> Outcome:
    """Return the outcome where no GPU that has a feature is bad. Whether a model has it does not differ from GPU to
    GPU: one that says nothing of it, unlike others of its model, is not judged; nor is one of which a value below these
    headings of nvidia-smi's cannot be read."""
    if unread := [gpu.address for gpu in relevant if not set(headings).isdisjoint(gpu.untold)]:
        return skip(
            f"values of {' '.join(unread)} cannot be read: {list_unread_headings(relevant, headings)}",
            "see health.gpus",
        )
    rest = [gpu for gpu in gpus if gpu not in relevant]
    models = {gpu.name for gpu in relevant}
    if silent := [gpu.address for gpu in rest if gpu.name in models]:
        return skip(f"not reported by {' '.join(silent)}, unlike others of the same model")
    without = f"; {len(rest)} without {what}" if rest else ""
    return ok(f"{counted(len(relevant), 'GPU')}{without}{more}", expected)
