"""The policy of a roll-out: a typed YAML file beside the inventory."""

from collections.abc import Iterator
from pathlib import Path as File
from typing import Annotated, Literal

import msgspec

from gpuprov.core import safe_parse
from gpuprov.core.errors import GpuprovError
from gpuprov.fleet.policy.windows import SPAN, Zone, parsed, zone
from gpuprov.spec.build import convert
from gpuprov.spec.described import describe
from gpuprov.spec.model import Fragment
from gpuprov.spec.problem import Origin, Path, Problem, SpecError
from gpuprov.spec.unknown_keys import Finding

LARGEST = 256 << 10
UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}

MOST = 1_000_000
_SHARE = "a share of them (10%)"
Hosts = Annotated[int, msgspec.Meta(ge=0, le=MOST)]
Share = Annotated[str, describe(_SHARE, pattern=r"^(100|[1-9][0-9]?)%$")]
# A number of hosts, or a share of them; may be none.
Count = Hosts | Annotated[str, describe(_SHARE, pattern=r"^(100|[1-9]?[0-9])%$")]
# A number of hosts, or a share of them; at least one.
Size = Annotated[int, msgspec.Meta(ge=1, le=MOST)] | Share
TIME = r"^[0-9]{1,5}[smhd]$"
Name = Annotated[str, describe("a name of at least one character", min_length=1)]
Names = Annotated[tuple[Name, ...], msgspec.Meta(min_length=1)]


class Canary(Fragment, frozen=True):
    """Hosts that are done first, alone. If any of them is not green, nothing else starts, whatever the budget is."""

    hosts: Annotated[tuple[Name, ...], describe("Hosts, groups and globs")] = ()
    count: Annotated[
        Hosts | Share, describe("Or so many hosts, the first of the inventory: a number, or a share of all")
    ] = 0
    soak: Annotated[
        str, describe('a time such as "30m", "12h". After it the canary is verified again', pattern=TIME)
    ] = "0s"


class Batches(Fragment, frozen=True):
    """Division of the other hosts, in the inventory's order. A batch begins when the previous one has ended."""

    size: Annotated[Size, describe("A number of hosts (5) or a share of all hosts (10%)")] = "100%"
    by_domain: Annotated[bool, describe("A batch is one failure domain, in place of a size")] = False
    soak: Annotated[
        str, describe('a time such as "30m", "12h". After it the batch is verified again', pattern=TIME)
    ] = "0s"


class Limits(Fragment, frozen=True):
    """Limits on work at the same time."""

    at_once: Annotated[int, describe("Hosts that are out of service or worked on at once", ge=1)] = 50
    per_domain: (
        Annotated[int, describe("The same within a failure domain; a host that failed stays out, and counts", ge=1)]
        | None
    ) = None
    jobs: Annotated[int, describe("Processes (`gpuprov fleet work`) at once, at each site", ge=1, le=64)] = 2
    job_size: Annotated[int, describe("Hosts of one process, at most", ge=1, le=1000)] = 50


class Budget(Fragment, frozen=True):
    """Number of hosts that may fail before the roll-out stops. The canary has none."""

    batch: Annotated[Count, describe("In one batch: a number of hosts, or a share of its hosts")] = 0
    whole: Annotated[Count, describe("In all: a number of hosts, or a share of all hosts")] = 0


class Repair(Fragment, frozen=True):
    """Hosts that health calls unfit until a reset or a reboot are repaired before they are changed, each once."""

    budget: Annotated[Size, describe("Hosts that may be repaired: a number of hosts, or a share of all hosts")]


class Retry(Fragment, frozen=True):
    """Retries of a host that was locked by another run, could not be reached, or got no result from its process."""

    attempts: Annotated[int, describe("How often it is tried in all", ge=1, le=20)] = 3
    after: Annotated[str, describe('a time such as "90s", "5m", from one try to the next', pattern=TIME)] = "5m"


