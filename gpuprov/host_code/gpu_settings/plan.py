"""The changes that bring a GPU to its settings, and the reasons why they are impossible. Changes nothing."""

from __future__ import annotations

from typing import Any, Callable, Iterator, NamedTuple

from .card import MODES, Card
from .compare import (
    Locks,
    Settings,
    Span,
    compare_applications,
    compare_ecc,
    compare_lock,
    compare_mode,
    compare_power,
    format_span,
)
from .limits import Clocks, refuse, shuts_out
from .nvml import UINT

LOCKING = {
    "graphics": ("DeviceSetGpuLockedClocks", "DeviceResetGpuLockedClocks"),
    "memory": ("DeviceSetMemoryLockedClocks", "DeviceResetMemoryLockedClocks"),
}


class Step(NamedTuple):
    """One call of NVML."""

    # `what`, `before`, `after`: for people.
    what: str
    before: str
    after: str
    call: tuple[Any, ...]
    # The clock that it locks, and how.
    lock: tuple[str, Span] = ("", "default")
    # It is recorded as done, and is silently repeated, since nobody can read whether it is still in effect.
    again: bool = False


class Needs(NamedTuple):
    """The changes that one GPU needs."""

    card: Card
    steps: list[Step]
    problems: list[str]
    # Its ECC mode changes at the next boot.
    waits: bool


def needs(card: Card, settings: Settings, locks: Locks, clocks: Callable[[], Clocks]) -> Needs:
    problems = [*refuse(card.state, settings, clocks), *list_shut_out(card, settings)]
    steps = [] if problems else [*plan_steps(card, settings, locks)]
    waits = bool(card.ecc) and "ecc" in settings and compare_ecc(card.state, settings["ecc"])[0].differs
    return Needs(card, steps, [f"{card.gpu}: {text}" for text in problems], waits)


def list_shut_out(card: Card, settings: Settings) -> Iterator[str]:
    """Yield the processes that a compute mode would shut out."""
    mode = settings.get("compute_mode", "default")
    if card.computing and shuts_out(card.state, mode):
        pids = " ".join(str(pid) for pid in card.computing)
        yield f"compute_mode {mode} would keep processes out that compute here (pid {pids}); end them first"


def plan_steps(card: Card, settings: Settings, locks: Locks) -> Iterator[Step]:
    """Yield the changes to a GPU that takes the settings."""
    state = card.state
    if "compute_mode" in settings and (pair := compare_mode(state, settings["compute_mode"])).differs:
        number = UINT(MODES.index(pair.expected))
        yield Step("compute mode", pair.actual, pair.expected, ("DeviceSetComputeMode", number))
    if "power_limit" in settings and (pair := compare_power(state, settings["power_limit"])).differs:
        limit = state.own_power if settings["power_limit"] == "default" else float(settings["power_limit"]) * 1000
        call = ("DeviceSetPowerManagementLimit", UINT(round(limit or 0)))
        yield Step("power limit", pair.actual, pair.expected, call)
    if "application_clocks" in settings:
        yield from plan_applications(card, settings["application_clocks"])
    for name, value in settings.get("locked_clocks", {}).items():
        yield plan_lock(card, name, value, locks)
    if "ecc" in settings and (pair := compare_ecc(state, settings["ecc"])[1]).differs:
        call = ("DeviceSetEccMode", UINT(pair.expected == "enabled"))
        yield Step("ECC mode after the next boot", pair.actual, pair.expected, call)


def plan_applications(card: Card, value: Any) -> Iterator[Step]:
    pair = compare_applications(card.state, value)
    if not pair.differs:
        return
    call: tuple[Any, ...] = ("DeviceResetApplicationsClocks",)
    if value != "default":
        call = ("DeviceSetApplicationsClocks", UINT(int(value["memory"])), UINT(int(value["graphics"])))
    yield Step("application clocks", pair.actual, pair.expected, call)


def plan_lock(card: Card, name: str, value: Span, locks: Locks) -> Step:
    """Plan a lock, which is repeated where it is noted: nobody can read whether it is still in effect."""
    to_set, to_reset = LOCKING[name]
    before = "unknown" if name not in locks else format_span(locks[name])
    again = not compare_lock(card.state, name, value, locks).differs
    span: Span = value if value == "default" else [int(number) for number in value]
    call = (to_reset,) if span == "default" else (to_set, *map(UINT, span))
    return Step(f"locked {name} clocks", before, format_span(span), call, (name, span), again)
