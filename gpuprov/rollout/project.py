"""One roll-out with all that an engine needs: the frozen fleet, the policy over it, how jobs are done and who drains."""

from __future__ import annotations

import os
import pwd
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import msgspec

from gpuprov import reading
from gpuprov.drain import Adapter
from gpuprov.errors import GpuprovError
from gpuprov.gather.settings import Settings
from gpuprov.rollout import policy as policies
from gpuprov.rollout.events import Started
from gpuprov.rollout.planned import Member, Plan, planned
from gpuprov.rollout.policy import Policy
from gpuprov.rollout.store import Kept, Store
from gpuprov.slices import cut, stored
from gpuprov.slices.frozen import raw_hosts
from gpuprov.slices.model import Fleet

FLEET, POLICY, GIVEN = "fleet.json", "policy.yaml", "given.json"


class Given(msgspec.Struct, frozen=True, kw_only=True):
    """What was said at the start. `words`: the program that does a job, and its options for all jobs."""

    words: tuple[str, ...]
    inventory: tuple[str, ...] = ()


class Project:
    """Read from the roll-out's folder, or made at its start."""

    def __init__(self, rollout: str, fleet: Fleet, policy: Policy, given: Given) -> None:
        self.id, self.fleet, self.policy, self.given = rollout, fleet, policy, given
        self.plan: Plan = planned(policy, members(fleet, policy))
        self.user = user()

    @property
    def words(self) -> tuple[str, ...]:
        """The command that does a job, up to the job's file."""
        return self.given.words

    @cached_property
    def adapter(self) -> Adapter | None:
        """Who drains and returns hosts."""
        return None


def members(fleet: Fleet, policy: Policy) -> list[Member]:
    """The hosts with their failure domains."""
    domains = cut.domains(fleet, policy.domain or "")
    return [Member(host.name, host.groups, domain) for host, domain in zip(fleet.hosts, domains, strict=True)]


def begin(store: Store, project: Project, policy_text: bytes, at: float) -> None:
    """Keep a new roll-out. Raises GpuprovError where it may not be."""
    hosts = [(raw.name, Settings(raw).address) for raw in raw_hosts(project.fleet.hosts, project.fleet.specs)]
    kept = Kept(project.id, project.fleet.digest, at, project.user, True, len(hosts))
    files = {
        FLEET: stored.text(project.fleet).encode(),
        POLICY: policy_text,
        GIVEN: msgspec.json.encode(project.given),
    }
    store.begin(kept, hosts, Started(at=at, by=project.user), files)


def load(store: Store, rollout: str) -> Project:
    """A roll-out that was kept."""
    place = store.place(rollout)
    try:
        given = reading.typed_json(reading.contents(str(place / GIVEN)), Given)
    except (OSError, reading.Unreadable) as error:
        raise GpuprovError(
            f"{place / GIVEN} cannot be read: {error}", "the folder of a roll-out is left as it is"
        ) from error
    return Project(rollout, stored.load_fleet(place / FLEET), policies.load(place / POLICY), given)


def user() -> str:
    """Who runs this: behind sudo, who called it."""
    name = os.environ.get("SUDO_USER", "")
    try:
        return name if name and os.getuid() == 0 else pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def same(store: Store, project: Project, policy_text: bytes) -> bool:
    """Whether an open roll-out of this id is of the same fleet and policy."""
    place: Path = store.place(project.id)
    known: Sequence[Kept] = [one for one in store.all() if one.id == project.id and one.open]
    return bool(known) and known[0].fleet == project.fleet.digest and (place / POLICY).read_bytes() == policy_text
