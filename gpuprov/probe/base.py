"""A probe reads one thing of a host: one read-only shell snippet, one pure parser. It never talks to the host itself."""

from __future__ import annotations

import copy
import re
import shlex
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar, cast

from gpuprov.errors import defect
from gpuprov.probe.output import Output

__all__ = ["Facts", "Output", "Probe", "ProbeFailed"]

T = TypeVar("T")
MISSING = (126, 127)
"""https://pubs.opengroup.org/onlinepubs/9799919799/utilities/V3_chap02.html#tag_19_08_02"""
UNREADABLE = (ValueError, LookupError)
"""What a parser raises for an output that is not what it reads: a cell that is not there, or is no number. Anything else that it
raises is a defect of gpuprov."""
T_co = TypeVar("T_co", covariant=True)


class ProbeFailed(Exception):
    """A probe could not be read or understood; a check that needs it ends with status `error`, never with `pass`.

    `hint` is the way out, where it is another than to look at the host.
    """

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class NotRecorded(ProbeFailed):
    """A record of a host does not hold what a probe reads; a check that needs it is skipped: it says nothing of the host."""


@dataclass(frozen=True)
class Probe(Generic[T_co]):
    """`script` is POSIX sh, changes nothing, asks nothing, and ends by itself; `parse` turns its output into a typed fact.

    `evidence` is the command a person runs to see the same thing; it stands in results. `asks`: shell variables that the script reads,
    worked out of a host's spec; none of them is set where there is no spec, as for a capture.

    What silence says: of most nothing, so that the check which needs it ends with an error and never with a pass. Three silences: it
    printed nothing; a program that it needs is missing (exit status 126 or 127, as sh(1) says it); it printed what its parser
    understands nothing of. A probe that lists what there may be of something prints nothing where there is none: that is an answer.
    `speaks`: it prints something on every Linux host with systemd, whatever is installed there. `knows_missing`: it ends with 127 on
    purpose where a program is not installed, which its parser tells. `blank`: how a line begins with which it says that there is
    nothing; other lines of which the parser understands none are garbage.
    """

    name: str
    script: str
    parse: Callable[[Output], T_co]
    evidence: str = ""
    asks: Callable[[Any], Mapping[str, str]] | None = None
    speaks: bool = False
    knows_missing: bool = False
    blank: str = ""

    def of(self, host: Any) -> Probe[T_co]:
        """The probe for the host with this spec. All have one name."""
        if self.asks is None:
            return self
        told = "".join(f"{name}={shlex.quote(value)}\n" for name, value in self.asks(host).items())
        return replace(self, script=told + self.script, asks=None)

    def missing(self, output: Output) -> str:
        """Why a program is missing that the probe needs; empty where none is, or where its parser knows."""
        if output.status not in MISSING or self.knows_missing:
            return ""
        return f"{self.name} cannot be read: a program that it needs is missing on the host{_error(output)}"

    def no_answer(self, output: Output, fact: object) -> str:
        """Why this output is no answer; empty where it is one. `fact` is what the parser made of it."""
        if output.text.strip():
            if not _is_comment(output.text) and not self._understood(output, fact):
                return f"{self.name} cannot be understood; the host printed: {output.text.strip()[:200]!r}"
        elif self.speaks and output.status not in MISSING:
            return f"{self.name} printed nothing on the host{_error(output)}"
        return ""

    def _understood(self, output: Output, fact: object) -> bool:
        try:
            nothing = self.parse(Output("", output.status, output.error))
        except Exception:
            return True  # to its parser, nothing is no answer, and this was one
        return fact != nothing or bool(self.blank and re.search(f"^(?:{self.blank})", output.text, re.MULTILINE))

    def __hash__(self) -> int:
        return hash(self.name)


class Facts:
    """The outputs of one host's probes; parsed on first use, each once. `read_at` is when they were read, by this machine."""

    def __init__(self, outputs: dict[str, Output]) -> None:
        self.read_at = time.time()
        self._outputs = outputs
        self._parsed: dict[str, object] = {}
        self._made: dict[str, tuple[object, object]] = {}

    def get(self, probe: Probe[T]) -> T:
        """The fact of this probe. Raises ProbeFailed if it was not gathered, cannot be parsed, or was silent."""
        if probe.name not in self._parsed:
            if probe.name not in self._outputs:
                raise ProbeFailed(f"{probe.name} was not read on the host")
            output = self._outputs[probe.name]
            if told := probe.missing(output):
                raise ProbeFailed(told)
            try:
                fact = probe.parse(output)
            except ProbeFailed:
                raise
            except UNREADABLE as error:
                shown = (output.text or output.error).strip()[:200]
                raise ProbeFailed(f"{probe.name} cannot be read ({error}); the host printed: {shown!r}") from error
            except Exception as error:
                raise ProbeFailed(*defect(f"the reader of {probe.name}", error)) from error
            if told := probe.no_answer(output, fact):
                raise ProbeFailed(told)
            self._parsed[probe.name] = fact
        return cast(T, self._parsed[probe.name])

    def known(self, probe: Probe[T]) -> T | None:
        """The fact of this probe; None where there is none."""
        try:
            return self.get(probe)
        except ProbeFailed:
            return None

    def once(self, what: str, of: object, make: Callable[[], T]) -> T:
        """What follows from these facts and this very object: worked out once. What raises is asked again."""
        known = self._made.get(what)
        if known is None or known[0] is not of:
            known = self._made[what] = (of, make())
        return cast(T, known[1])

    def only(self, probes: Iterable[Probe[Any]]) -> Facts:
        """The facts of these probes alone, so that the rest of what was read can be let go."""
        kept = copy.copy(self)
        names = {probe.name for probe in probes}
        kept._outputs = {name: output for name, output in self._outputs.items() if name in names}
        kept._made = {}
        kept._parsed = {name: fact for name, fact in self._parsed.items() if name in names}
        return kept

    def outputs(self) -> dict[str, Output]:
        """The raw outputs by probe name."""
        return dict(self._outputs)


def _is_comment(text: str) -> bool:
    """A file of comments alone says that nothing is configured: Debian's /etc/modules and limits.conf are such files."""
    return all(line.lstrip()[:1] in ("", "#", ";") for line in text.splitlines())


def _error(output: Output) -> str:
    said = " ".join(output.error.split())[:200]
    return f": {said}" if said else ""
