"""`gpuprov rollout ...`: begin, look, pause, resume, abort, approve. Messages go to the console."""

import hashlib
import os
import secrets
import sys
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path

import msgspec

from gpuprov.core import safe_parse, terminal
from gpuprov.core.errors import GpuprovError
from gpuprov.core.safe_parse import format_document
from gpuprov.core.sanitize import hanging
from gpuprov.fleet.policy import policy
from gpuprov.fleet.policy.planned import Batch
from gpuprov.fleet.policy.state import State, folded
from gpuprov.jobs.model import Fleet
from gpuprov.rollout import lost
from gpuprov.rollout.approvals import Abort, Resume, Said
from gpuprov.rollout.base import Engine, Now
from gpuprov.rollout.engine import INTERRUPTED
from gpuprov.rollout.kept import Damaged, Kept
from gpuprov.rollout.project import Given, Project, user
from gpuprov.rollout.status import Status, moment, standing, status
from gpuprov.rollout.text import as_text, awaited, count, line

# Seconds between two updates of `rollout watch`.
WATCHED = 1.0


def new_id() -> str:
    """Return an id that contains the time when the roll-out was begun."""
    return f"{datetime.now():%Y%m%d-%H%M}-{secrets.token_hex(2)}"


def start(
    engine: Engine,
    fleet: Fleet,
    file: Path,
    rollout: str,
    words: Callable[[str, Fleet], Sequence[str]],
    *,
    yes: bool = False,
    as_json: bool = False,
) -> int:
    """Begin a roll-out of this fleet with the policy in the file, and carry it out. The same command again continues
    it."""
    text = safe_parse.read_contents(str(file), policy.LARGEST) if file.is_file() else b""
    rules, name = policy.load(file), rollout or new_id()
    made = Project(name, fleet, rules, Given(words=tuple(words(name, fleet)), folder=os.getcwd()))
    if known := next((kept for kept in engine.all() if kept.id == name), None):
        _refuse_another(engine, known, made, text)
        _refuse_paused(engine, name)
        return resume(engine, name, retry=False, forgive=False, as_json=as_json)
    engine.check(made)
    if not yes and not terminal.can_ask():
        raise GpuprovError("rollout start asks before it begins, and there is no terminal to ask on", "--yes")
    terminal.progress("\n".join(about(made)))
    if not yes and not terminal.confirm("begin?"):
        raise GpuprovError("not confirmed: nothing was begun", "answer y, or give --yes")
    engine.begin(made, text)
    terminal.progress(f"the roll-out {name} has begun; gpuprov rollout pause {name} stops new work")
    engine.carry_out(name, _check_stamp)
    return show(engine, name, as_json=as_json)


def _refuse_another(engine: Engine, known: Kept, made: Project, text: bytes) -> None:
    """Raise GpuprovError if the roll-out with this id is over, or has another plan or policy."""
    if not known.open:
        raise GpuprovError(f"the roll-out {known.id} is over", "take another --id")
    if known.fleet != made.fleet.digest or engine.policy(known.id) != hashlib.sha256(text).hexdigest():
        what = "policy" if known.fleet == made.fleet.digest else "inventory"
        message = f"the roll-out {known.id} was begun with another {what}, and goes on with that one"
        fix = f"gpuprov rollout resume {known.id}; or abort it, and begin another"
        raise GpuprovError(message, fix)
    terminal.progress(f"the roll-out {known.id} was begun by {known.by}: going on, {count(known.hosts)}")


def _refuse_paused(engine: Engine, name: str) -> None:
    """Raise GpuprovError if somebody has paused it. A roll-out paused by an interrupt of its own process continues."""
    paused = _read_state(engine, name).paused
    if paused and not paused.endswith(f": {INTERRUPTED}"):
        raise GpuprovError(f"the roll-out {name} is paused {paused}", f"gpuprov rollout resume {name} goes on with it")


def about(made: Project) -> list[str]:
    """Describe the roll-out that is about to begin."""
    lines = [
        f"{count(len(made.fleet.hosts))}, by {made.policy.domain}"
        if made.policy.domain
        else count(len(made.fleet.hosts))
    ]
    width = terminal.room(sys.stderr)
    for batch in made.plan.batches[:SHOWN]:
        lines.append(_format_batch(batch))
    if len(made.plan.batches) > SHOWN:
        lines.append(f"  and {len(made.plan.batches) - SHOWN} more batches")
    return [part for row in lines for part in hanging(row, width)]


# Maximum number of batches listed before a start.
SHOWN = 6


def _format_batch(batch: Batch) -> str:
    from gpuprov.inventory.names import fold_names as names

    return f"  {batch.name}: {names(batch.hosts)} ({count(len(batch.hosts))})"


def _check_stamp(text: str) -> None:
    for row in text.splitlines():
        terminal.progress(f"{datetime.now():%H:%M:%S} {row}")


