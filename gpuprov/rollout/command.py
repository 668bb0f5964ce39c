"""`gpuprov rollout ...`: begin, look, pause, resume, abort, approve. What is said goes to the console."""

from __future__ import annotations

import secrets
import sys
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path

import msgspec

from gpuprov import console, reading
from gpuprov.drain import check_client
from gpuprov.errors import GpuprovError
from gpuprov.rollout import events, policy, project
from gpuprov.rollout.engine import INTERRUPTED, NOW, Engine, Now, is_carried_out
from gpuprov.rollout.events import Event
from gpuprov.rollout.planned import Batch
from gpuprov.rollout.project import Given, Project
from gpuprov.rollout.state import State, folded
from gpuprov.rollout.status import Status, moment, standing, status
from gpuprov.rollout.store import Kept, Store
from gpuprov.rollout.text import as_text, count, line
from gpuprov.shown import hanging
from gpuprov.slices.model import Fleet

WATCHED = 1.0
"""Seconds between two looks of `rollout watch`."""


def new_id() -> str:
    """An id that says when the roll-out was begun."""
    return f"{datetime.now():%Y%m%d-%H%M}-{secrets.token_hex(2)}"


def start(
    fleet: Fleet,
    file: Path,
    rollout: str,
    words: Callable[[str, Fleet], Sequence[str]],
    *,
    yes: bool = False,
    as_json: bool = False,
) -> int:
    """Begin a roll-out of this fleet by the policy in the file, and carry it out. The same one again goes on with it."""
    text = reading.contents(str(file), policy.LARGEST) if file.is_file() else b""
    rules, name, store = policy.load(file), rollout or new_id(), Store()
    made = Project(name, fleet, rules, Given(words=tuple(words(name, fleet))))
    if known := next((one for one in store.all() if one.id == name), None):
        _refuse_another(store, known, made, text)
        _refuse_paused(store, name)
        return resume(name, retry=False, forgive=False, as_json=as_json)
    if rules.drain:
        check_client(rules.drain.adapter)
    console.progress("\n".join(about(made)))
    if not yes and not console.confirm("begin?"):
        raise GpuprovError("not confirmed: nothing was begun", "answer y, or give --yes")
    project.begin(store, made, text, time.time())
    console.progress(f"the roll-out {name} has begun; gpuprov rollout pause {name} stops new work")
    return _carry_out(store, name, as_json=as_json)


def _refuse_another(store: Store, known: Kept, made: Project, text: bytes) -> None:
    """Raise GpuprovError where the roll-out of this id is over, or of something else."""
    before = project.load(store, known.id)
    if not known.open:
        raise GpuprovError(f"the roll-out {known.id} is over", "take another --id")
    if known.fleet != made.fleet.digest or (store.place(known.id) / project.POLICY).read_bytes() != text:
        what = "policy" if known.fleet == made.fleet.digest else "inventory"
        told = f"the roll-out {known.id} was begun with another {what}, and goes on with that one"
        hint = f"gpuprov rollout resume {known.id}; or abort it, and begin another"
        raise GpuprovError(told, hint)
    console.progress(f"the roll-out {known.id} was begun by {known.by}: going on, {count(len(before.fleet.hosts))}")


def _refuse_paused(store: Store, name: str) -> None:
    """Raise GpuprovError where somebody has paused it. What an interrupt of its own process paused goes on."""
    paused = _state(store, name)[1].paused
    if paused and not paused.endswith(f": {INTERRUPTED}"):
        raise GpuprovError(f"the roll-out {name} is paused {paused}", f"gpuprov rollout resume {name} goes on with it")


def about(made: Project) -> list[str]:
    """What is about to begin."""
    told = [
        f"{count(len(made.fleet.hosts))}, by {made.policy.domain}"
        if made.policy.domain
        else count(len(made.fleet.hosts))
    ]
    width = console.room(sys.stderr)
    for batch in made.plan.batches[:SHOWN]:
        told.append(_batch(batch))
    if len(made.plan.batches) > SHOWN:
        told.append(f"  and {len(made.plan.batches) - SHOWN} more batches")
    return [part for one in told for part in hanging(one, width)]


SHOWN = 6
"""Batches that are named before a start."""


def _batch(batch: Batch) -> str:
    from gpuprov.inventory.names import folded as names

    return f"  {batch.name}: {names(batch.hosts)} ({count(len(batch.hosts))})"


def _carry_out(store: Store, name: str, *, as_json: bool) -> int:
    engine = Engine(store, project.load(store, name), tell=_stamped)
    engine.run()
    return show(name, as_json=as_json)


def _stamped(text: str) -> None:
    for one in text.splitlines():
        console.progress(f"{datetime.now():%H:%M:%S} {one}")


def _state(store: Store, rollout: str) -> tuple[Project, State]:
    made = project.load(store, rollout)
    return made, folded(made.plan, store.events(rollout))


def told(store: Store, kept: Kept) -> Status:
    """Where this roll-out stands."""
    made, state = _state(store, kept.id)
    place = store.place(kept.id)
    carried_out = is_carried_out(place)
    now = Now()
    if carried_out:
        try:
            now = reading.typed_json(reading.contents(str(place / NOW)), Now)
        except (OSError, reading.Unreadable):
            now = Now()
    found = status(kept.id, state, carried_out=carried_out, domains=made.plan.domains, details=now.hosts)
    until = moment(now.until) if now.until else ""
    more = {"fleet": kept.fleet, "by": kept.by, "waits": now.waits, "until": until, "results": str(place / "results")}
    return msgspec.structs.replace(found, **more)


