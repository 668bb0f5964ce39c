"""The identity of a host's machine, independent of its address: ssh may reach one machine by two names, or lead back
here."""

from __future__ import annotations

from typing import Mapping, Sequence

# Shell command that prints the identity of the machine, and of the container on it. Cloned machines share a
# machine-id; each boot has an id of its own, and each container on one kernel a namespace of its own.
IDENTITY = 'echo "$(cat /proc/sys/kernel/random/boot_id 2>/dev/null) $(readlink /proc/self/ns/pid)"'
# PROC_PID_INIT_INO: the machine itself. https://github.com/torvalds/linux/blob/master/include/linux/proc_ns.h
MACHINE = "pid:[4026531836]"

FIX = "take all its names but one out of the inventory, or out of this run with --limit"


def is_same(here: str, elsewhere: str) -> bool:
    """Return whether two answers are of the same machine. A container on this machine is another host unless it is this
    one; the machine of this container is not."""
    words, other = here.split(), elsewhere.split()
    return bool(words) and len(other) == 2 and words[0] == other[0] and other[1] in (words[-1], MACHINE)


def find_duplicates(answers: Mapping[str, str]) -> dict[str, str]:
    """Return, by name, an earlier name of the same machine. An incomplete answer names none."""
    first: dict[str, str] = {}
    whole = {name: answer for name, answer in answers.items() if len(answer.split()) == 2}
    earlier = {name: first.setdefault(answer, name) for name, answer in whole.items()}
    return {name: other for name, other in earlier.items() if other != name}


def list_warnings(answers: Mapping[str, str]) -> list[str]:
    """List the warnings about machines that have several names, for commands that only read."""
    names: dict[str, list[str]] = {}
    for name, other in find_duplicates(answers).items():
        names.setdefault(other, [other]).append(name)
    return [f"{describe_names(group)}. Fix: {FIX}" for group in names.values()]


def describe_names(names: Sequence[str]) -> str:
    """Return the message about several names of one machine."""
    return f"{', '.join(names)} are one machine, which apply works on by the name {names[0]} alone"


def explain_refusal(other: str) -> tuple[str, str]:
    """Return the reason why a run skips a host that is the machine of this other name, and the fix."""
    return f"the same machine as {other}, by which name alone a run works on it", FIX
