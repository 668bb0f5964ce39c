"""Types of a host's drift, for the text and the JSON document."""

from typing import Literal

import msgspec

from gpuprov.core.errors import Outcome
from gpuprov.report.document import HostDocument
from gpuprov.verify.unmanaged import Unmanaged

# drifted: the host differs from what was applied, though the spec is the same. spec changed: what differs, or would be
# applied again, belongs to capabilities whose spec changed. unknown: nothing differs, but not everything could be read.
State = Literal["as applied", "drifted", "spec changed", "never applied", "unknown", "unreachable"]

# The worst first.
ORDER: tuple[State, ...] = ("unreachable", "drifted", "unknown", "never applied", "spec changed", "as applied")
OUTCOMES: dict[State, Outcome] = {
    "unreachable": "unreachable",
    "drifted": "differs",
    "unknown": "not proven",
    "never applied": "differs",
    "spec changed": "differs",
    "as applied": "ok",
}


class Cause(msgspec.Struct, frozen=True, kw_only=True):
    """One command of a package manager, with those of its packages that concern a difference. `at`: in the host's own
    time, ISO
    8601. For a reading of the host's own: it changed before `at` and after the reading at `after`; `spans_apply`:
    gpuprov applied something between them, which may be what changed it."""

    at: str
    after: str = ""
    spans_apply: bool = False
    command: str = ""
    user: str = ""
    packages: tuple[str, ...] = ()


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """A check that fails now; `unread`: its result is unknown, because the host could not be read. `reboot_fixes`: the
    next boot fixes it. `spec_changed`: the spec of its capability is not the one that was applied. `follows`: the
    failing check without which this one would not fail."""

    capability: str
    check: str
    moment: str
    expected: str
    found: str
    fix: str
    unread: bool = False
    reboot_fixes: bool = False
    spec_changed: bool = False
    follows: str = ""
    causes: tuple[Cause, ...] = ()


class HostDrift(HostDocument, frozen=True, kw_only=True):
    """The drift of one host. `applied_at` and `applied_with`: from its receipt. `spec_changed`: what has changed, by
    capability. `harmless`: packages changed since then that concern no check; None if the host has no readable log of
    them. `noted`: what the host's own readings add, about files, units, modules and the kernel. `unmanaged`: what was
    applied, is still present, and belongs to no capability of the spec. `why`: the reason why a host cannot be judged.
    """

    outcome: Outcome = "nothing asked"
    state: State
    applied_at: str = ""
    applied_with: str = ""
    cut_off: bool = False
    next_boot: Literal["right", "wrong", "unknown"] = "unknown"
    next_boot_reasons: tuple[str, ...] = ()
    spec_changed: dict[str, str] = {}
    differences: tuple[Difference, ...] = ()
    harmless: int | None = None
    noted: tuple[Cause, ...] = ()
    unmanaged: tuple[Unmanaged, ...] = ()
    why: str = ""

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "outcome", OUTCOMES[self.state])

    @property
    def is_lost(self) -> bool:
        """True if the host is known not to match its spec after its next boot."""
        return self.next_boot == "wrong" and self.state != "unreachable"
