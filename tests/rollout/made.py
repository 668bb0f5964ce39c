"""A roll-out over stub hosts, in a folder; run as a program it is one whose engine kills itself at a named moment."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from gpuprov.fleet.drain import Step
from gpuprov.fleet.policy.policy import read
from gpuprov.fleet.policy.state import State
from gpuprov.jobs.model import Fleet, Host, digest_of
from gpuprov.rollout import engine, jobs, project, store
from gpuprov.rollout.status import status

STUB = Path(__file__).with_name("stub.py")


def fleet(count: int) -> Fleet:
    hosts = tuple(
        Host(name=f"gpu{n:04}", groups=("all",), spec="one", domains={"rack": f"r{n % 4}"}) for n in range(count)
    )
    made = Fleet(specs={"one": {"nouveau": {}}}, groups={"all": ()}, hosts=hosts)
    return msgspec.structs.replace(made, digest=digest_of(made))


class Marks:
    """A scheduler that is a folder: a file is a node that is drained, by the run that stands in it."""

    name = "command"

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)

    def step(self, host: str, state: Any, **more: Any) -> Step:
        return Step(host=host, node=host, state=state, **more)

    def drain(self, host: str, run: str) -> Step:
        (self.folder / host).write_text(run)
        return self.step(host, "done")

    def drained(self, host: str, run: str) -> Step:
        file = self.folder / f"{host}.asked"
        if file.exists():
            return self.step(host, "done")
        file.touch()
        return self.step(host, "waiting", waits_for=("job 4711",))

    def returned(self, host: str, run: str, green: bool) -> Step:
        if not green:
            return self.step(host, "refused", message="not green")
        for name in (host, f"{host}.asked"):
            (self.folder / name).unlink(missing_ok=True)
        return self.step(host, "done")


def begun(
    folder: Path, count: int, policy: str, behaviour: dict[str, Any] | None = None, rollout: str = "friday"
) -> project.Project:
    """A roll-out that was begun in this folder, and that nobody carries out."""
    folder.mkdir(exist_ok=True)
    (folder / "behaviour.json").write_text(json.dumps(behaviour or {}))
    text = f"gpuprov_rollout: 1\n{policy}"
    given = project.Given(words=(sys.executable, str(STUB), "--run", rollout))
    made = project.Project(rollout, fleet(count), read(text, "rollout.yaml"), given)
    project.begin(store.Store(folder / "state"), made, text.encode(), 1000.0)
    return made


def carry_out(folder: Path, rollout: str = "friday", tell: Callable[[str], None] = lambda _text: None) -> State:
    """Go on with it until it ends."""
    os.environ["STUB"] = str(folder)
    kept = store.Store(folder / "state")
    loaded = project.load(kept, rollout)
    if loaded.policy.drain:
        loaded.__dict__["adapter"] = Marks(folder / "drained")
    return engine.Engine(kept, loaded, tick=0.02, tell=tell).run()


def report(folder: Path, rollout: str = "friday") -> dict[str, Any]:
    """What became of it, without times."""
    kept = store.Store(folder / "state")
    loaded = project.load(kept, rollout)
    state = State(loaded.plan)
    for event in kept.events(rollout):
        state.add(event)
    told = status(rollout, state, carried_out=False, domains=loaded.plan.domains, details={})
    return {**msgspec.to_builtins(told), "begun": ""}


def attempts(folder: Path, act: str = "apply", dead: frozenset[str] = frozenset()) -> Counter[str]:
    """How often each host was begun on. Fails where two processes were at one host at the same time. `dead`: pids that
    were killed."""
    found: Counter[str] = Counter()
    busy: dict[str, str] = {}
    for word, what, host, pid in logged(folder):
        if word == "begin":
            assert busy.get(host, pid) in {pid, *dead}, f"{host} is worked on by two processes"
            busy[host] = pid
            found.update([host] if what == act else [])
        else:
            busy.pop(host, None)
    return found


def logged(folder: Path) -> list[list[str]]:
    file = folder / "log"
    return [line.split() for line in file.read_text().splitlines()] if file.exists() else []


def at_work(folder: Path) -> set[str]:
    """Processes that have begun on a host and not ended."""
    lines = logged(folder)
    ends = {(what, host, pid) for word, what, host, pid in lines if word == "end"}
    return {pid for word, what, host, pid in lines if word == "begin" and (what, host, pid) not in ends}


def killed_at(moment: str, nth: int) -> None:
    """This process kills itself when it comes to the moment for the nth time."""
    left = [nth]

    def reached() -> None:
        left[0] -= 1
        if not left[0]:
            os.kill(os.getpid(), signal.SIGKILL)

    record, start, note = store.Store.record, jobs.Worker.start, engine.Engine._note
    when, _, kind = moment.partition(" ")

    def recording(self: store.Store, rollout: str, seen: int, found: Any, **more: Any) -> bool:
        is_it = any(type(one).__name__ == kind for one in found)
        if is_it and when == "before":
            reached()
        done = record(self, rollout, seen, found, **more)
        if is_it and when == "after":
            reached()
        return done

    def starting(self: jobs.Worker, of: Fleet) -> None:
        start(self, of)
        if moment == "started":
            reached()

    def noting(self: engine.Engine, waits: Any, now: float) -> None:
        note(self, waits, now)
        if moment == "soak" and any("soaks" in one.why for one in waits):
            reached()

    store.Store.record = recording  # type: ignore[method-assign,assignment]
    jobs.Worker.start = starting  # type: ignore[method-assign,assignment]
    engine.Engine._note = noting  # type: ignore[method-assign]


if __name__ == "__main__":
    killed_at(sys.argv[2], int(sys.argv[3]))
    carry_out(Path(sys.argv[1]))
