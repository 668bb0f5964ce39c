"""What an apply changed on a simulated host, and so would on the real ones: packages, files, services, a reboot."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from gpuprov.apply import HostOutcome
from gpuprov.capabilities.kernel import listed
from gpuprov.plan import HostPlan
from gpuprov.rehearse.model import Seen
from gpuprov.simulate.description import Description
from gpuprov.spec.kernel import Kernel
from gpuprov.spec.model import HostSpec

SNAPSHOT = r"""
echo '# packages'; dpkg-query -W -f '${db:Status-Status} ${Package} ${Version}\n' | sed -n 's/^installed //p'
echo '# held'; apt-mark showhold
echo '# files'; find /etc /boot -xdev -type f -printf '%p %s-%T@\n' | sort
echo '# enabled'; systemctl list-unit-files --no-legend --no-pager --type service,timer,socket | awk '{ print $1, $2 }'
echo '# active'; systemctl list-units --no-legend --no-pager --plain --type service,timer,socket | awk '{ print $1, $3 }'
"""
NOISE = ("/etc/ld.so.cache", "/etc/mtab", "/etc/.pwd.lock", "/etc/gpuprov-sim/")
"""Caches, locks and what makes the simulation: nothing that an operator would look at."""
REBOOTED = "Reboot the host for all reasons at once"
"""The one task of the playbook that reboots a host."""


class Snapshot(msgspec.Struct, frozen=True):
    """A host at one moment, each part by name."""

    parts: dict[str, dict[str, str]]

    @classmethod
    def of(cls, text: str) -> Snapshot:
        """From what SNAPSHOT printed."""
        parts: dict[str, dict[str, str]] = {}
        part: dict[str, str] = {}
        for line in text.splitlines():
            if line.startswith("# "):
                part = parts.setdefault(line[2:], {})
                continue
            # A file's name may hold spaces, its stamp does not.
            name, _, value = line.rpartition(" ") if " " in line else (line, "", "yes")
            part[name] = value
        return cls(parts)

    def changed(self, part: str, later: Snapshot) -> list[tuple[str, str, str]]:
        """(name, before, after) of what differs; an empty text where there was, or is, nothing of that name."""
        old, new = self.parts.get(part, {}), later.parts.get(part, {})
        names = sorted({*old, *new})
        return [(n, old.get(n, ""), new.get(n, "")) for n in names if old.get(n, "") != new.get(n, "")]


def seen(before: Snapshot, after: Snapshot, plan: HostPlan | None, outcome: HostOutcome, *, blind: str = "") -> Seen:
    """What production would see. plan: made before the apply. blind: what could ask for a reboot and cannot be told here."""
    packages = [_moved(*change) for change in before.changed("packages", after)]
    held = [name for name, _, now in before.changed("held", after) if now]
    packages += [f"held: {' '.join(held)}"] if held else []
    files = [
        f"{path}: {'changed' if old and new else 'new' if new else 'removed'}"
        for path, old, new in before.changed("files", after)
        if not path.startswith(NOISE)
    ]
    services = [_moved(*change) for part in ("enabled", "active") for change in before.changed(part, after)]
    return Seen(
        packages=tuple(packages),
        files=tuple(files),
        services=tuple(services),
        reboot=reboot(plan, outcome, blind),
        clients=tuple(change.name for change in plan.section("client")) if plan else (),
    )


def reboot(plan: HostPlan | None, outcome: HostOutcome, blind: str = "") -> str:
    """What production would see of a reboot, and why."""
    foretold = "; ".join(plan.reboot_reasons) if plan and plan.reboot is True else ""
    if any(REBOOTED in task for task in outcome.changed):
        return f"would reboot once: {foretold or 'a role asked for it while it was applied'}"
    if outcome.reboot:
        return f"would stop: reboot required, not permitted (reboot: if-needed permits it): {'; '.join(outcome.reboot)}"
    if plan and plan.reboot == "unknown":
        return f"none here; {'; '.join(plan.reboot_reasons)}"
    return f"none here; it cannot be told of {blind}" if blind else "no reboot"


def blind_to(spec: HostSpec, description: Description) -> str:
    """What could ask for a reboot in production and cannot on such a simulated host; empty where there is nothing."""
    if description.kind == "machine":
        return ""
    kernel = spec.capabilities.get("kernel")
    words = listed(kernel.command_line) if isinstance(kernel, Kernel) else ""
    reasons = [f"the kernel command line ({words})"] * bool(words)
    reasons += ["a loaded nouveau"] * ("nouveau" in spec.capabilities)
    reasons += ["a driver in use"] * ("nvidia_driver" in spec.capabilities)
    return f"{', '.join(reasons)} in a container (--kind machine)" if reasons else ""


def _moved(name: str, before: str, after: str) -> str:
    return (
        f"{name}: {' -> '.join(filter(None, (before or 'none', after or 'removed')))}" if before else f"{name}: {after}"
    )


def brief(lines: Iterable[str], most: int) -> list[str]:
    """The lines, cut to a number of them."""
    told = list(lines)
    return (
        told if len(told) <= most + 1 else [*told[:most], f"... and {len(told) - most} more (-v or --json shows all)"]
    )
