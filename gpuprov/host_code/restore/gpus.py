"""Reads and sets settings of GPUs by the names of a receipt."""

from __future__ import annotations

import re
from typing import Any, Sequence

from ..gpu_settings import act, compare
from ..gpu_settings.card import Card, read_cards
from ..gpu_settings.nvml import Nvml
from ..lasting import Lasting, Place
from .kinds import find_address


def read_gpus(settings: Sequence[Lasting]) -> dict[Place, str]:
    """Return the values of those settings whose GPU is here. Raises Failed."""
    nvml = Nvml()
    try:
        cards = {card.gpu.address: card for card in read_cards(nvml)}
    finally:
        nvml.close()
    locks = act.read_record()
    addresses = {setting.key: find_address(setting) for setting in settings}
    return {
        setting.key: describe_value(setting, cards[address], locks.get(address, {}))
        for setting in settings
        if (address := addresses[setting.key]) in cards
    }


def describe_value(setting: Lasting, card: Card, locks: compare.Locks) -> str:
    """Return the present value in the words of the check; of ECC the mode after the next boot."""
    state, name = card.state, setting.check.partition(".")[2]
    if name == "ecc":
        return state.ecc[1] if state.ecc else "no ECC mode"
    if name == "power_limit":
        return compare.format_watts(state.power)
    if name == "application_clocks":
        return compare.compare_applications(state, "default").actual
    if name == "compute_mode":
        return compare.compare_mode(state, "").actual
    spans = compare.parse_spans(setting.value)
    return ", ".join(
        f"{clock} {compare.compare_lock(state, clock, span, locks).actual}" for clock, span in spans.items()
    )


def parse_value(name: str, words: str) -> Any:
    """Return the value of a setting, as a configuration has it, from its words."""
    if name == "power_limit":
        return float(words.split(maxsplit=1)[0])
    if name == "application_clocks":
        memory, graphics = (int(number) for number in re.findall(r"\d+", words))
        return {"memory": memory, "graphics": graphics}
    return compare.parse_spans(words) if name == "locked_clocks" else words


def put_gpus(settings: Sequence[Lasting]) -> dict[Place, str]:
    """Set the values before, one kind on all GPUs at a time: a GPU that refuses one takes the others."""
    complaints: dict[Place, str] = {}
    by_check: dict[str, list[Lasting]] = {}
    for setting in settings:
        by_check.setdefault(setting.check, []).append(setting)
    for check, group in by_check.items():
        name = check.partition(".")[2]
        entries: list[Any] = [
            {"gpus": [find_address(each)], "settings": {name: parse_value(name, each.before)}} for each in group
        ]
        answer = act.run({"all": {}, "per_gpu": entries}, change=True, partly=True)
        for each in group:
            own = [text for text in answer.problems if not text.startswith("GPU ") or find_address(each) in text]
            complaints[each.key] = "; ".join(own)
    return complaints
