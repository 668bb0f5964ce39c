"""Probes: each reads one fact of a host with one read-only shell script and one pure parser. A probe never contacts the
host itself."""

from __future__ import annotations

import copy
import re
import shlex
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar, cast

import msgspec

from gpuprov.core.errors import defect


class Output(msgspec.Struct, frozen=True):
    """Standard output, the first lines of standard error, exit status."""

    text: str
    status: int = 0
    error: str = ""

    def rows(self, *, bare: bool = False) -> dict[str, list[str]]:
        """Group lines `KIND|REST` by their kind; other lines are ignored, or with `bare` count as kinds of their
        own."""
        rows: dict[str, list[str]] = {}
        for line in self.text.splitlines():
            kind, bar, rest = line.partition("|")
            if bar or bare:
                rows.setdefault(kind, []).append(rest)
        return rows

    def cells(self) -> dict[str, list[list[str]]]:
        """Group lines `KIND|CELL|CELL...` by their kind, split into cells; other lines are ignored."""
        return {kind: [row.split("|") for row in rows] for kind, rows in self.rows().items()}


__all__ = ["Facts", "Output", "Probe", "ProbeFailed"]

T = TypeVar("T")
# https://pubs.opengroup.org/onlinepubs/9799919799/utilities/V3_chap02.html#tag_19_08_02
MISSING = (126, 127)
# Exceptions that a parser raises for unexpected output: a missing cell, or one that is not a number. Any other
# exception is a defect in gpuprov.
UNREADABLE = (ValueError, LookupError)
T_co = TypeVar("T_co", covariant=True)


class ProbeFailed(Exception):
    """A probe could not be read or understood; a check that needs it ends with status `error`, never with `pass`.

    `fix` is the fix, if it is other than to look at the host.
    """

    def __init__(self, message: str, fix: str = "") -> None:
        super().__init__(message)
        self.fix = fix


class NotRecorded(ProbeFailed):
    """A record of a host lacks the output of a probe; a check that needs it is skipped, as the record says nothing
    about the host."""


@dataclass(frozen=True)
class Probe(Generic[T_co]):
    """`script` is POSIX sh, changes nothing, asks nothing, and ends by itself; `parse` turns its output into a typed
    fact.

    `evidence` is the command a person runs to see the same thing; results show it. `asks`: shell variables that the
    script reads, derived from a host's spec; none of them is set without a spec, as for a capture.

    For most probes, silence is not an answer: the check that needs the fact ends with an error, never with a pass.
    There are three kinds of silence: nothing was printed; a program that the script needs is missing (exit status 126
    or 127, see sh(1)); nothing that was printed can be parsed. If a probe lists items that may not exist, printing
    nothing is an answer. `speaks`: the script prints something on every Linux host with systemd, whatever is
    installed. `knows_missing`: it exits with 127 on purpose if a program is not installed, and the parser handles
    that. `blank`: pattern for the beginning of a line that reports an empty result; other output of which nothing
    can be parsed is garbage.

    `own`: the script reads only files that gpuprov wrote on the host; no program of others chose a word of them.
    """

    name: str
    script: str
    parse: Callable[[Output], T_co]
    evidence: str = ""
    asks: Callable[[Any], Mapping[str, str]] | None = None
    speaks: bool = False
    knows_missing: bool = False
    blank: str = ""
    own: bool = False

    def of(self, host: Any) -> Probe[T_co]:
        """Return the probe for the host with this spec. The name stays the same."""
        if self.asks is None:
            return self
        variables = "".join(f"{name}={shlex.quote(value)}\n" for name, value in self.asks(host).items())
        return replace(self, script=variables + self.script, asks=None)

    def missing(self, output: Output) -> str:
        """Describe a missing program that the probe needs; empty if none is missing, or if the parser handles that."""
        if output.status not in MISSING or self.knows_missing:
            return ""
        return f"{self.name} cannot be read: a program that it needs is missing on the host{_format_error(output)}"

    def no_answer(self, output: Output, fact: object) -> str:
        """Explain why this output is not an answer; empty if it is one. `fact` is the parsed output."""
        if output.text.strip():
            if not _is_comment(output.text) and not self._understood(output, fact):
                return f"{self.name} cannot be understood; the host printed: {output.text.strip()[:200]!r}"
        elif self.speaks and output.status not in MISSING:
            return f"{self.name} printed nothing on the host{_format_error(output)}"
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
    """The outputs of one host's probes; parsed on first use, each once. `read_at` is when they were read, by this
    machine."""

    def __init__(self, outputs: dict[str, Output]) -> None:
        self.read_at = time.time()
        self._outputs = outputs
        self._parsed: dict[str, object] = {}
        self._made: dict[str, tuple[object, object]] = {}

    def get(self, probe: Probe[T]) -> T:
        """Return the fact of this probe. Raises ProbeFailed if it was not gathered, cannot be parsed, or was silent."""
        if probe.name not in self._parsed:
            if probe.name not in self._outputs:
                raise ProbeFailed(f"{probe.name} was not read on the host")
            output = self._outputs[probe.name]
            if problem := probe.missing(output):
                raise ProbeFailed(problem)
            try:
                fact = probe.parse(output)
            except ProbeFailed:
                raise
            except UNREADABLE as error:
                shown = (output.text or output.error).strip()[:200]
                raise ProbeFailed(f"{probe.name} cannot be read ({error}); the host printed: {shown!r}") from error
            except Exception as error:
                raise ProbeFailed(*defect(f"the reader of {probe.name}", error)) from error
            if problem := probe.no_answer(output, fact):
                raise ProbeFailed(problem)
            self._parsed[probe.name] = fact
        return cast(T, self._parsed[probe.name])

    def known(self, probe: Probe[T]) -> T | None:
        """Return the fact of this probe; None if it cannot be read."""
        try:
            return self.get(probe)
        except ProbeFailed:
            return None

    def once(self, what: str, of: object, make: Callable[[], T]) -> T:
        """Return a value derived from these facts and this very object, computed once. After an exception it is
        computed again."""
        known = self._made.get(what)
        if known is None or known[0] is not of:
            known = self._made[what] = (of, make())
        return cast(T, known[1])

    def only(self, probes: Iterable[Probe[Any]]) -> Facts:
        """Return the facts of these probes alone, so that the memory of the others can be freed."""
        kept = copy.copy(self)
        names = {probe.name for probe in probes}
        kept._outputs = {name: output for name, output in self._outputs.items() if name in names}
        kept._made = {}
        kept._parsed = {name: fact for name, fact in self._parsed.items() if name in names}
        return kept

    def outputs(self) -> dict[str, Output]:
        """Return the raw outputs by probe name."""
        return dict(self._outputs)


def _is_comment(text: str) -> bool:
    """Return whether the text is comments alone, so that nothing is configured, as in Debian's /etc/modules and
    limits.conf."""
    return all(line.lstrip()[:1] in ("", "#", ";") for line in text.splitlines())


def _format_error(output: Output) -> str:
    error = " ".join(output.error.split())[:200]
    return f": {error}" if error else ""
