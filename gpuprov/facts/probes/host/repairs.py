"""Repairs that were made on a host, as `gpuprov.host_code.repairs` records them."""

from collections.abc import Iterable, Iterator
from typing import Annotated

import msgspec

from gpuprov.core.safe_parse import Unreadable, parse_typed_json
from gpuprov.facts.probes.base import Output, Probe
from gpuprov.host_code.repairs import RECORD


class Repair(msgspec.Struct, frozen=True, kw_only=True):
    """An act. `at` in Unix time."""

    at: Annotated[float, msgspec.Meta(ge=0, le=100_000_000_000)]
    run: str
    # reset, reboot, repaired or given up.
    act: str
    # PCI addresses, empty for all.
    gpus: tuple[str, ...] = ()
    # The checks of health that asked for it.
    checks: tuple[str, ...] = ()
    # Why it was not done.
    problem: str = ""

    def is_made_by(self, now: float) -> bool:
        """Return whether its time is not later than the host's own, in whole seconds. A later one is of a clock that
        was ahead: what came after it cannot be told from what came before."""
        return int(self.at) <= now


def list_repairs(lines: Iterable[str]) -> Iterator[Repair]:
    """Yield the acts; a damaged line is left out, since it proves nothing."""
    for line in lines:
        try:
            yield parse_typed_json(line, Repair)
        except Unreadable:
            continue


def parse(output: Output) -> tuple[Repair, ...]:
    return tuple(list_repairs(output.text.splitlines()))


# Shell that prints the record.
PRINTED = f"tail -n 200 {RECORD} 2>/dev/null"
REPAIRS = Probe("repairs", f"{PRINTED}; true", parse, f"cat {RECORD}", blank=".", own=True)
