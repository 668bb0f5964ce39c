"""ansible-runner's events -> what happened on each host, in one line each."""

import re
from collections.abc import Iterable
from typing import Literal

import msgspec

from gpuprov.core import ended
from gpuprov.core.errors import defect
from gpuprov.host_code.locked import BOOTED, LOST
from gpuprov.plan import bounds
from gpuprov.plan.made import made
from gpuprov.plan.model import Item
from gpuprov.plan.playbook import Answer, Data, Event

LONGEST = 700
# Limit for each host: a host chooses what it prints.
MOST_WARNINGS = 20
AND_MORE = "and more, which are not told"
# The last plays of site.yml, which are not acts, and in which nothing happens in gpuprov's own runs.
REFUSING = ("Refuse an inventory without hosts", "Refuse a run of which tags left everything out")
# The task of acts/closed.yml that releases the lock.
RELEASE = "Release the lock of this host"
FAILED = "runner_on_failed"
# The first and the last task of failed.yml of role host, which cleans up after a failed act.
GIVING_UP, STAYS_FAILED = "Keep why the act failed", "Stay failed"
_PREFIX = re.compile(r"^((Task|Module|Action) failed: )+")
_NOT_SENT = re.compile(
    r'Data could not be sent to remote host "[^"]*"\. Make sure this host can be reached over ssh: ?'
)
_QUIET = ("", "non-zero return code", "One or more items failed", "All items completed")


# Modules, and steps of gpuprov_step, that may have to wait for something external, and what they wait for.
WAITS = {
    "drain": "the drain",
    "gpuprov_lock": "its lock",  # where it is taken: to give it back waits for nobody
    "gpuprov_packages": "its package manager, or another program that holds its lock",
    "reboot": "its reboot",
}


class Step(msgspec.Struct, frozen=True):
    """One progress event while Ansible runs. An act has no host. The reason for a failure appears once, in the result
    of the run. `waits`: what a starting task may wait for."""

    kind: Literal["act", "start", "ok", "changed", "failed", "unreachable"]
    host: str
    text: str
    waits: str = ""


class Failure(msgspec.Struct, frozen=True):
    """A task that failed on a host: host, task, and Ansible's message as one line. `locked`: another run holds the
    host; `lost`: another run has taken it over, or somebody has rebooted the host. `reboot`: the host did not come back
    in time."""

    capability: str
    task: str
    message: str
    locked: bool = False
    lost: bool = False
    timed_out: bool = False
    reboot: bool = False

    @property
    def place(self) -> str:
        return f"{self.capability}: {self.task}" if self.capability else self.task

    def __str__(self) -> str:
        return f"{self.place}: {self.message}"


class Tally(msgspec.Struct):
    """Events on one host so far.

    changed: every task that changed something; made: changes that its module reports. rescued: failures handled by a
    role's own rescue; gave_up: failures after which an act was given up, given_up_for: the last of these. failed:
    Ansible's result at its end; None before. last: the newest task. lost: the act and the task during which the
    connection to the host was lost. warnings: of gpuprov's own modules, each once.
    """

    changed: list[str] = []
    made: list[Item] = []
    failures: list[Failure] = []
    unreachable: str = ""
    rescued: int = 0
    gave_up: int = 0
    given_up_for: Failure | None = None
    failed: bool | None = None
    last: str = ""
    lost: str = ""
    defect: str = ""
    warnings: list[str] = []

    @property
    def booted(self) -> bool:
        """True if the run's actions were refused because somebody else has rebooted the host."""
        return any(failure.lost and not failure.locked for failure in self.failures)

    @property
    def timed_out(self) -> Failure | None:
        """Return the task still running when its act reached the time limit; the cleanup may have failed after it."""
        return next((failure for failure in self.failures if failure.timed_out), None) if self.failure else None

    @property
    def failure(self) -> Failure | None:
        """Return the failure that stopped the host; None if there was none, or the project itself caught it."""
        if not self.failures or self.failed is False:
            return None
        if lost := next((failure for failure in self.failures if failure.lost), None):
            return lost  # what fails after it is refused for the same reason
        return self.failures[min(self.rescued, len(self.failures) - 1)]


