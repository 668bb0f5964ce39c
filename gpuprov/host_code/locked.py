"""Messages for a run that cannot get the lock of a host, or has lost it."""

from __future__ import annotations

from typing import Collection, Mapping

from . import lock, machine

# A phrase in the message of every step that is refused because the lock was taken over or the host was rebooted.
LOST = "Nothing more is changed by this run"
# The phrase in that message if nobody has taken the lock over.
BOOTED = "was rebooted while this run worked on it, and not by this run"


def explain_refusal(answer: Mapping[str, object], broken: Collection[str], command: str) -> tuple[str, str]:
    """Return the reason why the lock is not available, and the fix. broken: the IDs that --break-lock named. command:
    the command that takes --break-lock."""
    if answer.get("twin"):
        return machine.explain_refusal(str(answer["twin"]))
    lost, passed = answer.get("lost"), answer.get("passed")
    if isinstance(lost, dict):
        return _explain_lost(lost)
    if isinstance(passed, dict):
        by = f"{passed.get('user', '?')} on {passed.get('host', '?')} at {passed.get('since', '?')}"
        message = (
            f"another one than was read: {by} has had it since (run {passed.get('run', '?')}). Nothing was changed"
        )
        return message, "apply again, which reads it anew"
    holder, name = answer.get("holder"), str(answer.get("id", "?"))
    if not lock.RUN.fullmatch(name):  # what a host says becomes no word of a command that somebody copies
        name = "?"
    other = "; that is another lock than --break-lock names" if set(broken) - {""} else ""
    by_hand = f"remove {lock.LOCK} and {lock.KEPT}/held.json on the host"
    if not isinstance(holder, dict) or not holder:
        return (
            f"locked, and {lock.LOCK}/owner.json is damaged or missing, so nobody can say by whom; lock {name}{other}",
            f"make sure that no gpuprov or ansible-playbook works there, then {command} --break-lock {name}, or "
            f"{by_hand}",
        )
    user, host, since, pid = (holder.get(key, "?") for key in ("user", "host", "since", "pid"))
    message = f"locked by {user} on {host} since {since} (pid {pid}), lock {name}{other}"
    still, seconds = answer.get("running"), answer.get("left")
    if still and isinstance(still, list):
        message += f"; it is not heard of any more, but this still runs: {', '.join(map(str, still))[:300]}"
        fix = f"wait until that has ended, or end it on the host, then apply again; or {command} --break-lock {name}"
        return message, fix
    later = ""
    if isinstance(seconds, (int, float)):
        message += f"; its lease ends in {seconds:.0f} s unless it is heard of again"
        later = ": apply again after that time"
    return (
        message,
        f"wait until that run ends, or stop it{later}; if it is gone for good, {command} --break-lock {name}, or "
        f"{by_hand}",
    )


def _explain_lost(lost: Mapping[str, str]) -> tuple[str, str]:
    """Explain that the run has lost the lock. lost: who took it over; empty if that cannot be read."""
    if not lost:
        return (
            f"held by nobody knows whom: {lock.KEPT}/fence is damaged or gone. {LOST}",
            "let what runs there end, then apply again",
        )
    by = f"{lost.get('user', '?')} on {lost.get('host', '?')} at {lost.get('since', '?')} (run {lost.get('run', '?')})"
    return f"another run's: this run was taken over by {by}. {LOST}", "let the other run end, then apply again"
