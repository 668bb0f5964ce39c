"""Puts settings back where they still have the value that gpuprov gave them, and reads them again."""

from __future__ import annotations

import json
import sys
from typing import Callable, Dict, Mapping, NamedTuple, Sequence

from ..at_boot.program import Refused
from ..gpu_settings.nvml import Failed
from ..lasting import Lasting, Place, format_setting, parse_settings
from . import devices, gpus, kernel
from .kinds import ALREADY, explain_change, explain_stay


class Way(NamedTuple):
    """Functions that read settings, and set them to their values before; `put` returns the errors."""

    read: Callable[[Sequence[Lasting]], Mapping[Place, str]]
    put: Callable[[Sequence[Lasting]], Mapping[Place, str]]


# Keys: the capability of a check.
WAYS = {
    "kernel": Way(kernel.read_files, kernel.put_files),
    "pcie": Way(devices.read_registers, devices.put_registers),
    "rdma": Way(devices.read_ports, devices.put_ports),
    "gpu_settings": Way(gpus.read_gpus, gpus.put_gpus),
}
ERRORS = (Refused, Failed, OSError, ValueError)
Reasons = Dict[Lasting, str]


class Answer(NamedTuple):
    """`restored`: settings that have their values before again, or would get them. `left`: why others are left as they
    are for good; `failed`: why others could not be read, or set."""

    restored: list[Lasting]
    left: Reasons
    failed: Reasons


def restore(settings: Sequence[Lasting], *, change: bool) -> Answer:
    """Put settings back. change: otherwise only say what would be done."""
    answer = Answer([], {setting: why for setting in settings if (why := explain_stay(setting))}, {})
    able: dict[str, list[Lasting]] = {}
    for setting in settings:
        if setting not in answer.left:
            able.setdefault(setting.check.partition(".")[0], []).append(setting)
    for capability, group in able.items():
        _restore_group(WAYS[capability], group, answer, change)
    return answer


def _restore_group(way: Way, group: Sequence[Lasting], answer: Answer, change: bool) -> None:
    values, lacking = _read(way, group)
    answer.failed.update(lacking)
    present = [setting for setting in group if setting.key in values]
    changed = {setting: why for setting in present if (why := explain_change(setting, values[setting.key]))}
    answer.left.update(changed)
    pending = [setting for setting in present if setting not in changed]
    if not (pending and change):
        answer.restored.extend(pending)
        return
    try:
        complaints = way.put(pending)
    except ERRORS as error:
        complaints = {setting.key: str(error) for setting in pending}
    values, lacking = _read(way, pending)
    answer.failed.update(lacking)
    for setting in pending:
        now = values.get(setting.key)
        if now == setting.before:
            answer.restored.append(setting)
        elif now is not None:
            why = complaints.get(setting.key) or "nothing refused it"
            answer.failed[setting] = f"it is {now}, not {setting.before}: {why}"


def _read(way: Way, group: Sequence[Lasting]) -> tuple[Mapping[Place, str], Reasons]:
    """Return the values, and why others cannot be read."""
    try:
        values = {place: " ".join(value.split()) for place, value in way.read(group).items()}
    except ERRORS as error:
        return {}, dict.fromkeys(group, f"it cannot be read: {error}")
    return values, {setting: "it cannot be read: the host has none" for setting in group if setting.key not in values}


def describe_left(answer: Answer) -> list[str]:
    """Describe in a line each what was not put back; what has its value before anyway is no news."""
    reasons = {**answer.left, **answer.failed}
    lines = [f"{setting.name} = {setting.value}: {why}" for setting, why in reasons.items() if why != ALREADY]
    return list(dict.fromkeys(lines))


def main() -> None:
    """Tell a plan which settings would not be put back, as a program that changes nothing: a request as JSON on standard
    input, the answer as one line of JSON, with `stays`: the reason by the line of a setting."""
    request = json.load(sys.stdin)
    answer = restore(list(parse_settings(request["settings"])), change=False)
    stays = {format_setting(setting): why for setting, why in {**answer.left, **answer.failed}.items()}
    print(json.dumps({"stays": stays}))


if __name__ == "__main__":
    main()
