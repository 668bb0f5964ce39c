"""What a boot, a reset or the driver's own word has ended: lines before it are past."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import NamedTuple

from gpuprov.catalog.verdicts import judge_line
from gpuprov.catalog.xids import RECOVERY, XID, Action, Recovery, get_recovery, recovery_word
from gpuprov.facts.probes.kernel.kernel_log import KernelLog

WITHIN = 30.0
"""Seconds within which the driver follows an Xid with what the GPU needs: it does so at once, in a work item of its own
(gpuRefreshRecoveryAction, https://github.com/NVIDIA/open-gpu-kernel-modules/blob/595.45.04/src/nvidia/src/kernel/gpu/gpu.c)."""


class Change(NamedTuple):
    """A change in the recovery action that a GPU needs, which the driver logs as Xid 154."""

    at: float
    needs: Recovery


def recovery_changes(log: KernelLog) -> dict[str, list[Change]]:
    """Return the changes of each GPU, oldest first."""
    found: dict[str, list[Change]] = {}
    for line in log.lines:
        match = XID.match(line.text)
        if match and int(match[2]) == RECOVERY:
            change = Change(line.at, get_recovery(recovery_word(match[3] or "")))
            found.setdefault(match[1].lower(), []).append(change)
    return found


NO_CLOCK = 100_000_000
"""A time below this is not a clock time: dmesg in a record gives only seconds since the boot."""


def moment(at: float) -> str:
    if at < NO_CLOCK:
        return f"{at:.0f} s after the boot"
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M UTC")


class Endings(NamedTuple):
    """`boot`: when this boot began, 0 if all lines are of it; `reset`: when GPUs were last reset, or the host booted; `changes`: in
    what each GPU needs, by its address."""

    boot: float
    reset: float
    changes: dict[str, list[Change]]

    def well(self, device: str) -> float:
        """Return when the driver last said of a GPU that it needs nothing, if it has not taken that back; 0 if it has not said so."""
        of_gpu = self.changes.get(device.lower().removesuffix(".0"), ())
        return of_gpu[-1].at if of_gpu and of_gpu[-1].needs.action == "none" else 0.0

    def last(self, action: Action, device: str = "") -> float:
        """Return the time before which lines that ask for an action are past; negative for what neither a reset nor a boot ends."""
        since = {"reset": self.reset, "reboot": self.boot}.get(action, -1.0)
        return since if since < 0 else max(since, self.well(device))

    def describe(self, action: Action, device: str, at: float) -> str:
        """Return what was done after a line that asks for an action, and when; empty if nothing was."""
        if not 0 <= at < self.last(action, device):
            return ""
        if self.well(device) > max(at, self.reset if action == "reset" else self.boot):
            return f"after which the driver said that the GPU needs nothing, {moment(self.well(device))}"
        if action == "reset" and self.reset > max(at, self.boot):
            return f"reset {moment(self.reset)}"
        return f"restarted {moment(self.boot)}"


def find_endings(log: KernelLog) -> Endings:
    """Find them in a log."""
    resets = ((line.at, judge_line(line.text)) for line in log.lines)
    reset = max((at for at, verdict in resets if verdict is not None and "reset" in verdict.ends), default=0.0)
    return Endings(boot=log.booted(), reset=max(log.booted(), reset), changes=recovery_changes(log))
