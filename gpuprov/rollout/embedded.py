"""The embedded engine as used by the commands: this machine, this user, SQLite and a folder for each roll-out."""

import hashlib
import time
from collections.abc import Iterator
from contextlib import ExitStack, chdir, contextmanager

from gpuprov.core import safe_parse
from gpuprov.core.errors import GpuprovError
from gpuprov.fleet.drain import check_client
from gpuprov.fleet.policy.events import Aborted, Event, Finished
from gpuprov.fleet.policy.planned import Plan
from gpuprov.fleet.policy.state import folded
from gpuprov.rollout import project
from gpuprov.rollout.approvals import Abort, Said, event_of
from gpuprov.rollout.base import Now, Tell
from gpuprov.rollout.engine import NOW, Engine, is_carried_out
from gpuprov.rollout.jobs import at_work
from gpuprov.rollout.kept import Damaged, Kept, is_over
from gpuprov.rollout.project import Project
from gpuprov.rollout.store import Store


class Embedded:
    """The roll-outs of this user on this machine."""

    def __init__(self) -> None:
        self._store = Store()

    def all(self) -> list[Kept]:
        return self._store.all()

    def get(self, rollout: str = "") -> Kept:
        return self._store.get(rollout)

    def plan(self, rollout: str) -> Plan:
        return project.load(self._store, rollout).plan

    def policy(self, rollout: str) -> str:
        file = self._store.place(rollout) / project.POLICY
        with project.readable(self._store, rollout):
            try:
                return hashlib.sha256(safe_parse.read_contents(str(file))).hexdigest()
            except (OSError, safe_parse.Unreadable) as error:
                reason = error.strerror if isinstance(error, OSError) else error
                raise GpuprovError(f"{file} cannot be read: {reason}") from error

    def events(self, rollout: str, seen: int = 0) -> list[Event]:
        return self._store.events(rollout, seen)

    def now(self, rollout: str) -> Now | None:
        place = self._store.place(rollout)
        if not is_carried_out(place):
            return None
        try:
            return safe_parse.parse_typed_json(safe_parse.read_contents(str(place / NOW)), Now)
        except (OSError, safe_parse.Unreadable):
            return Now()

    def results(self, rollout: str) -> str:
        return str(self._store.place(rollout) / "results")

    def check(self, made: Project) -> None:
        if made.policy.drain:
            check_client(made.policy.drain.adapter)

    def begin(self, made: Project, policy_text: bytes) -> None:
        project.begin(self._store, made, policy_text, time.time())

    def say(self, rollout: str, request: Said) -> Event | None:
        try:
            plan = self.plan(rollout)
        except Damaged:
            if not isinstance(request, Abort):
                raise
            return self._end(rollout, request)
        while True:
            state = folded(plan, self._store.events(rollout))
            event = event_of(request, rollout, state, time.time())
            if event is None or self._store.record(rollout, state.seen, [event]):
                return event

    def _end(self, rollout: str, request: Abort) -> Event:
        """Abort a roll-out of which only the recorded events are left: at once, if no engine is working on it."""
        place = self._store.place(rollout)
        while True:
            if not self._store.get(rollout).open:
                raise is_over(rollout)
            carried_out = is_carried_out(place)
            if not carried_out and (numbers := at_work(place)):
                message = f"the roll-out {rollout} still has a process at work (job {', '.join(map(str, numbers))})"
                raise GpuprovError(message, "it ends by itself; then abort the roll-out")
            at, seen = time.time(), len(self._store.events(rollout))
            event = Aborted(at=at, by=request.by, why=request.why)
            last = [] if carried_out else [Finished(at=at)]
            if self._store.record(rollout, seen, [event, *last], over=not carried_out):
                return event

    def carry_out(self, rollout: str, tell: Tell) -> bool:
        if is_carried_out(self._store.place(rollout)):
            return False
        made = project.load(self._store, rollout)
        with _where_it_began(made.given.folder, tell):
            Engine(self._store, made, tell=tell).run()
        return True


@contextmanager
def _where_it_began(folder: str, tell: Tell) -> Iterator[None]:
    """Change to the folder of the start, where jobs and drains run: the process that continues may start elsewhere, as
    systemd does."""
    with ExitStack() as stack:
        try:
            stack.enter_context(chdir(folder or "."))
        except OSError as error:
            tell(
                f"{folder}, where it was begun, cannot be entered ({error.strerror}): what is named from there is "
                "not found"
            )
        yield
