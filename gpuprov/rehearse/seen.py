"""Changes that an apply made on a simulated host, and so would make on the real ones: packages, files, services, a
reboot."""

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
if command -v rpm >/dev/null; then rpm -qa --qf '%{NAME} %{EVR}\n'; fi
echo '# held'; apt-mark showhold
echo '# files'; find /etc /boot -xdev -type f -printf '%p %s-%T@\n' | sort
echo '# enabled'; systemctl list-unit-files --no-legend --no-pager --type service,timer,socket | awk '{ print $1, $2 }'
echo '# active'; systemctl list-units --no-legend --no-pager --plain --type service,timer,socket |
  awk '{ print $1, $3 }'
"""
BACKUPS = ("/etc/group-", "/etc/gshadow-", "/etc/passwd-", "/etc/shadow-", "/etc/subgid-", "/etc/subuid-")
# Caches, locks, what useradd keeps of old files, and parts of the simulation: nothing that concerns an operator.
NOISE = ("/etc/ld.so.cache", "/etc/mtab", "/etc/.pwd.lock", "/etc/gpuprov-sim/", *BACKUPS)
# State of a unit that needs the driver, which a container loads at its reboot only: verify judges units after that.
FAILED = "failed"
# The one task of the playbook that reboots a host.
REBOOTED = "Reboot the host"


class Snapshot(msgspec.Struct, frozen=True):
    """State of a host at one moment, each part by name."""

    parts: dict[str, dict[str, str]]

    @classmethod
    def of(cls, text: str) -> Snapshot:
        """Parse the output of SNAPSHOT."""
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
        """List (name, before, after) of differences; an empty text if there was, or is, nothing of that name."""
        old, new = self.parts.get(part, {}), later.parts.get(part, {})
        names = sorted({*old, *new})
        return [(n, old.get(n, ""), new.get(n, "")) for n in names if old.get(n, "") != new.get(n, "")]


def find_changes(
    before: Snapshot, after: Snapshot, plan: HostPlan | None, outcome: HostOutcome, *, blind: str = ""
) -> Seen:
    """Determine the changes that production would see. plan: made before the apply. blind: what could require a reboot
    and cannot be detected here."""
    packages = [describe_move(*change) for change in before.changed("packages", after)]
    held = [name for name, _, now in before.changed("held", after) if now]
    packages += [f"held: {' '.join(held)}"] if held else []
    files = [
        f"{path}: {'changed' if old and new else 'new' if new else 'removed'}"
        for path, old, new in before.changed("files", after)
        if not path.startswith(NOISE)
    ]
    moves = [*before.changed("enabled", after), *before.changed("active", after)]
    services = [describe_move(*move) for move in moves if move[2] != FAILED]
    return Seen(
        packages=tuple(packages),
        files=tuple(files),
        services=tuple(services),
        reboot=reboot(plan, outcome, blind),
        clients=tuple(change.name for change in plan.section("client")) if plan else (),
    )


def reboot(plan: HostPlan | None, outcome: HostOutcome, blind: str = "") -> str:
    """Return the reboot that production would see, and the reason."""
    predicted = "; ".join(plan.reboot_reasons) if plan and plan.reboot is True else ""
    if any(REBOOTED in task for task in outcome.changed):
        return f"would reboot once: {predicted or 'a role asked for it while it was applied'}"
    if outcome.reboot:
        return f"would stop: reboot required, not permitted (reboot: if-needed permits it): {'; '.join(outcome.reboot)}"
    if plan and plan.reboot == "unknown":
        return f"none here; {'; '.join(plan.reboot_reasons)}"
    return f"none here; it cannot be told of {blind}" if blind else "no reboot"


def list_blind_spots(spec: HostSpec, description: Description) -> str:
    """Describe what could require a reboot in production and cannot on such a simulated host; empty if there is
    nothing."""
    if description.kind == "machine":
        return ""
    kernel = spec.capabilities.get("kernel")
    words = listed(kernel.command_line) if isinstance(kernel, Kernel) else ""
    reasons = [f"the kernel command line ({words})"] * bool(words)
    reasons += ["a loaded nouveau"] * ("nouveau" in spec.capabilities)
    reasons += ["a driver in use"] * ("nvidia_driver" in spec.capabilities)
    return f"{', '.join(reasons)} in a container (--kind machine)" if reasons else ""


def describe_move(name: str, before: str, after: str) -> str:
    return (
        f"{name}: {' -> '.join(filter(None, (before or 'none', after or 'removed')))}" if before else f"{name}: {after}"
    )


def cut_lines(lines: Iterable[str], most: int) -> list[str]:
    """Cut the lines to a number of them."""
    result = list(lines)
    return (
        result
        if len(result) <= most + 1
        else [*result[:most], f"... and {len(result) - most} more (-v or --json shows all)"]
    )
