"""The plan of one host: what apply would do."""

from __future__ import annotations

from typing import Literal

import msgspec

from gpuprov.capabilities.base import Change
from gpuprov.capabilities.mig.partitions import Partition
from gpuprov.spec.model import Reboot
from gpuprov.verify.evaluate import Result
from gpuprov.verify.unmanaged import Unmanaged

# The capability of all hosts, whose role removes what a spec no longer declares.
HOST = "host"
# Kinds of change and the section of the plan that lists them.
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


class Item(Change, frozen=True, kw_only=True):
    """A change, and the capability that requires it; removals of what the spec no longer declares belong to `host`."""

    capability: str = ""

    @classmethod
    def of(cls, capability: str, change: Change) -> Item:
        """Return the change, assigned to this capability."""
        return cls(**msgspec.structs.asdict(change) | {"capability": capability})


class HostPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A plan for one host; nothing in it has been done.

    run, skipped: capabilities with the reason. blocked: what must be fixed before apply touches the host. places: where
    the spec asks for what is refused, by check. changes: differences, by kind; packages as the host's package manager
    would move them, if it was queried. diffs: files that would be written, each with the difference of its text.
    unpredicted: what cannot be known in advance. no_way_back: what rollback could not undo. out: since when, and for
    which run, gpuprov has it drained from its scheduler, and how to return it. reboot "unknown": see reboot_reasons.
    last_apply_seconds: None if it is not known; last_apply says why. versions: the exact version on the host after
    apply, by capability, as far as its repositories show; installed: its current version. mig: GPUs that are
    repartitioned. unmended: failures for which apply has no change; of an idle host also preflight failures that
    would stop the next apply. unmanaged: what an apply brought and the spec no longer declares.
    """

    host: str
    unreachable: str = ""
    unreachable_fix: str = ""
    blocked: tuple[Result, ...] = ()
    places: dict[str, str] = {}
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
        """Return the changes of one kind."""
        return tuple(change for change in self.changes if change.kind == kind)

    @property
    def jobs(self) -> tuple[Result, ...]:
        """Return the users' processes on the GPUs that block apply."""
        return tuple(result for result in self.blocked if result.drained)

    @property
    def prunes(self) -> bool:
        """True if apply removes what the spec no longer declares."""
        return HOST in self.run

    @property
    def left_over(self) -> tuple[Unmanaged, ...]:
        """Return what the spec no longer declares and apply leaves as it is."""
        return tuple(resource for resource in self.unmanaged if resource.stays or not self.prunes)

    @property
    def idle(self) -> bool:
        """True if apply would do nothing here."""
        return not (self.unreachable or self.blocked or self.run)
