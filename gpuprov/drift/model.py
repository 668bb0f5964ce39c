"""A host's drift, as it is told and as it stands in JSON."""

from __future__ import annotations

from typing import Literal

import msgspec

from gpuprov.verify.unmanaged import Unmanaged

State = Literal["as applied", "drifted", "spec changed", "never applied", "unknown", "unreachable"]
"""drifted: the host is not what was applied, though the spec asks for the same. spec changed: what differs, or would be applied anew,
is of capabilities whose spec changed. unknown: nothing differs, but not all could be read."""

ORDER: tuple[State, ...] = ("unreachable", "drifted", "unknown", "never applied", "spec changed", "as applied")
"""The worst first."""


class Cause(msgspec.Struct, frozen=True, kw_only=True):
    """One command of a package manager, with the packages of it that concern a difference. `at` in the host's own time, ISO 8601.
    Of a reading of the host's own: what changed before `at` and `after` the reading before it; `spans_apply`: gpuprov applied
    something between them, which may be what changed it."""

    at: str
    after: str = ""
    spans_apply: bool = False
    command: str = ""
    user: str = ""
    packages: tuple[str, ...] = ()


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """A check that fails now; `unread`: of which nobody knows, because the host could not be read. `reboot_fixes`: the next boot
    brings it right. `spec_changed`: its capability is asked for otherwise than it was applied. `follows`: the failing check without
    which this one would not fail."""

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


class HostDrift(msgspec.Struct, frozen=True, kw_only=True):
    """What a host's drift comes to. `applied_at` and `applied_with`: of its receipt. `spec_changed`: by capability, what is another.
    `harmless`: packages that were changed since then, and that no check minds; None where the host has no log of them that is read.
    `noted`: what the host's own readings say beside that, of files, units, modules and the kernel. `unmanaged`: what was applied, is
    there, and is of no capability of the spec. `why`: of a host that cannot be judged."""

    host: str
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

    @property
    def is_lost(self) -> bool:
        """Whether the host is known not to come back from its next boot as its spec asks."""
        return self.next_boot == "wrong" and self.state != "unreachable"