class Ledger:
    """Processes the events of one run in order. `complaint` is Ansible's last message outside of any host.

    limit: seconds that an act may take, for messages.
    """

    def __init__(self, limit: float = 0) -> None:
        self.hosts: dict[str, Tally] = {}
        self.complaint = ""
        self._limit = limit
        self._act = ""

    def feed(self, event: Event) -> Step | None:
        """Record the event and return the step to show. An unreadable event is the failure of its host alone."""
        try:
            return self._feed(event)
        except Exception as error:
            host = str((event.get("event_data") or {}).get("host") or "")
            message, fix = defect("the reader of Ansible's events", error)
            if host:
                self.tally(host).defect = f"{message}; {fix}"
            else:
                self.complaint = f"{message}; {fix}"
            return None

    def _feed(self, event: Event) -> Step | None:
        data = event.get("event_data") or {}
        kind = event.get("event", "")
        if kind == "playbook_on_play_start":
            if data.get("play") in REFUSING:
                return None
            self._act = re.split(", | - ", str(data.get("play", "")))[0].lower()
            return Step("act", "", str(data.get("play", "")))
        if kind == "playbook_on_stats":
            self._stats(data)
        elif kind == "verbose" and str(event.get("stdout", "")).startswith("[ERROR]"):
            self.complaint = _join_lines(str(event["stdout"]).removeprefix("[ERROR]:"))
        if "host" not in data:
            return None
        return self._host_event(kind, data)

    def running(self) -> dict[str, list[str]]:
        """Return the unfinished hosts, by the task that each began last."""
        tasks: dict[str, list[str]] = {}
        for host, tally in self.hosts.items():
            if tally.failed is None and not tally.unreachable and tally.last:
                tasks.setdefault(tally.last, []).append(host)
        return tasks

    def cut_off(self, host: str) -> bool:
        """True if the host's part of the playbook began but did not reach its end, where it releases its lock."""
        tally = self.hosts.get(host)
        if tally is None:
            return False
        return tally.failed is None or tally.booted or bool(tally.unreachable or tally.timed_out)

    def tally(self, host: str) -> Tally:
        return self.hosts.setdefault(host, Tally())

    def _host_event(self, kind: str, data: Data) -> Step | None:
        tally, result = self.tally(data["host"]), data.get("res") or {}
        capability, task = _make_label(data)
        text = f"{capability}: {task}" if capability else task
        if kind in ("runner_on_ok", FAILED) and _find_module(data).startswith("gpuprov_"):
            warned = [_join_lines(warning) for warning in result.get("warnings") or [] if isinstance(warning, str)]
            _warn(tally.warnings, warned)
        if kind == "runner_on_start":
            if text == GIVING_UP:
                tally.gave_up += 1
                tally.given_up_for = next(reversed(tally.failures), None)
            tally.last = text
            return Step("start", data["host"], text, "" if task == RELEASE else WAITS.get(_find_step(data), ""))
        if kind == "runner_on_ok":
            if not result.get("changed"):
                return Step("ok", data["host"], text)
            tally.changed.append(text)
            tally.made += made(capability, _find_step(data), result)
            return Step("changed", data["host"], text)
        if kind == FAILED and not data.get("ignore_errors") and text != STAYS_FAILED:
            late = _has_timed_out(result)
            message = self._late() if late else condense(result)
            lost = LOST in message
            locked = (lost and BOOTED not in message) or bool(result.get("gpuprov_locked"))
            reboot = _find_module(data) == "reboot" and not lost
            tally.failures.append(Failure(capability, task, message, locked, lost, late, reboot))
            return Step("failed", data["host"], text)
        if kind == "runner_on_unreachable":
            tally.unreachable = _describe_unreachable(condense(result))
            tally.lost = ", ".join(filter(None, (self._act, text)))
            return Step("unreachable", data["host"], tally.unreachable)
        return None

    def _late(self) -> str:
        return (
            f"did not end: {self._act or 'the act'} may take {self._limit:g} s on a host (--timeout), and they are over"
        )

    def _stats(self, data: Data) -> None:
        for host in data.get("processed") or {}:
            tally = self.tally(host)
            tally.rescued = int(data.get("rescued", {}).get(host, 0)) - tally.gave_up
            tally.failed = bool(data.get("failures", {}).get(host, 0))


