"""Definition of a fault of a simulated host."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from gpuprov.simulate.description import Kind

Moment = Literal["verify", "plan", "apply"]
BOTH: tuple[Kind, ...] = ("container", "machine")
SILICON = "/usr/lib/gpuprov-sim/silicon reload"


@dataclass(frozen=True)
class Fault:
    """`plant` and `heal` are shell scripts run as root; `$1` is the parameter.

    `moment` is the command that must detect it: `verify` on a host that was right before, `plan` in its preflight,
    `apply` when it has work to do. `caught_by` is the id of the check that fails; if apply runs into it, the words that
    its message must have.
    """

    name: str
    what: str
    caught_by: str
    plant: str = ""
    heal: str = ""
    parameter: str = ""
    moment: Moment = "verify"
    kinds: tuple[Kind, ...] = BOTH