class Windows(Fragment, frozen=True):
    """Times when hosts may be started. Work that has begun is completed; verify and giving back happen at any time."""

    time_zone: Annotated[str, describe("a name of the tz database, such as Europe/Berlin or UTC")]
    open: Annotated[
        tuple[Annotated[str, describe('days and times: "mon-thu 22:00-05:00"', pattern=SPAN)], ...],
        describe("Days on which a window opens, and from when to when", min_length=1),
    ]
    margin: Annotated[
        str, describe('a time such as "30m". In the last so long of a window no host is started on', pattern=TIME)
    ] = "0s"


class Approval(Fragment, frozen=True):
    """Users who must approve a step before it begins: `gpuprov rollout approve ID`."""

    before: Annotated[
        Literal["canary", "batches", "each-batch"],
        describe("canary: anything at all; batches: the first batch; each-batch: each of them"),
    ]
    by: Annotated[Names, describe("Users, one of whom approves")]
    count: Annotated[int, describe("How many of them must", ge=1, le=10)] = 1


class Drain(Fragment, frozen=True):
    """The way a host is taken out of service before it is changed, and given back when it is green."""

    adapter: Annotated[Literal["slurm", "kubernetes", "command"], describe("Who hands out the hosts")]
    command: Annotated[str, describe("Of adapter command: what the site runs for each step")] = ""
    context: Annotated[str, describe("Of adapter kubernetes: the context of kubectl")] = ""
    delete_emptydir_data: Annotated[
        bool, describe("Of adapter kubernetes: evict pods whose data in an emptyDir is lost then")
    ] = False
    timeout: Annotated[
        str, describe('a time such as "12h". A host that is not free by then counts as failed', pattern=TIME)
    ] = "1d"
    poll: Annotated[str, describe('a time such as "30s", between two looks at a host', pattern=TIME)] = "30s"


class Policy(Fragment, frozen=True):
    """The course of a roll-out over a fleet."""

    gpuprov_rollout: Annotated[Literal[1], describe("Version of this format")]
    domain: Annotated[
        str | None,
        describe("The failure domain: a group, whose child groups are the domains, or a host variable (rack)"),
    ] = None
    site: Annotated[
        str | None,
        describe("From where hosts are reached: a group, whose child groups are the sites, or a host variable (site)"),
    ] = None
    canary: Canary = Canary()
    batches: Batches = Batches()
    limits: Limits = Limits()
    budget: Budget = Budget()
    repair: Annotated[Repair | None, describe("Repair unfit hosts before they are changed; without: no repair")] = None
    retry: Retry = Retry()
    windows: Annotated[Windows | None, describe("When hosts may be started on; without: always")] = None
    approvals: Annotated[tuple[Approval, ...], describe("Who approves which step")] = ()
    drain: Annotated[Drain | None, describe("Drain and return; without: the hosts are free already")] = None
    prepare: Annotated[bool, describe("Judge and download on the hosts of a batch before they are drained")] = False
    reboot: Annotated[
        Literal["as-specified", "if-needed"],
        describe("as-specified: what each host's spec permits; if-needed: permitted in this roll-out"),
    ] = "as-specified"


def seconds(duration: str) -> int:
    """Return `"30m"` in seconds."""
    return int(duration[:-1]) * UNITS[duration[-1]]


def number_of(count: int | str, total: int) -> int:
    """Return a number of hosts, or a share of `total`, rounded down."""
    return total * int(count[:-1]) // 100 if isinstance(count, str) else count


def at_least_one(size: int | str, total: int) -> int:
    """Return the same, but one if the share is less than a host."""
    return max(1, number_of(size, total))


def load(path: File) -> Policy:
    """Return the policy in a file. Raises SpecError with all its errors."""
    try:
        data = safe_parse.read_contents(str(path), LARGEST)
    except OSError as error:
        raise GpuprovError(f"{path} cannot be read: {error.strerror}") from error
    except safe_parse.Unreadable as error:
        raise GpuprovError(f"{path}: {error}") from error
    return read(data, str(path))


