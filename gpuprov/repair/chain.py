"""The repair of one host: drained, its GPUs reset, then rebooted, with its health read after each; or given up."""

import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Literal, get_args

from gpuprov.fleet.drain import Step
from gpuprov.host_code import process
from gpuprov.host_code.locked import explain_refusal
from gpuprov.repair.drains import Drains
from gpuprov.repair.hosts import RESTORED, Answer, Hosts
from gpuprov.repair.model import HostPlan, HostRepair, Options, State, Try
from gpuprov.repair.planning import choose_step
from gpuprov.verify.evaluate import FAILING, Result
from gpuprov.verify.fitness import Fitness, fitness

# Seconds in which a host becomes well after an act: daemons start, and GPUs register with their fabric.
SETTLING: dict[str, float] = {"reset": 60.0, "reboot": 300.0}
# Seconds between two looks.
POLL = 5.0
IN_USE = "end or drain them, then repair again: no job is ended"
Act = Literal["reset", "reboot"]
Say = Callable[[str, str], None]


class Chain:
    """The acts on one host. `goes_on`: False once the run is to end, which it does between two acts."""

    def __init__(
        self,
        plan: HostPlan,
        hosts: Hosts,
        drains: Drains,
        options: Options,
        say: Say = lambda host, text: None,
        goes_on: Callable[[], bool] = lambda: True,
    ) -> None:
        self._plan, self._hosts, self._drains, self._options = plan, hosts, drains, options
        self._say, self._goes_on = say, goes_on
        self._outcome = HostRepair(plan=plan, state="not started")
        self._is_ours = False
        self._results: list[Result] = []
        self._unanswered = False

    def run(self) -> HostRepair:
        """Repair the host. Returns the outcome; a host that is not green stays out of its scheduler."""
        if not self._plan.drain or self._take_out():
            self._repair()
        self._give_back()
        return self._outcome

    def _end(self, state: State, message: str = "", fix: str = "") -> None:
        self._outcome.state, self._outcome.message, self._outcome.fix = state, message, fix

    def _stop(self, answer: Answer) -> str:
        """Return why the host is left alone if its lock is gone, or a process came; else its problem."""
        if answer.lost:
            self._end("locked", answer.problem, "see what the other run does, then repair again")
        elif answer.holders:
            self._end("refused", f"in use by {', '.join(answer.holders[:5])}", IN_USE)
        return answer.problem or self._outcome.message

    def _note(self, act: Act | Literal["drain", "return"], began: float, problem: str, after: str = "") -> None:
        at = datetime.fromtimestamp(began, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        tried = Try(act=act, at=at, seconds=round(time.time() - began, 1), problem=problem, after=after)
        self._outcome.tries = (*self._outcome.tries, tried)

    def _sleep(self, seconds: float) -> bool:
        """Wait; return whether the run goes on."""
        if self._goes_on():
            self._hosts.sleep(seconds)
        return self._goes_on()

    def _take_out(self) -> bool:
        """Return whether the host is out of its scheduler, by this run or by somebody else, and free of jobs."""
        began, host = time.time(), self._plan.host

        def tell(step: Step) -> None:
            if step.others:
                words = (f"drained by others: {step.message}", step.fix)
                self._outcome.out, self._is_ours = "; ".join(filter(None, words)), False
            elif step.state in ("done", "waiting"):
                self._outcome.out, self._is_ours = "", True
            elif step.state == "unknown":  # it may have been drained, unless others had it
                self._is_ours = not self._outcome.out
            if not step.is_free:
                self._say(host, f"not free: {step.words}")

        self._say(host, f"draining ({self._plan.drain})")
        step = self._drains.take_out(self._plan, tell, self._sleep)
        self._note("drain", began, "" if step.state == "done" else step.words)
        if not step.is_free:
            self._end("refused", f"not drained: {step.words}", "" if step.others else step.fix)
        return step.is_free

    def _repair(self) -> None:
        answer = self._take_lock()
        if answer is None:
            return
        try:
            if self._is_as_planned():
                self._act(answer.boot)
        finally:
            self._hosts.act("release", self._plan)

    def _is_as_planned(self) -> bool:
        """Read the host again, now that nobody else changes it: the plan may be hours old. Return whether health asks
        for the same of the same GPUs."""
        results = self._hosts.judge([self._plan.host])[self._plan.host][0]
        (judged,) = fitness(results) or (Fitness(host=self._plan.host, fit="not proven"),)
        gpus = {address for cause in judged.causes if cause.action == "reset" for address in cause.devices}
        planned = {gpu.address for gpu in self._plan.scope.all}
        if judged.fit == "yes":
            self._end("fit", "it is fit by now, and nothing was done")
        elif choose_step(judged) != self._plan.step or not (self._plan.scope.whole or gpus <= planned):
            self._end("refused", f"its health has changed since the plan: {judged.sentence}", "repair it again")
        return self._outcome.state == "not started"

    def _take_lock(self) -> Answer | None:
        """Return the answer of the host that has given its lock; None if it did not, as the outcome says."""
        answer = self._hosts.act("take", self._plan)
        holder = (answer.locked or {}).get("holder")
        if isinstance(holder, Mapping) and process.is_dead(holder, process.describe(self._options.run, "")):
            answer = self._hosts.act("take", self._plan, stale=str((answer.locked or {}).get("text", "")))
        if answer.silent:
            self._end("unreachable", answer.problem)
        elif answer.locked is not None:
            self._end("locked", *explain_refusal(answer.locked, self._options.break_lock, "repair with"))
        elif answer.problem:
            self._end("refused", answer.problem)
        elif answer.holders:
            self._stop(answer)
        else:
            return answer
        return None

    def _act(self, boot: str) -> None:
        fit = False
        for act in get_args(Act) if self._plan.step == "reset" else ("reboot",):
            if not self._goes_on() or (act == "reboot" and not self._plan.reboot):
                break
            began = time.time()
            problem, beside = self._reset() if act == "reset" else (self._reboot(boot), "")
            if self._outcome.state != "not started":
                self._note(act, began, problem)
                return
            fit = (not problem or self._unanswered) and self._settle(act)
            self._note(act, began, problem or beside, "" if problem else self._judge_fitness())
            if fit or self._wants() not in get_args(Act):
                break
        self._conclude(fit)

    def _reset(self) -> tuple[str, str]:
        """Return why the GPUs were not reset, "" if they were; and which services did not start after it."""
        scope = self._plan.scope
        what = "all GPUs" if scope.whole else ", ".join(map(str, scope.all))
        self._say(self._plan.host, f"resetting {what}")
        answer = self._hosts.act("reset", self._plan)
        self._unanswered = answer.silent  # it may have been reset
        beside = [f"{unit} does not start: {why}" for unit, why in answer.failed.items()]
        return self._stop(answer), "; ".join(filter(None, (*beside, answer.unrecorded)))

    def _reboot(self, boot: str) -> str:
        """Return why the host did not reboot, or come back; "" if it did."""
        self._say(self._plan.host, "rebooting")
        answer = self._hosts.act("reboot", self._plan, message=f"gpuprov repair: {', '.join(self._plan.checks)}")
        if (answer.problem or answer.holders) and not answer.silent:
            return self._stop(answer)
        limit = self._hosts.get_reboot_limit(self._plan.host)
        until = time.monotonic() + limit
        while time.monotonic() < until:
            if not self._sleep(POLL):
                return "the run was ended while the host rebooted"
            seen = self._hosts.act("seen", self._plan)
            if seen.lost:
                return self._stop(seen)
            if seen.boot and seen.boot != boot:
                return ""
        return f"it did not come back within {limit:g} s"

    def _settle(self, act: Act) -> bool:
        """Read the host's health until it is fit, or the time for it is over; return whether it is."""
        until = time.monotonic() + SETTLING[act]
        while True:
            self._say(self._plan.host, f"reading its health after the {act}")
            self._results = self._hosts.judge([self._plan.host])[self._plan.host][0]
            if self._judge_fitness() == "yes":
                return True
            if time.monotonic() >= until or not self._sleep(POLL):
                return False

    def _judge_fitness(self) -> str:
        """Return the fitness by the last reading, in words."""
        judged = fitness(self._results)
        return judged[0].fit if judged else "not read"

    def _wants(self) -> str:
        """Return what health asks for now; before it was read again, what the plan is about."""
        judged = fitness(self._results)
        return judged[0].action if judged else self._plan.step

    def _conclude(self, fit: bool) -> None:
        judged = fitness(self._results)
        self._outcome.left = judged[0].causes if judged else self._plan.findings
        lost = [
            row for row in self._results if row.capability in RESTORED and row.status in FAILING and row.moment == "now"
        ]
        gone = next((row for row in self._results if row.status == "unreachable"), None)
        if gone:
            self._end("given up", f"not reached after the {self._outcome.tries[-1].act}: {gone.found}", gone.fix)
        elif not fit and judged and judged[0].fit == "not proven":
            what = "what was found cannot be read now" if self._is_unread() else "what was found is gone"
            self._end("not proven", f"{what}; {judged[0].sentence}", "gpuprov health says what is unread")
        elif not fit and not self._goes_on():
            self._end("interrupted", "nothing more was begun", "repair it again")
        elif not fit:
            last = self._outcome.tries[-1].problem if self._outcome.tries else ""
            sentence = judged[0].sentence if judged else self._plan.sentence
            self._end("given up", "; ".join(filter(None, (last, sentence))), "the ticket says what was found and tried")
        elif lost:
            named = "; ".join(f"{row.check}: {row.found}" for row in lost)
            self._end("differs", f"fit for work, and not set up as before: {named}", "gpuprov apply")
            self._outcome.left = tuple(lost)
        else:
            self._end("repaired")
        if self._outcome.state in ("repaired", "differs", "not proven", "given up") and self._outcome.tries:
            done = "given up" if self._outcome.state == "given up" else "repaired"
            if not self._is_unread() or done == "given up":
                self._hosts.act("note", self._plan, act=done)

    def _is_unread(self) -> bool:
        """Return whether a check that asked for the repair could not be made after it."""
        unread = {row.check for row in self._results if row.status in ("error", "skip")}
        return any(finding.check in unread for finding in self._plan.findings if finding.action in get_args(Act))

    def _give_back(self) -> None:
        """Give the host back if it is repaired, or nothing was begun on it."""
        if not self._is_ours:
            return
        undo = self._drains.format_undrain(self._plan)
        stays = self._outcome.is_begun and self._outcome.state != "repaired"
        if stays or self._outcome.state == "given up":
            self._outcome.out = f"drained by this run: {undo}"
            return
        began = time.time()
        step = self._drains.give_back(self._plan)
        self._note("return", began, "" if step.state == "done" else step.words)
        if step.state != "done":
            self._outcome.out = f"not given back: {step.words}; {undo}"