def _read_state(engine: Engine, rollout: str) -> State:
    return folded(engine.plan(rollout), engine.events(rollout))


def find_status(engine: Engine, kept: Kept) -> Status:
    """Return the status of this roll-out."""
    state, now = _read_state(engine, kept.id), engine.now(kept.id)
    known = now or Now()
    current = status(kept.id, state, carried_out=now is not None, domains=state.plan.domains, details=known.hosts)
    until = moment(known.until) if known.until else ""
    more = {
        "fleet": kept.fleet,
        "by": kept.by,
        "waits": known.waits,
        "until": until,
        "results": engine.results(kept.id),
    }
    return msgspec.structs.replace(current, **more)


def show(engine: Engine, rollout: str = "", *, as_json: bool = False) -> int:
    """Print the status of a roll-out, and return its exit code."""
    current = find_status(engine, engine.get(rollout))
    if as_json:
        terminal.result(format_document(current))
    else:
        terminal.result(as_text(current, min(terminal.width(), WIDEST)))
    return current.exit_code


WIDEST = 100


def listed(engine: Engine, *, as_json: bool) -> int:
    """Print all roll-outs, a line each."""
    known, code = [], 0
    for entry in engine.all():
        why = ""
        try:
            stands: str = standing(_read_state(engine, entry.id), engine.now(entry.id) is not None)
        except Damaged as error:
            stands, why = "damaged", error.message
            if over := lost.over(engine.events(entry.id)):
                stands = f"{over}, its files are damaged"
            else:
                terminal.error(error)
                code = error.exit_code
        known.append(msgspec.structs.replace(entry, damaged=why))
        if not as_json:
            terminal.result(f"{entry.id}: {stands}, {count(entry.hosts)}, begun {moment(entry.begun)} by {entry.by}")
    if as_json:
        terminal.result(format_document(known))
    elif not known:
        terminal.result("no roll-outs")
    return code


def say(engine: Engine, rollout: str, request: Said) -> str:
    """Record what a person says to a roll-out, by default the open one; return its id."""
    name = engine.get(rollout).id
    if event := engine.say(name, request):
        terminal.progress(line(event, _read_state(engine, name)))
    return name


def resume(engine: Engine, rollout: str, *, retry: bool, forgive: bool, as_json: bool) -> int:
    """Continue a roll-out that was paused or stopped, or whose process is gone."""
    name = say(engine, rollout, Resume(by=user(), retry=retry, forgive=forgive))
    if not engine.carry_out(name, _check_stamp):
        terminal.progress(f"another process carries it out: gpuprov rollout watch {name}")
        return 0
    return show(engine, name, as_json=as_json)


def abort(engine: Engine, rollout: str, why: str, *, as_json: bool) -> int:
    """End it: running jobs are completed, and hosts are given back."""
    request = Abort(by=user(), why=why)
    kept = engine.get(rollout)
    try:
        engine.plan(kept.id)
    except Damaged as damaged:
        engine.say(kept.id, request)
        return _report_ended(engine, kept, damaged, as_json=as_json)
    name = say(engine, kept.id, request)
    if not engine.carry_out(name, _check_stamp):
        terminal.progress(f"another process brings it to its end: gpuprov rollout watch {name}")
        return 0
    return show(engine, name, as_json=as_json)


def _report_ended(engine: Engine, kept: Kept, damaged: Damaged, *, as_json: bool) -> int:
    """Report a roll-out that was ended without its files, and what it could not complete."""
    terminal.warning(damaged.message)
    ended = lost.find_status(kept, engine.events(kept.id))
    if ended is None:
        terminal.progress("another process brings it to its end")
        return 0
    for warning, fix in lost.left(kept.id, engine.events(kept.id)):
        terminal.warning(warning)
        terminal.fix(fix)
    terminal.result(format_document(ended) if as_json else f"{kept.id}: aborted {ended.why}")
    return ended.exit_code


def watch(engine: Engine, rollout: str, *, as_json: bool) -> int:
    """Print events as they happen, until the roll-out is over or no process carries it out."""
    kept = engine.get(rollout)
    state, waits = State(engine.plan(kept.id)), [""]
    while True:
        for event in engine.events(kept.id, state.seen):
            state.add(event)
            if words := line(event, state):
                for text in words.splitlines():
                    terminal.progress(f"{datetime.fromtimestamp(event.at):%m-%d %H:%M:%S} {text}")
        now = engine.now(kept.id)
        if now and now.waits != waits:
            waits = now.waits
            for text in waits:
                _check_stamp(f"{text}, until {moment(now.until)}" if now.until else text)
                if step := awaited(text):
                    terminal.fix(f'gpuprov rollout approve {kept.id} "{step}"')
        if state.finished or now is None:
            return show(engine, kept.id, as_json=as_json) or int(not state.finished)
        time.sleep(WATCHED)
