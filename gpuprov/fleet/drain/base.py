"""Taking a host out of its scheduler and giving it back: one interface for all schedulers.

Each step can be repeated: whoever was killed calls it once more, and a step that finds its work done reports so. The
result of a step was read back from the scheduler after the change. What belongs to somebody else stays as it is, to the
byte.
"""

import re
import shlex
from collections.abc import Mapping
from typing import Generic, Literal, Protocol, TypeVar

import msgspec

from gpuprov.core.errors import GpuprovError

N = TypeVar("N")
# done: carried out, and read back. waiting: ask again, `waits_for` names what holds it. refused: a person decides;
# asking again changes nothing by itself. unknown: the scheduler could not be asked, or its answer not be read; ask
# again.
State = Literal["done", "waiting", "refused", "unknown"]

# Kind of thing that a host waits for. jobs: they may take days. a person: nothing else lets it go on. Empty: it ends
# within minutes.
Holds = Literal["", "jobs", "a person"]

MARK = "gpuprov"
# Allowed names of a run: also a label's value in Kubernetes, and one word of a reason in Slurm.
RUN = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """Result of one step. `read`: the scheduler's state of the node after it, in its own words; data, never cleaned
    here. `untold`: why the host itself does not know that it is out, or in service again (`noted`). `others`: it is
    refused because somebody else has it out; `waits_for` then names what still runs on it."""

    host: str
    node: str
    state: State
    read: str = ""
    waits_for: tuple[str, ...] = ()
    holds: Holds = ""
    message: str = ""
    fix: str = ""
    untold: str = ""
    others: bool = False

    @property
    def is_free(self) -> bool:
        """Return whether the host is out, by whomever, and nothing of a user runs on it."""
        return self.state == "done" or (self.others and not self.waits_for)

    @property
    def words(self) -> str:
        """The state in a line."""
        return "; ".join(filter(None, (self.message, *self.waits_for[:3]))) or self.state


class Told(msgspec.Struct, Generic[N], frozen=True):
    """Result of a step, with the scheduler's node as it was read last."""

    state: State
    node: N
    message: str = ""
    fix: str = ""
    waits_for: tuple[str, ...] = ()
    holds: Holds = ""
    others: bool = False


class Adapter(Protocol):
    """One scheduler. `host` is the inventory's name, `run` the id of the run, which marks what is ours."""

    @property
    def name(self) -> str:
        """The name in a policy and after --by."""
        ...

    def drain(self, host: str, run: str) -> Step:
        """Take the host out: nothing new starts on it. Ends no job. Done: no new work comes; `drained` reports when the
        last has left."""
        ...

    def drained(self, host: str, run: str) -> Step:
        """Report whether the last job has left. In Kubernetes it asks once more for the eviction of pods still on the
        node."""
        ...

    def returned(self, host: str, run: str, green: bool) -> Step:
        """Give the host back if it is `green`, and out by this run. Without `green` it stays out: refused, with what
        was read."""
        ...


def checked_run(run: str) -> str:
    """Check the run's id and return it. Raises GpuprovError if it cannot be part of a reason, an annotation or a
    label."""
    if not RUN.fullmatch(run):
        raise GpuprovError(
            f"the run {run[:80]!r} cannot be named in a scheduler",
            "allowed: at most 63 letters, digits, dots, - and _, with a letter or digit at both ends",
        )
    return run


def format_undrain(by: str, run: str, *, host: str = "HOST", command: str = "", context: str = "") -> str:
    """Return the command that gives a host back, with the options of its scheduler."""
    words = ["gpuprov", "undrain", host, "INVENTORY", "--by", by]
    words += ["--command", command] if command else []
    words += ["--context", context] if context else []
    return shlex.join([*words, "--run", run])


def find_node_name(host: str, names: Mapping[str, str]) -> str:
    """Return the scheduler's name of this host: that in `names`, else the inventory's name."""
    return names.get(host) or host
