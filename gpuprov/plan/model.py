"""What apply would do to one host."""

from __future__ import annotations

from typing import Literal

import msgspec

from gpuprov.capabilities.base import Change
from gpuprov.capabilities.mig.partitions import Partition
from gpuprov.spec.model import Reboot
from gpuprov.verify.evaluate import Result
from gpuprov.verify.unmanaged import Unmanaged

HOST = "host"
"""The capability of all hosts, whose role takes away what a spec asks for no longer."""
SECTIONS = {
    "package": "packages",
    "file": "files",
    "service": "services",
    "module": "modules",
    "initramfs": "initramfs",
    "setting": "settings",
    "client": "clients",
    "hold": "holds",
}
"""Kinds of change and the section of the plan that lists them."""


class Item(Change, frozen=True, kw_only=True):
    """A change, and the capability that asks for it: of what the spec asks for no longer, `host`, which takes it away."""

    capability: str = ""

    @classmethod
    def of(cls, capability: str, change: Change) -> Item:
        """The change, as one of this capability."""
        return cls(**msgspec.structs.asdict(change) | {"capability": capability})


class HostPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A plan for one host; nothing in it has been done.

    run, skipped: capabilities with the reason. blocked: what must be fixed before apply touches the host. changes:
    what would be different, by kind; packages as the host's package manager would move them, where it was asked. diffs: files that
    would be written, each with the difference of its text. unpredicted: what nobody can know before. no_way_back: what
    rollback could not undo. out: since when, and for which run, gpuprov has it out of its scheduler, and the way back.
    reboot "unknown": see reboot_reasons.
    last_apply_seconds: None where it is not known; last_apply says why. versions: the exact version that the host has after
    apply, by capability, as far as its repositories tell; installed: the one that it has now. mig: GPUs that are cut up anew.
    unmended: what fails although apply has nothing to do; of preflight,
    what would stop the next apply. unmanaged: what an apply brought and the spec asks for no longer.
    """

    host: str
    unreachable: str = ""
    unreachable_fix: str = ""
    blocked: tuple[Result, ...] = ()
    run: dict[str, str] = {}
    skipped: dict[str, str] = {}
    changes: tuple[Item, ...] = ()
    diffs: tuple[Item, ...] = ()
    reboot: bool | Literal["unknown"] = False
    reboot_reasons: tuple[str, ...] = ()
    permission: Reboot = "never"
    last_apply: str = ""
    last_apply_seconds: int | None = None
    unpredicted: tuple[str, ...] = ()
    no_way_back: tuple[str, ...] = ()
    out: str = ""
    differs: bool = False
    versions: dict[str, str] = {}
    installed: dict[str, str] = {}
    mig: tuple[Partition, ...] = ()
    unmended: tuple[Result, ...] = ()
    unmanaged: tuple[Unmanaged, ...] = ()

    def section(self, kind: str) -> tuple[Item, ...]:
        """The changes of one kind."""
        return tuple(change for change in self.changes if change.kind == kind)

    @property
    def jobs(self) -> tuple[Result, ...]:
        """Who of the users is on the GPUs and keeps apply away."""
        return tuple(one for one in self.blocked if one.drained)

    @property
    def prunes(self) -> bool:
        """True where apply takes away what the spec asks for no longer."""
        return HOST in self.run

    @property
    def left_over(self) -> tuple[Unmanaged, ...]:
        """What the spec asks for no longer and apply leaves as it is."""
        return tuple(one for one in self.unmanaged if one.stays or not self.prunes)

    @property
    def idle(self) -> bool:
        """Whether apply would do nothing here."""
        return not (self.unreachable or self.blocked or self.run)
