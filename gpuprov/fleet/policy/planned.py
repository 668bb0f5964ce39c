"""A policy over the hosts of a fleet: the batch and failure domain of each host. Computed once, and constant from then
on."""

from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase

import msgspec

from gpuprov.core.errors import GpuprovError
from gpuprov.fleet.policy.policy import Approval, Canary, Policy, at_least_one, seconds
from gpuprov.fleet.policy.windows import Span, Zone, parsed, zone

CANARY = "canary.hosts"


class Member(msgspec.Struct, frozen=True):
    """A host of the fleet."""

    name: str
    groups: tuple[str, ...] = ()
    # `domain` and `site`: empty if the policy names none.
    domain: str = ""
    site: str = ""


class Batch(msgspec.Struct, frozen=True):
    """`number` is 0 for the canary. `soak` in seconds."""

    number: int
    hosts: tuple[str, ...]
    soak: int = 0
    domain: str = ""

    @property
    def name(self) -> str:
        """The name in messages and approvals."""
        return f"batch {self.number}" if self.number else "canary"


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The input of `decide`, beside the events."""

    policy: Policy
    domains: dict[str, str]
    batches: tuple[Batch, ...]
    # The number of hosts that shares refer to.
    total: int
    # Keys of the policy that were set by command-line options, with the option.
    options: dict[str, str] = {}
    sites: dict[str, str] = {}
    spans: tuple[Span, ...] = ()
    zone: Zone | None = None

    def name_of(self, key: str) -> str:
        """Return the user's name for a key of the policy."""
        return self.options.get(key, key)

    def by_site(self, hosts: Iterable[str]) -> dict[str, list[str]]:
        """Return the hosts of each site, in their order."""
        groups: dict[str, list[str]] = {}
        for name in hosts:
            groups.setdefault(self.sites.get(name, ""), []).append(name)
        return groups

    @property
    def most_repairs(self) -> int:
        """The number of hosts that may be repaired."""
        repair = self.policy.repair
        return at_least_one(repair.budget, self.total) if repair else 0

    def approvals(self, batch: Batch) -> list[tuple[str, Approval]]:
        """Return the steps that must be approved before the batch begins."""
        first = next((batch.number for batch in self.batches if batch.number), None)
        steps = []
        for approval in self.policy.approvals:
            if approval.before == "canary" and batch is self.batches[0]:
                steps.append(("canary", approval))
            elif approval.before == "batches" and batch.number == first:
                steps.append(("batches", approval))
            elif approval.before == "each-batch" and batch.number:
                steps.append((batch.name, approval))
        return steps


def planned(
    policy: Policy,
    members: Sequence[Member],
    pinned: Zone | None = None,
    *,
    total: int | None = None,
    options: Mapping[str, str] | None = None,
) -> Plan:
    """Return the plan. Raises GpuprovError if the canary names no host, or a host has no failure domain or site.

    `pinned`: the policy's time zone, if it is not to be looked up on this machine. `total`, `options`: as in the plan;
    the total is all members by default.
    """
    total, options = len(members) if total is None else total, dict(options or {})
    _refuse_lost([member.name for member in members if not member.domain], "in no failure domain", policy.domain)
    _refuse_lost([member.name for member in members if not member.site], "at no site", policy.site)
    first = _find_canaries(policy.canary, members, total, options.get(CANARY, CANARY))
    rest = [member for member in members if member.name not in first]
    batches = (
        [Batch(0, tuple(member.name for member in members if member.name in first), seconds(policy.canary.soak))]
        if first
        else []
    )
    batches += _cut_batches(policy, rest, total)
    windows = policy.windows
    return Plan(
        policy=policy,
        domains={member.name: member.domain for member in members},
        sites={member.name: member.site for member in members if member.site},
        batches=tuple(batches),
        total=total,
        options=options,
        spans=tuple(map(parsed, windows.open)) if windows else (),
        zone=(pinned or zone(windows.time_zone)) if windows else None,
    )


def _cut_batches(policy: Policy, members: Iterable[Member], total: int) -> list[Batch]:
    """Cut the hosts after the canary into batches, by failure domain or of the policy's size."""
    soak = seconds(policy.batches.soak)
    if policy.batches.by_domain:
        parts: dict[str, list[str]] = {}
        for member in members:
            parts.setdefault(member.domain, []).append(member.name)
        return [Batch(n, tuple(names), soak, domain) for n, (domain, names) in enumerate(parts.items(), start=1)]
    step = at_least_one(policy.batches.size, total)
    names = [member.name for member in members]
    return [Batch(n, tuple(names[cut : cut + step]), soak) for n, cut in enumerate(range(0, len(names), step), start=1)]


def _refuse_lost(lost: Sequence[str], where: str, by: str | None) -> None:
    if by and lost:
        more = f" and {len(lost) - 1} more" if len(lost) > 1 else ""
        fix = f"put it below the group {by}, or set the variable {by} of it"
        raise GpuprovError(f"{lost[0]}{more}: {where} ({by})", fix)


def _find_canaries(canary: Canary, members: Sequence[Member], total: int, place: str) -> set[str]:
    if canary.count:
        return {member.name for member in members[: at_least_one(canary.count, total)]}
    hosts: set[str] = set()
    for word in canary.hosts:
        named = {member.name for member in members if word in member.groups or fnmatchcase(member.name, word)}
        if not named:
            raise GpuprovError(f'{place}: no host is called "{word}"', "allowed: names of hosts, groups and globs")
        hosts |= named
    return hosts
