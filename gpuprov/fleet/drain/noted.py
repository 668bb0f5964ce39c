"""An adapter that records on each host that it is out of its scheduler: a host that nobody gives back would look fine,
and idle.

The note is written before the host is taken out, and removed when it is in service again: a run that is killed leaves a
note too many, never one too few. As a rule this takes one login on the host each time. verify and plan read it. A host
that cannot be reached is taken out all the same; `untold` then gives the reason why it has no current note.
"""

import json
import shlex
from collections.abc import Mapping
from datetime import UTC, datetime

import msgspec

from gpuprov.core.errors import GpuprovError
from gpuprov.core.safe_parse import Unreadable, parse_typed_json
from gpuprov.facts.collect.script import compose_one, split
from gpuprov.facts.collect.transport import run as run_on
from gpuprov.facts.probes.base import Output
from gpuprov.facts.probes.host.house import DRAINED_FILE, Drained
from gpuprov.fleet.drain.base import Adapter, Step
from gpuprov.host_code import machine
from gpuprov.spec.model import RawHost

# Seconds for one host: draining does not wait longer for it.
LIMIT = 20.0
# Ownership of a host's note, as `written` prints it: this run's, written now or before; another run's, which is left;
# or this run's by another name of the host, followed by that note.
NEW, MINE, THEIRS, TWIN = "new", "mine", "theirs", "twin"


class Noted:
    """The adapter, with the notes of these hosts."""

    def __init__(self, adapter: Adapter, hosts: Mapping[str, RawHost]) -> None:
        self._adapter, self._hosts = adapter, hosts
        self._marks: dict[tuple[str, str], str] = {}
        self.untold: dict[str, str] = {}

    @property
    def name(self) -> str:
        """The adapter's name."""
        return self._adapter.name

    def drain(self, host: str, run: str) -> Step:
        """Note it, then take the host out. A host that is refused is not out by this call: a note that it wrote is
        removed."""
        key = (host, run)
        if key not in self._marks:
            whose, _, note = self._tell(host, written(self.name, run, host, over=False)).partition("\n")
            if whose == TWIN:
                message, fix = machine.explain_refusal(_name_in(note, self._hosts))
                return Step(host=host, node=host, state="refused", message=f"it is {message}", fix=fix)
            self._marks[key] = whose
        step = self._adapter.drain(host, run)
        if step.state == "refused":
            if self._marks.pop(key) == NEW:
                self._tell(host, gone(run))
        elif step.state == "done" and self._marks[key] == THEIRS:
            self._marks[key] = self._tell(host, written(self.name, run, host, over=True))
        return self._with_untold(host, step)

    def drained(self, host: str, run: str) -> Step:
        """Report whether the last job has left."""
        return self._with_untold(host, self._adapter.drained(host, run))

    def returned(self, host: str, run: str, green: bool) -> Step:
        """Give the host back; the note of a host in service is removed."""
        step = self._adapter.returned(host, run, green)
        if step.state == "done":
            self._marks.pop((host, run), None)
            self._tell(host, gone())
        return self._with_untold(host, step)

    def _with_untold(self, host: str, step: Step) -> Step:
        return msgspec.structs.replace(step, untold=self.untold.get(host, ""))

    def _tell(self, host: str, script: str) -> str:
        """Run the script and return its output; empty if it could not be run."""
        answer = ""
        try:
            text = run_on(self._hosts[host], compose_one("drained", script, LIMIT), LIMIT)
            output = (split(text.encode()) or {}).get("drained", Output("", 1))
            problem = output.error.strip() or f"exit status {output.status}" if output.status else ""
            answer = "" if problem else output.text.strip()
        except GpuprovError as error:
            problem = error.message
        self.untold.pop(host, None)
        if problem:
            self.untold[host] = " ".join(problem.split())
        return answer


def written(by: str, run: str, host: str, *, over: bool) -> str:
    """Return shell code that writes the note, and prints whose it is now; `over`: also over one of another run. Of two
    that write at the same time one is first: link(2)."""
    text = json.dumps({"by": by, "run": run, "since": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}", "host": host})
    fresh, name = f"{DRAINED_FILE}.$$", f'"host": {json.dumps(host)}'
    named = f"grep -qsF {shlex.quote(name)} {DRAINED_FILE} || ! grep -qsF '\"host\": ' {DRAINED_FILE}"
    if_ours = f"if {named}; then echo {MINE}; else echo {TWIN}; cat {DRAINED_FILE}; fi"
    if_others = "" if over else f"elif [ -s {DRAINED_FILE} ]; then echo {THEIRS}\n"
    return f"""umask 022
put() {{ mkdir -p {DRAINED_FILE.rpartition("/")[0]} && printf '%s\\n' {shlex.quote(text)} >{fresh} &&
  "$@" {fresh} {DRAINED_FILE}; }}
[ -s {DRAINED_FILE} ] || {{ put ln 2>/dev/null && rm -f {fresh} && echo {NEW} && exit; }}
if grep -qsF {shlex.quote(_run(run))} {DRAINED_FILE}; then {if_ours}
{if_others}else put mv && echo {NEW}; fi
s=$?; rm -f {fresh}; exit $s"""


def _name_in(note: str, known: Mapping[str, RawHost]) -> str:
    """Return the name in a host's note, if it is one of the run's."""
    try:
        name = parse_typed_json(note, Drained).host
    except Unreadable:
        name = ""
    return name if name in known else "another host of this run"


def gone(run: str = "") -> str:
    """Return shell code that removes the note; with `run` only this run's."""
    only = f"grep -qsF {shlex.quote(_run(run))} {DRAINED_FILE} || exit 0; " if run else ""
    return f"{only}rm -f {DRAINED_FILE}"


def _run(run: str) -> str:
    return f'"run": {json.dumps(run)}'
