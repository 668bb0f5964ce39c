"""Commands from people to a roll-out, and their effect in its current state. Pure: every engine uses this."""

from __future__ import annotations

import msgspec

from gpuprov.errors import GpuprovError
from gpuprov.fleet_policy import events
from gpuprov.fleet_policy.events import Event
from gpuprov.fleet_policy.state import State
from gpuprov.rollout.kept import is_over


class _Said(msgspec.Struct, frozen=True, kw_only=True, tag_field="said", omit_defaults=True):
    """`by`: the user who gave the command."""

    by: str


class Pause(_Said, frozen=True, tag="pause"):
    why: str = ""


class Resume(_Said, frozen=True, tag="resume"):
    """`retry`: repeat what failed, or waits. `forgive`: no longer count it as failed."""

    retry: bool = False
    forgive: bool = False


class Abort(_Said, frozen=True, tag="abort"):
    why: str = ""


class Approve(_Said, frozen=True, tag="approve"):
    """`step`: empty for the next step."""

    step: str = ""


Said = Pause | Resume | Abort | Approve


def event_of(said: Said, rollout: str, state: State, at: float) -> Event | None:
    """Return the event to record for a command; None if there is nothing to record. Raises GpuprovError if the command is not
    permitted now."""
    if state.finished:
        raise is_over(rollout)
    match said:
        case Pause(by=by, why=why):
            return events.Paused(at=at, by=by, why=why)
        case Abort(by=by, why=why):
            return events.Aborted(at=at, by=by, why=why)
        case Approve():
            return _approved(said, state, at)
        case Resume(by=by, retry=retry, forgive=forgive):
            if state.stopped and not (retry or forgive):
                hint = "--retry does again what failed; --forgive leaves it, and counts it no more"
                raise GpuprovError(f"the roll-out {rollout} is stopped: {state.stopped}", hint)
            if state.paused or state.stopped or retry or forgive:
                return events.Resumed(at=at, by=by, retry=retry, forgive=forgive)
    return None


def _approved(said: Approve, state: State, at: float) -> Event:
    open_ones = [batch for batch in state.plan.batches if batch.number not in state.over]
    asked = [one for batch in open_ones for one in state.plan.approvals(batch)]
    for name, approval in asked:
        if said.step not in ("", name):
            continue
        given = state.approved.get(name, set())
        if len(given & {*approval.by}) >= approval.count:
            continue
        if said.by not in approval.by:
            told = f'"{name}" is approved by {", ".join(approval.by)}; you are {said.by}'
            raise GpuprovError(told, "ask one of them")
        if said.by in given:
            raise GpuprovError(f'{said.by} has approved "{name}" already', "another one has to")
        return events.Approved(at=at, step=name, by=said.by)
    told = f'no approval of "{said.step}" is open' if said.step else "no approval is open"
    raise GpuprovError(told, "gpuprov rollout status shows what is waited for")
