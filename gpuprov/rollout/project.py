"""A roll-out with all that an engine needs: the frozen fleet, the policy over it, how jobs are done and who drains."""

import os
import pwd
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path

import msgspec

from gpuprov.core import safe_parse
from gpuprov.core.errors import GpuprovError
from gpuprov.fleet.drain import Adapter, adapter
from gpuprov.fleet.drain.noted import Noted
from gpuprov.fleet.policy import policy as policies
from gpuprov.fleet.policy.events import Started
from gpuprov.fleet.policy.planned import Member, Plan, planned
from gpuprov.fleet.policy.policy import Policy
from gpuprov.fleet.policy.state import Job
from gpuprov.jobs import cut, stored
from gpuprov.jobs.frozen import raw_hosts
from gpuprov.jobs.model import Fleet
from gpuprov.rollout.addresses import reached
from gpuprov.rollout.kept import Kept, damaged
from gpuprov.rollout.store import Store

FLEET, POLICY, GIVEN = "fleet.json", "policy.yaml", "given.json"


class Given(msgspec.Struct, frozen=True, kw_only=True):
    """The options given at the start."""

    # The program that does a job, and its options for all jobs.
    words: tuple[str, ...]
    inventory: tuple[str, ...] = ()
    # The working folder then; ansible.cfg, keys, the vault's password file and the site's drain command may be relative
    # to it.
    folder: str = ""


class Project:
    """Read from the roll-out's folder, or made at its start."""

    def __init__(self, rollout: str, fleet: Fleet, policy: Policy, given: Given) -> None:
        self.id, self.fleet, self.policy, self.given = rollout, fleet, policy, given
        self.plan: Plan = planned(policy, members(fleet, policy))
        self.user = user()

    def words(self, job: Job) -> list[str]:
        """Return the command for a job, up to the job's file."""
        applies = job.act == "apply"
        permitted = ["--reboot"] if applies and self.policy.reboot == "if-needed" else []
        repairs = ["--repair", str(job.repairs)] if applies and self.policy.repair else []
        return [*self.given.words, "--act", job.act, *permitted, *repairs]

    @cached_property
    def adapter(self) -> Adapter | None:
        """Return the adapter that drains and returns hosts."""
        drain = self.policy.drain
        if drain is None:
            return None
        variables = {host.name: {**host.connection, **host.domains} for host in self.fleet.hosts}
        more = {"command": drain.command, "context": drain.context}
        chosen = adapter(drain.adapter, variables, **more, empty_dir=drain.delete_emptydir_data)
        return Noted(chosen, {raw.name: raw for raw in raw_hosts(self.fleet.hosts, self.fleet.specs)})


def members(fleet: Fleet, policy: Policy) -> list[Member]:
    """List the hosts with their failure domains and sites."""
    columns = [cut.domains(fleet, getattr(policy, key) or "", f"the policy's {key}") for key in ("domain", "site")]
    return [Member(host.name, host.groups, *where) for host, *where in zip(fleet.hosts, *columns, strict=True)]


def addresses(fleet: Fleet) -> list[tuple[str, str]]:
    """List each host's addresses, which identify it in all inventories, with its name."""
    return [(address, name) for name, address in reached(raw_hosts(fleet.hosts, fleet.specs))]


def begin(store: Store, project: Project, policy_text: bytes, at: float) -> None:
    """Store a new roll-out. Raises GpuprovError if it is not permitted."""
    hosts = [(name, address) for address, name in addresses(project.fleet)]
    kept = Kept(project.id, project.fleet.digest, at, project.user, True, len(project.fleet.hosts))
    files = {FLEET: stored.text(project.fleet).encode(), POLICY: policy_text, GIVEN: msgspec.json.encode(project.given)}
    store.begin(kept, hosts, Started(at=at, by=project.user), files)


def load(store: Store, rollout: str) -> Project:
    """Load a stored roll-out."""
    place = store.place(rollout)
    with readable(store, rollout):
        given = _collect_given(place / GIVEN)
        fleet, policy = stored.load_fleet(place / FLEET), policies.load(place / POLICY)
    return Project(rollout, fleet, policy, given)


def _collect_given(file: Path) -> Given:
    try:
        return safe_parse.parse_typed_json(safe_parse.read_contents(str(file)), Given)
    except OSError as error:
        raise GpuprovError(f"{file} cannot be read: {error.strerror}") from error
    except safe_parse.Unreadable as error:
        raise GpuprovError(f"{file} cannot be read: {error}") from error


@contextmanager
def readable(store: Store, rollout: str) -> Iterator[None]:
    """Context for reading files of the roll-out. Raises Damaged, with how to continue, if a file cannot be read."""
    place = store.place(rollout)
    fix = f"put {place} back from a backup"
    try:
        if not place.is_dir():
            raise GpuprovError(f"its folder {place} is missing")
        yield
    except stored.OtherVersion as error:
        raise damaged(store.get(rollout), error.message, "go on with the gpuprov that began it") from error
    except GpuprovError as error:
        raise damaged(store.get(rollout), "; ".join(error.message.splitlines()), fix) from error


def user() -> str:
    """Return the user who runs this; with sudo, the user who called it."""
    name = os.environ.get("SUDO_USER", "")
    try:
        return name if name and os.getuid() == 0 else pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())
