"""Judge all GPUs of a host, then set differing settings, and read them back. A GPU is never reset."""

from __future__ import annotations

import json
import os
from typing import Any, Dict, Mapping, NamedTuple, Sequence

from . import compare, plan
from .card import Card, list_graphics_clocks, list_memory_clocks, read_cards
from .limits import Clocks
from .nvml import NO_PERMISSION, Failed, Nvml
from .selection import Config, SelectionError, select_targets

# The same of one GPU as `compare.Locks`, to be added to.
Locks = Dict[str, compare.Span]
RECORD = "/run/gpuprov/gpu_settings.json"
MODULE = "/sys/module/nvidia"


class Answer(NamedTuple):
    """`driver`: whether a driver answers. `steps`: the changes made or pending; `changed`: whether there are any.
    `waiting`: GPUs whose ECC mode changes at the next boot."""

    driver: bool = True
    steps: Sequence[str] = ()
    before: str = ""
    after: str = ""
    problems: Sequence[str] = ()
    waiting: Sequence[str] = ()
    changed: bool = False


def identify_load() -> int:
    """Return a value that differs for each load of the driver's module: the kernel creates a new folder each time."""
    try:
        return os.stat(MODULE).st_ino
    except OSError:
        return 0


def read_record(path: str = "") -> dict[str, Locks]:
    """Return the clocks locked on each GPU since the driver was loaded, by PCI address: NVML does not report them."""
    try:
        with open(path or RECORD, encoding="utf-8") as file:
            record = json.load(file)
        return dict(record["locks"]) if record["module"] == identify_load() else {}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def write_record(locks: Mapping[str, Locks], path: str = "") -> None:
    path = path or RECORD
    os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
    partial = f"{path}.new"
    with open(partial, "w", encoding="utf-8") as file:
        json.dump({"version": 1, "module": identify_load(), "locks": locks}, file, sort_keys=True)
        file.write("\n")
    os.replace(partial, path)


def run(config: Config, *, change: bool, partly: bool = False) -> Answer:
    """Apply the settings to the GPUs. If there is a problem nothing is changed, or, with `partly`, GPUs without a
    problem are."""
    try:
        nvml = Nvml()
    except Failed as failed:
        return Answer(driver=False, problems=[f"NVML does not answer: {failed}"])
    try:
        return judge_settings(nvml, config, change, partly)
    except Failed as failed:
        return Answer(problems=[f"a GPU does not answer: {failed}; dmesg | grep -E 'NVRM|Xid'"])
    finally:
        nvml.close()


def judge_settings(nvml: Nvml, config: Config, change: bool, partly: bool) -> Answer:
    all_cards = read_cards(nvml)
    try:
        desired = select_targets(config, [card.gpu for card in all_cards])
    except SelectionError as error:
        return Answer(problems=[f"gpu_settings.per_gpu: {error}"])
    locks = read_record()
    needs = [
        plan.needs(card, desired[card.gpu.number], locks.get(card.gpu.address, {}), make_clocks_reader(nvml, card))
        for card in all_cards
        if card.gpu.number in desired
    ]
    problems = [text for need in needs for text in need.problems]
    able = [need for need in needs if not need.problems]
    change = change and (partly or not problems)
    if change:
        problems += [text for need in able for text in _carry_out(nvml, need, locks)]
    return make_answer(needs, problems)._replace(
        changed=change and any(not step.again for need in able for step in need.steps)
    )


def make_clocks_reader(nvml: Nvml, card: Card) -> Any:
    return lambda: Clocks(
        list_memory_clocks(nvml, card.handle), lambda memory: list_graphics_clocks(nvml, card.handle, memory)
    )


def make_answer(needs: Sequence[plan.Needs], problems: Sequence[str]) -> Answer:
    rows = [(need.card.gpu, step) for need in needs for step in need.steps if not step.again]
    return Answer(
        steps=[f"{gpu}: {step.what}: {step.before} -> {step.after}" for gpu, step in rows],
        before="".join(f"{gpu}: {step.what}: {step.before}\n" for gpu, step in rows),
        after="".join(f"{gpu}: {step.what}: {step.after}\n" for gpu, step in rows),
        problems=problems,
        waiting=[str(need.card.gpu) for need in needs if need.waits and not need.problems],
    )


def _carry_out(nvml: Nvml, need: plan.Needs, locks: dict[str, Locks]) -> list[str]:
    """Change one GPU; return the failures, and the settings that differ afterwards."""
    card, wrong = need.card, []
    for step in need.steps:
        try:
            nvml.call(step.call[0], card.handle, *step.call[1:])
        except Failed as failed:
            root = "; root may" if failed.number == NO_PERMISSION else ""
            wrong.append(f"{card.gpu}: {step.what} {step.after}: {failed}{root}")
            continue
        name, how = step.lock
        if name and not step.again:
            locks.setdefault(card.gpu.address, {})[name] = how
            write_record(locks)
    missed = list_unset(nvml, need) if need.steps and not wrong else []
    return wrong + [f"{card.gpu}: {text} after it was set: something else sets it too" for text in missed]


def list_unset(nvml: Nvml, need: plan.Needs) -> list[str]:
    """List the settings that do not read back as they were set. Locked clocks cannot be read."""
    now: Card | None = next((card for card in read_cards(nvml) if card.gpu == need.card.gpu), None)
    if now is None:
        return ["the GPU is gone"]
    state = now.state
    shown = {
        "compute mode": now.mode,
        "power limit": compare.format_watts(state.power),
        "application clocks": compare.format_pair(state.applications) if state.applications else "none",
        "ECC mode after the next boot": state.ecc[1] if state.ecc else "none",
    }
    return [
        f"{step.what} is {shown[step.what]}, not {step.after},"
        for step in need.steps
        if step.what in shown and shown[step.what] != step.after
    ]
