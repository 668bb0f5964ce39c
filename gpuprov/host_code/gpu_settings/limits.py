"""Values that a GPU refuses, by its own limits. Pure: hosts judge by NVML, the controller by nvidia-smi's text."""

from __future__ import annotations

from typing import Any, Callable, Iterable, Iterator, NamedTuple, Sequence

from .compare import Settings, State, compare_mode, format_watts


class Clocks(NamedTuple):
    """The clocks that a GPU lists: memory, and graphics by memory clock; none where it lists none."""

    memory: Sequence[int]
    graphics: Callable[[int], Sequence[int]]


def refuse(state: State, settings: Settings, clocks: Callable[[], Clocks]) -> Iterator[str]:
    """Yield why the GPU does not take these settings. clocks: asked for only if they matter."""
    if "compute_mode" in settings:
        yield from refuse_mode(state, settings["compute_mode"])
    if "power_limit" in settings:
        yield from refuse_power(state, settings["power_limit"])
    if "application_clocks" in settings:
        yield from refuse_applications(state, settings["application_clocks"], clocks)
    for name, span in settings.get("locked_clocks", {}).items():
        if span != "default":
            yield from refuse_span(name, span, clocks())
    if "ecc" in settings and state.ecc is None:
        yield "it has no ECC mode that can be set; leave ecc out"


def refuse_mode(state: State, mode: str) -> Iterator[str]:
    if state.mig and compare_mode(state, mode).differs:
        yield f"compute_mode is {mode}, and a GPU in MIG mode takes default only; leave it out"


def shuts_out(state: State, mode: str) -> bool:
    """Return whether setting the compute mode would keep programs out."""
    return mode != "default" and not state.mig and compare_mode(state, mode).differs


def refuse_power(state: State, limit: Any) -> Iterator[str]:
    if state.power is None or state.power_span is None:
        yield "it has no power limit that can be set; leave power_limit out"
    elif limit != "default" and not is_within(float(limit) * 1000, state.power_span):
        least, most = (format_watts(end) for end in state.power_span)
        yield f"power_limit is {format_watts(float(limit) * 1000)}; allowed: {least.split()[0]} to {most}"


def is_within(value: float, span: tuple[float, float]) -> bool:
    """Return whether a value is in a span, its ends included."""
    return span[0] <= value <= span[1]


def refuse_applications(state: State, value: Any, clocks: Callable[[], Clocks]) -> Iterator[str]:
    if state.applications is None:
        yield f"it has no application clocks ({state.no_applications or 'N/A'}); take locked_clocks in their place"
        return
    if value == "default" or state.applications == (value["memory"], value["graphics"]):
        return
    known, memory, graphics = clocks(), int(value["memory"]), int(value["graphics"])
    if not known.memory:
        return
    if memory not in known.memory:
        yield f"application_clocks.memory is {memory} MHz; allowed: {format_clocks(known.memory)}"
    elif graphics not in known.graphics(memory):
        allowed = format_clocks(known.graphics(memory))
        yield f"application_clocks.graphics is {graphics} MHz; allowed with {memory}: {allowed}"


def refuse_span(name: str, span: Iterable[int], known: Clocks) -> Iterator[str]:
    """Yield why a lock is impossible: its ends lie outside, or are not clocks of the memory, which has few."""
    graphics = (clock for memory in known.memory for clock in known.graphics(memory))
    allowed = sorted({*(known.memory if name == "memory" else graphics)})
    for clock in span if allowed else ():
        if not is_within(clock, (allowed[0], allowed[-1])) or (name == "memory" and clock not in allowed):
            yield f"locked_clocks.{name} is {clock} MHz; allowed: {format_clocks(allowed)}"
            return


def format_clocks(clocks: Sequence[int]) -> str:
    """Return clocks in MHz; if there are many, as the ends of their range."""
    ordered = sorted(clocks)
    if len(ordered) > 6:
        return f"{len(ordered)} clocks from {ordered[0]} to {ordered[-1]} MHz (nvidia-smi -q -d SUPPORTED_CLOCKS)"
    return ", ".join(f"{clock} MHz" for clock in ordered) or "none: this GPU lists no clocks"
