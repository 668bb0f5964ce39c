"""The files of roll-outs on a worker's machine, by their digests: a fleet and a policy; jobs and results under a
roll-out's id."""

import hashlib
import re
import time
from functools import lru_cache
from pathlib import Path

from gpuprov.core import safe_parse
from gpuprov.core.errors import GpuprovError
from gpuprov.fleet.policy import policy as policies
from gpuprov.fleet.policy.policy import Policy
from gpuprov.fleet.policy.windows import changes
from gpuprov.jobs import stored
from gpuprov.jobs.model import Fleet
from gpuprov.report.files import refuse_anothers, state_folder, write_atomic
from gpuprov.rollout import project
from gpuprov.rollout.kept import checked_id
from gpuprov.rollout.project import Given, Project
from gpuprov.rollout.temporal.messages import Loaded, packed

# Seconds ahead for which changes of a time zone are known.
AHEAD = 10 * 366 * 86400


def _compute_digest(text: str) -> str:
    if not re.fullmatch("[0-9a-f]{64}", text):
        raise GpuprovError(f"{text[:80]!r} is not a digest of a file", "see who may write to the Temporal server")
    return text


def default_folder() -> Path:
    """Return this user's default folder."""
    return state_folder("temporal")


class Files:
    """A folder of this user."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            refuse_anothers(folder)
        except OSError as error:
            fix = "name another folder with --folder"
            raise GpuprovError(f"{folder}: roll-outs cannot be kept there: {error.strerror}", fix) from error
        self.project = lru_cache(4)(self._project)

    def fleet(self, digest: str) -> Path:
        return self.folder / f"fleet-{_compute_digest(digest)}.json"

    def policy(self, digest: str) -> Path:
        return self.folder / f"policy-{_compute_digest(digest)}.yaml"

    def place(self, rollout: str) -> Path:
        """Return the folder of one roll-out: output of its processes, and results. Raises GpuprovError for an invalid
        name, so that a server cannot make it lead elsewhere."""
        checked_id(rollout)
        return self.folder / rollout

    def keep(self, made: Project, policy_text: bytes) -> str:
        """Write fleet and policy, and return the policy's digest."""
        digest = hashlib.sha256(policy_text).hexdigest()
        stored.save(made.fleet, self.fleet(made.fleet.digest))
        write_atomic(self.policy(digest), policy_text.decode(), mode=0o600)
        return digest

    def fleet_of(self, digest: str) -> Fleet:
        """Return the fleet with this digest. Raises GpuprovError if it is not here."""
        fleet = stored.load_fleet(self._require_file(self.fleet(digest)))
        if fleet.digest != digest:
            raise GpuprovError(f"{self.fleet(digest)} is another fleet: its digest does not fit", "copy it again")
        return fleet

    def _project(self, rollout: str, fleet: str, policy: str) -> Project:
        return Project(rollout, self.fleet_of(fleet), self._policy(policy), Given(words=()))

    def _require_file(self, path: Path) -> Path:
        if not path.is_file():
            raise GpuprovError(f"{path} is not here", "copy it from the folder of whoever began the roll-out")
        return path

    def _policy(self, digest: str) -> Policy:
        path = self._require_file(self.policy(digest))
        try:
            data = safe_parse.read_own_contents(str(path), policies.LARGEST)
        except (OSError, safe_parse.NotOwn, safe_parse.Unreadable) as error:
            raise GpuprovError(f"{path} cannot be read: {error}") from error
        if hashlib.sha256(data).hexdigest() != digest:
            raise GpuprovError(f"{path} was changed: its digest does not fit", "copy it again")
        return policies.read(data, str(path))

    def loaded(self, fleet: str, policy: str) -> Loaded:
        """Return what a workflow needs from both files."""
        opened = self.project("any", fleet, policy)
        zone, now = opened.plan.zone, time.time()
        pinned = changes(zone, now - 366 * 86400, now + AHEAD) if zone else []
        return Loaded(members=packed(project.members(opened.fleet, opened.policy)), policy=opened.policy, zone=pinned)
