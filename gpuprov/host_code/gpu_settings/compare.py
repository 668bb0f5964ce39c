"""Compare the settings of a GPU, which a host reads by NVML, and the controller from nvidia-smi's text. Pure."""

from __future__ import annotations

import re
from typing import Any, Literal, Mapping, NamedTuple, Sequence, TypedDict, Union

# A lock of a clock: [least, most] in MHz.
Span = Union[Literal["default"], Sequence[int]]
# Clocks that this program locked on a GPU since the driver was loaded: "graphics" and "memory".
Locks = Mapping[str, Span]


class Settings(TypedDict, total=False):
    """Settings of a GPU; those that are absent are left alone."""

    ecc: str
    power_limit: int | float | Literal["default"]
    application_clocks: dict[str, int] | Literal["default"]
    locked_clocks: dict[str, Span]
    compute_mode: str


class State(NamedTuple):
    """A GPU's settings; None where it does not have one."""

    # Now, and after the next boot.
    ecc: tuple[str, str] | None
    # `power`, `own_power`: the limit and its default, in milliwatts.
    power: float | None
    own_power: float | None
    # `applications`, `own_applications`: memory and graphics in MHz, and their defaults.
    applications: tuple[int, int] | None
    own_applications: tuple[int, int] | None
    # The driver's words where there are none.
    no_applications: str
    # The compute mode.
    mode: str
    mig: bool
    # `graphics`, `memory`: the clocks now.
    graphics: int | None = None
    memory: int | None = None
    # The lowest and the highest limit, in milliwatts.
    power_span: tuple[float, float] | None = None


class Pair(NamedTuple):
    """A setting in words: as it should be, and as it is."""

    expected: str
    actual: str

    @property
    def differs(self) -> bool:
        return self.expected != self.actual


def compare_ecc(state: State, mode: str) -> tuple[Pair, Pair]:
    """Compare the ECC mode: now, and after the next boot."""
    now, pending = state.ecc or ("no ECC mode", "no ECC mode")
    return Pair(mode, now), Pair(mode, pending)


def compare_power(state: State, limit: Any) -> Pair:
    expected = state.own_power if limit == "default" else float(limit) * 1000
    return Pair(format_watts(expected), format_watts(state.power))


def compare_applications(state: State, clocks: Any) -> Pair:
    """Compare the application clocks; where a GPU does not tell its defaults, all clocks may be these."""
    instead = f"no application clocks ({state.no_applications or 'N/A'})"
    actual = format_pair(state.applications) if state.applications else instead
    if clocks != "default":
        return Pair(format_pair((int(clocks["memory"]), int(clocks["graphics"]))), actual)
    return Pair(format_pair(state.own_applications) if state.own_applications else actual, actual)


def compare_mode(state: State, mode: str) -> Pair:
    """Compare the compute mode; a GPU in MIG mode has the default one."""
    return Pair(mode, "default" if state.mig else state.mode or "none")


def compare_lock(state: State, name: str, span: Span, locks: Locks) -> Pair:
    """Compare a lock with what was noted: no program can read one, but a clock above it shows that it is gone."""
    clock = state.graphics if name == "graphics" else state.memory
    if name not in locks or locks[name] != span:
        return Pair(format_span(span), format_span(locks[name]) if name in locks else "not locked by gpuprov")
    if span != "default" and clock is not None and clock > span[1]:
        return Pair(format_span(span), f"at {clock} MHz, above {span[1]} MHz: the lock is gone")
    return Pair(format_span(span), format_span(span))


def format_watts(milliwatts: float | None) -> str:
    """Return a limit in watts, as exact as nvidia-smi prints it: NVML knows milliwatts."""
    return "no limit that can be set" if milliwatts is None else f"{round(milliwatts / 1000, 2):g} W"


def format_pair(clocks: tuple[int, int]) -> str:
    return f"memory {clocks[0]} MHz, graphics {clocks[1]} MHz"


def format_span(lock: Span) -> str:
    return "default" if lock == "default" else f"{lock[0]} to {lock[1]} MHz"


def parse_spans(words: str) -> dict[str, Span]:
    """Return the locks that are listed as CLOCK SPAN, ...; what is not a span of MHz is "default"."""
    pairs = [part.partition(" ")[::2] for part in words.split(", ")]
    numbers = {name: [int(number) for number in re.findall(r"\d+", span)] for name, span in pairs}
    return {name: "default" if len(span) != 2 else span for name, span in numbers.items()}
