"""Commands from people to a roll-out, and their effect in its current state. Pure: every engine uses this."""

import msgspec

from gpuprov.core.errors import GpuprovError
from gpuprov.fleet.policy import events
from gpuprov.fleet.policy.events import Event
from gpuprov.fleet.policy.state import State
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


def event_of(request: Said, rollout: str, state: State, at: float) -> Event | None:
    """Return the event to record for a command; None if there is nothing to record. Raises GpuprovError if the command
    is not permitted now."""
    if state.finished:
        raise is_over(rollout)
    match request:
        case Pause(by=by, why=why):
            return events.Paused(at=at, by=by, why=why)
        case Abort(by=by, why=why):
            return events.Aborted(at=at, by=by, why=why)
        case Approve():
            return _make_approved(request, state, at)
        case Resume(by=by, retry=retry, forgive=forgive):
            if state.stopped and not (retry or forgive):
                fix = "--retry does again what failed; --forgive leaves it, and counts it no more"
                raise GpuprovError(f"the roll-out {rollout} is stopped: {state.stopped}", fix)
            if state.paused or state.stopped or retry or forgive:
                return events.Resumed(at=at, by=by, retry=retry, forgive=forgive)
    return None


def _make_approved(request: Approve, state: State, at: float) -> Event:
    open_ones = [batch for batch in state.plan.batches if batch.number not in state.over]
    pending = [approval for batch in open_ones for approval in state.plan.approvals(batch)]
    for name, approval in pending:
        if request.step not in ("", name):
            continue
        given = state.approved.get(name, set())
        if len(given & {*approval.by}) >= approval.count:
            continue
        if request.by not in approval.by:
            message = f'"{name}" is approved by {", ".join(approval.by)}; you are {request.by}'
            raise GpuprovError(message, "ask one of them")
        if request.by in given:
            raise GpuprovError(f'{request.by} has approved "{name}" already', "another one has to")
        return events.Approved(at=at, step=name, by=request.by)
    message = f'no approval of "{request.step}" is open' if request.step else "no approval is open"
    raise GpuprovError(message, "gpuprov rollout status shows what is waited for")