def read(text: str | bytes, file: str) -> Policy:
    """Return the policy in a text. Raises SpecError with all its errors."""
    try:
        value, places = safe_parse.parse_placed_yaml(text, LARGEST)
    except safe_parse.Unreadable as error:
        raise SpecError([Problem(message=str(error), origin=Origin(file, error.line, error.column))]) from error
    if not isinstance(value, dict) or "gpuprov_rollout" not in value:
        begin = "this is not a policy of a roll-out: gpuprov_rollout is missing"
        raise SpecError(
            [Problem(message=begin, origin=Origin(file, 1, 1), fix="begin the policy with gpuprov_rollout: 1")]
        )
    policy, findings = convert(value, Policy)
    if policy is not None:
        findings = list(_check_across(policy))
    if findings:
        raise SpecError(
            Problem(message=message, path=at, fix=fix, origin=_find_origin(file, places, at))
            for at, message, fix in findings
        )
    return policy  # type: ignore[no-any-return]


def _find_origin(file: str, places: dict[Path, tuple[int, int]], path: Path) -> Origin:
    while path and path not in places:
        path = path[:-1]
    return Origin(file, *places.get(path, (1, 1)))


def _check_across(policy: Policy) -> Iterator[Finding]:
    """Yield the errors that no type expresses."""
    if policy.canary.hosts and policy.canary.count:
        yield (
            ("canary", "count"),
            f"canary has hosts and count: {policy.canary.count}",
            "name the hosts, or a number of them",
        )
    if policy.batches.by_domain and policy.batches.size != Batches().size:
        yield (
            ("batches", "size"),
            f"batches has by_domain and size: {policy.batches.size}",
            "a batch is a failure domain, or has a size",
        )
    if policy.domain is None:
        for path, value in (
            (("batches", "by_domain"), policy.batches.by_domain),
            (("limits", "per_domain"), policy.limits.per_domain),
        ):
            if value:
                yield (
                    path,
                    f"{'.'.join(path)} without a failure domain",
                    "domain: a group, or a host variable such as rack",
                )
    for number, approval in enumerate(policy.approvals):
        if approval.count > len({*approval.by}):
            message = f"approvals[{number}].count is {approval.count}, by names {len({*approval.by})}"
            yield ("approvals", number, "count"), message, "name more users, or ask fewer of them"
    if policy.drain:
        yield from _check_drain(policy.drain)
    if policy.windows:
        yield from _check_windows(policy.windows)


def _check_drain(drain: Drain) -> Iterator[Finding]:
    of = {"command": "command", "context": "kubernetes", "delete_emptydir_data": "kubernetes"}
    for field, adapter in of.items():
        if getattr(drain, field) and drain.adapter != adapter:
            yield ("drain", field), f"drain.{field} with adapter: {drain.adapter}", f"it goes with adapter: {adapter}"
    if drain.adapter == "command" and not drain.command:
        yield ("drain", "adapter"), "drain.command is missing", "command: what the site runs for each step of a host"


def _check_windows(windows: Windows) -> Iterator[Finding]:
    time_zone: Zone | None = zone(windows.time_zone)
    if time_zone is None:
        yield (
            ("windows", "time_zone"),
            f'windows.time_zone is "{windows.time_zone}"',
            "allowed: a name of the tz database, such as Europe/Berlin or UTC",
        )
    for number, text in enumerate(windows.open):
        begin, _, end = text.rpartition(" ")[2].partition("-")
        if begin == end:
            message = f'windows.open[{number}] is "{text}", which begins and ends at the same time'
            yield ("windows", "open", number), message, "a later end; a whole day is 00:00-24:00"
    longest = max(span.length for span in map(parsed, windows.open))
    if seconds(windows.margin) >= longest * 60:
        yield (
            ("windows", "margin"),
            f"windows.margin is {windows.margin}; no window is longer",
            "a shorter margin, or longer windows",
        )