def given_up(event: Event) -> str:
    """Return the host that drops out of the run after this event, failed or unreachable; else an empty string."""
    data = event.get("event_data") or {}
    kind, failed = event.get("event"), _make_label(data)[1] == STAYS_FAILED
    return str(data.get("host") or "") if kind == "runner_on_unreachable" or (kind == FAILED and failed) else ""


def condense(result: Answer) -> str:
    """Condense Ansible's result of a failed task to one line: its message, or the command's last line."""
    failed = [row for row in _list_items(result) if row.get("failed") or row.get("unreachable") or row.get("rc")]
    if failed:
        return condense(failed[0])
    if result.get("censored"):
        return "failed; its output is hidden, because it may hold secrets (no_log)"
    message = result.get("msg", "")
    text = _PREFIX.sub("", message if isinstance(message, str) else msgspec.json.encode(message).decode())
    if LOST in text and (inner := re.search(r'"msg": "([^"]*)"', text)):
        text = inner[1]  # the guard's answer, in what an action made of it
    text = bounds.SPENT if text.strip() == bounds.WITHOUT_WORD else text
    unread = bool(ended.UNREAD.match(text))
    if text.strip() in _QUIET or unread:
        text = ended.silent({**result, "msg": text}, of_module=unread) or "failed without a message"
    return _join_lines(ended.unanswered(ended.raised(text)))


def _describe_unreachable(text: str) -> str:
    """Return ssh's message, without Ansible's wording for an interrupted prompt."""
    match = _NOT_SENT.match(text)
    rest = text[match.end() :] if match else text
    if not rest or ended.CLOSED.fullmatch(rest):
        return f"{ended.connection(ended.OF_SSH)}: ssh, its sshd or its shell there was ended"
    return rest


def _list_items(result: Answer) -> list[Answer]:
    return [item for item in result.get("results") or [] if isinstance(item, dict)]


def _has_timed_out(result: Answer) -> bool:
    """True if Ansible ended the task, or an item of its loop, by the playbook's time limit."""
    return "timedout" in result or any("timedout" in item for item in _list_items(result))


def _warn(known: list[str], warned: Iterable[str]) -> None:
    for fromkey in dict.fromkeys(warned):
        if len(known) > MOST_WARNINGS:
            return
        if fromkey not in known:
            known.append(fromkey if len(known) < MOST_WARNINGS else AND_MORE)


def _find_module(data: Data) -> str:
    return str(data.get("task_action", "")).rpartition(".")[2]


def _find_step(data: Data) -> str:
    """Return the step of a task of gpuprov_step, or else its module. Its result names it; before that, the file of the
    task does, as ansible-runner's events have no arguments where they are not displayed."""
    if (module := _find_module(data)) != "gpuprov_step":
        return module
    named = (data.get("res") or {}).get("step")
    file = str(data.get("task_path", "")).rpartition("/")[2].partition(".")[0]
    return named if isinstance(named, str) else file.partition("_")[0]


def _make_label(data: Data) -> tuple[str, str]:
    task = str(data.get("task", ""))
    role = str(data.get("role") or "")
    return ("" if role == "host" else role), task.removeprefix(f"{role} : ")


def _join_lines(text: str) -> str:
    # Ansible keeps bytes that are not text as lone surrogates.
    flat = " ".join(text.encode(errors="replace").decode().split())
    if len(flat) <= LONGEST:
        return flat
    # The fix is what a message must not lose.
    cause, sign, fix = flat.rpartition(" Fix: ")
    end = f" ...{sign}{fix}" if sign and len(fix) < LONGEST // 2 else " ..."
    return (cause or flat)[: LONGEST - len(end)] + end
