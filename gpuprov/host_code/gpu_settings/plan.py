"""The changes that bring a GPU to its settings, and the reasons why they are impossible. Changes nothing."""

from __future__ import annotations

from typing import Any, Callable, Mapping, NamedTuple, Sequence

from .card import MODES, Card
from .compare import (
    Locks,
    compare_applications,
    compare_ecc,
    compare_lock,
    compare_mode,
    compare_power,
    format_span,
    format_watts,
)
from .nvml import UINT

LOCKING = {
    "graphics": ("DeviceSetGpuLockedClocks", "DeviceResetGpuLockedClocks"),
    "memory": ("DeviceSetMemoryLockedClocks", "DeviceResetMemoryLockedClocks"),
}


class Step(NamedTuple):
    """One call of NVML. `what`, `before`, `after` are for people. `lock`: the clock that it locks, and how. `again`: it
    is recorded as done, and is silently repeated, since nobody can read whether it is still in effect."""

    what: str
    before: str
    after: str
    call: tuple[Any, ...]
    lock: tuple[str, Any] = ("", None)
    again: bool = False


class Needs(NamedTuple):
    """The changes that one GPU needs. `waits`: its ECC mode changes at the next boot."""

    card: Card
    steps: list[Step]
    problems: list[str]
    waits: bool


class Clocks(NamedTuple):
    """The clocks that a GPU lists: memory, and graphics by memory clock."""

    memory: Sequence[int]
    graphics: Callable[[int], Sequence[int]]


def needs(card: Card, settings: Mapping[str, Any], locks: Locks, clocks: Callable[[], Clocks]) -> Needs:
    steps: list[Step] = []
    problems: list[str] = []
    for name, judge in (("compute_mode", plan_mode), ("power_limit", plan_power)):
        if name in settings:
            judge(card, settings[name], steps, problems)
    if "application_clocks" in settings:
        plan_applications(card, settings["application_clocks"], clocks, steps, problems)
    for name, value in settings.get("locked_clocks", {}).items():
        _lock(card, name, value, locks, clocks, steps, problems)
    waits = plan_ecc(card, settings["ecc"], steps, problems) if "ecc" in settings else False
    return Needs(card, steps, [f"{card.gpu}: {text}" for text in problems], waits)


def plan_mode(card: Card, mode: str, steps: list[Step], problems: list[str]) -> None:
    pair = compare_mode(card.state, mode)
    if not pair.differs:
        return
    if card.mig:
        problems.append(f"compute_mode is {mode}, and a GPU in MIG mode takes default only; leave it out")
    else:
        if card.computing and mode != "default":
            pids = " ".join(str(pid) for pid in card.computing)
            problems.append(
                f"compute_mode {mode} would keep processes out that compute here (pid {pids}); end them first"
            )
        steps.append(Step("compute mode", pair.actual, mode, ("DeviceSetComputeMode", UINT(MODES.index(mode)))))


def plan_power(card: Card, value: Any, steps: list[Step], problems: list[str]) -> None:
    power = card.power
    if power is None:
        problems.append("it has no power limit that can be set; leave power_limit out")
        return
    limit = power.default if value == "default" else round(float(value) * 1000)
    if not power.least <= limit <= power.most:
        problems.append(
            f"power_limit is {format_watts(limit)}; allowed: {format_watts(power.least)} to {format_watts(power.most)}"
        )
    pair = compare_power(card.state, value)
    if pair.differs:
        call = ("DeviceSetPowerManagementLimit", UINT(limit))
        steps.append(Step("power limit", pair.actual, pair.wanted, call))


def plan_applications(
    card: Card, value: Any, clocks: Callable[[], Clocks], steps: list[Step], problems: list[str]
) -> None:
    if card.applications is None:
        problems.append(f"it has no application clocks ({card.no_applications}); take locked_clocks in their place")
        return
    desired = card.defaults if value == "default" else (int(value["memory"]), int(value["graphics"]))
    pair = compare_applications(card.state, value)
    if desired is None or not pair.differs:
        return
    known = clocks()
    if desired[0] not in known.memory:
        problems.append(f"application_clocks.memory is {desired[0]} MHz; allowed: {format_clocks(known.memory)}")
    elif desired[1] not in known.graphics(desired[0]):
        allowed = format_clocks(known.graphics(desired[0]))
        problems.append(f"application_clocks.graphics is {desired[1]} MHz; allowed with {desired[0]}: {allowed}")
    call: tuple[Any, ...] = ("DeviceSetApplicationsClocks", UINT(desired[0]), UINT(desired[1]))
    if value == "default":
        call = ("DeviceResetApplicationsClocks",)
    steps.append(Step("application clocks", pair.actual, pair.wanted, call))


def format_clocks(clocks: Sequence[int]) -> str:
    """Return clocks in MHz; if there are many, as the ends of their range."""
    ordered = sorted(clocks)
    if len(ordered) > 6:
        return f"{len(ordered)} clocks from {ordered[0]} to {ordered[-1]} MHz (nvidia-smi -q -d SUPPORTED_CLOCKS)"
    return ", ".join(f"{clock} MHz" for clock in ordered) or "none: this GPU lists no clocks"


def _lock(
    card: Card,
    name: str,
    value: Any,
    locks: Locks,
    clocks: Callable[[], Clocks],
    steps: list[Step],
    problems: list[str],
) -> None:
    to_set, to_reset = LOCKING[name]
    before = "unknown" if name not in locks else format_span(locks[name])
    what = f"locked {name} clocks"
    again = not compare_lock(card.state, name, value, locks).differs
    if value == "default":
        steps.append(Step(what, before, value, (to_reset,), (name, value), again))
        return
    least, most = (int(number) for number in value)
    known = clocks()
    allowed = (
        known.memory if name == "memory" else [graphics for clock in known.memory for graphics in known.graphics(clock)]
    )
    wrong = [limit for limit in (least, most) if allowed and not min(allowed) <= limit <= max(allowed)]
    wrong += [
        limit for limit in (least, most) if name == "memory" and allowed and limit not in allowed and limit not in wrong
    ]
    if wrong:
        problems.append(f"locked_clocks.{name} is {wrong[0]} MHz; allowed: {format_clocks(sorted({*allowed}))}")
    call = (to_set, UINT(least), UINT(most))
    steps.append(Step(what, before, format_span([least, most]), call, (name, [least, most]), again))


def plan_ecc(card: Card, mode: str, steps: list[Step], problems: list[str]) -> bool:
    """Plan the ECC mode; return whether the requested mode waits for a boot."""
    if card.ecc is None:
        problems.append("it has no ECC mode that can be set; leave ecc out")
        return False
    now, pending = compare_ecc(card.state, mode)
    if pending.differs:
        call = ("DeviceSetEccMode", UINT(mode == "enabled"))
        steps.append(Step("ECC mode after the next boot", pending.actual, mode, call))
    return now.differs