def show(rollout: str = "", *, as_json: bool = False) -> int:
    """Where a roll-out stands, and its exit code."""
    store = Store()
    found = told(store, store.one(rollout))
    if as_json:
        console.result(msgspec.json.format(msgspec.json.encode(found), indent=2).decode())
    else:
        console.result(as_text(found, min(console.width(), WIDEST)))
    return found.exit_code


WIDEST = 100


def listed(*, as_json: bool) -> int:
    """All roll-outs, a line each."""
    store = Store()
    known = store.all()
    if as_json:
        console.result(msgspec.json.format(msgspec.json.encode(known), indent=2).decode())
        return 0
    for one in known:
        _, state = _state(store, one.id)
        stands = standing(state, is_carried_out(store.place(one.id)))
        console.result(f"{one.id}: {stands}, {count(one.hosts)}, begun {moment(one.begun)} by {one.by}")
    if not known:
        console.result("no roll-outs")
    return 0


def _add(store: Store, rollout: str, event: Callable[[State, Project], Event]) -> Event:
    """Record what a person says, as the roll-out stands at that moment. Raises GpuprovError where it is over."""
    while True:
        made, state = _state(store, rollout)
        if state.finished:
            raise GpuprovError(f"the roll-out {rollout} is over", f"gpuprov rollout status {rollout} shows it")
        made_event = event(state, made)
        if store.record(rollout, state.seen, [made_event]):
            console.progress(line(made_event, state))
            return made_event


def pause(rollout: str, why: str) -> int:
    """Nothing new is started from now on."""
    store = Store()
    _add(store, store.one(rollout).id, lambda _, made: events.Paused(at=time.time(), by=made.user, why=why))
    return 0


def resume(rollout: str, *, retry: bool, forgive: bool, as_json: bool) -> int:
    """Go on: with what was paused, stopped, or left by a process that is gone."""
    store = Store()
    kept = store.one(rollout)
    _, state = _state(store, kept.id)
    if state.finished:
        raise GpuprovError(f"the roll-out {kept.id} is over", f"gpuprov rollout status {kept.id} shows it")
    if state.stopped and not (retry or forgive):
        hint = "--retry does again what failed; --forgive leaves it, and counts it no more"
        raise GpuprovError(f"the roll-out {kept.id} is stopped: {state.stopped}", hint)
    if state.paused or state.stopped or retry or forgive:

        def event(_: State, made: Project) -> Event:
            return events.Resumed(at=time.time(), by=made.user, retry=retry, forgive=forgive)

        _add(store, kept.id, event)
    if is_carried_out(store.place(kept.id)):
        console.progress(f"another process carries it out: gpuprov rollout watch {kept.id}")
        return 0
    return _carry_out(store, kept.id, as_json=as_json)


def abort(rollout: str, why: str, *, as_json: bool) -> int:
    """End it: what is under way comes to its end, hosts are given back."""
    store = Store()
    kept = store.one(rollout)
    _add(store, kept.id, lambda _, made: events.Aborted(at=time.time(), by=made.user, why=why))
    if is_carried_out(store.place(kept.id)):
        console.progress(f"another process brings it to its end: gpuprov rollout watch {kept.id}")
        return 0
    return _carry_out(store, kept.id, as_json=as_json)


def approve(rollout: str, step: str) -> int:
    """Approve a step; without one, the one that is next."""
    store = Store()

    def event(state: State, made: Project) -> Event:
        asked = [
            one for batch in made.plan.batches if batch.number not in state.over for one in made.plan.approvals(batch)
        ]
        if step:
            asked = [one for one in asked if one[0] == step]
        for name, approval in asked:
            given = state.approved.get(name, set())
            if len(given & {*approval.by}) >= approval.count:
                continue
            if made.user not in approval.by:
                raise GpuprovError(
                    f'"{name}" is approved by {", ".join(approval.by)}; you are {made.user}', "ask one of them"
                )
            if made.user in given:
                raise GpuprovError(f'{made.user} has approved "{name}" already', "another one has to")
            return events.Approved(at=time.time(), step=name, by=made.user)
        told = f'no approval of "{step}" is open' if step else "no approval is open"
        raise GpuprovError(told, "gpuprov rollout status shows what is waited for")

    _add(store, store.one(rollout).id, event)
    return 0


def watch(rollout: str, *, as_json: bool) -> int:
    """What happens, as it happens, until the roll-out is over or nobody carries it out."""
    store = Store()
    kept = store.one(rollout)
    made = project.load(store, kept.id)
    state = State(made.plan)
    while True:
        for event in store.events(kept.id, state.seen):
            state.add(event)
            if words := line(event, state):
                for one in words.splitlines():
                    console.progress(f"{datetime.fromtimestamp(event.at):%m-%d %H:%M:%S} {one}")
        if state.finished or not is_carried_out(store.place(kept.id)):
            return show(kept.id, as_json=as_json) or int(not state.finished)
        time.sleep(WATCHED)
