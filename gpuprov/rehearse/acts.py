"""The acts of a rehearsal: bring up, apply, verify, reboot, verify again, apply again; then everything is removed."""

import secrets
import time
from collections.abc import Sequence

from gpuprov.apply import ApplyRun, HostOutcome, Show, apply
from gpuprov.apply import Options as ApplyOptions
from gpuprov.core.errors import GpuprovError
from gpuprov.core.fill import fill
from gpuprov.core.sanitize import counted
from gpuprov.plan import HostPlan, plan
from gpuprov.plan.decide import PlanOptions
from gpuprov.plan.read import Pair
from gpuprov.rehearse.connection import ignore_user_settings, pair_of
from gpuprov.rehearse.model import FAST, Options, Rehearsal, Rehearsed, Step, Verdict
from gpuprov.rehearse.seen import SNAPSHOT, Snapshot, find_changes, list_blind_spots
from gpuprov.rehearse.shape import Shape, plan_shapes
from gpuprov.rehearse.stage import Backend, Stage, limit_interrupts
from gpuprov.simulate import waivers
from gpuprov.simulate.description import Description
from gpuprov.simulate.host import SimulatedHost
from gpuprov.verify.evaluate import Result
from gpuprov.verify.verify import verify

# Number of lines of a lost host's log in its step.
LOG_LINES = 15


def rehearse(pairs: Sequence[Pair], options: Options, backend: Backend, show: Show | None = None) -> Rehearsed:
    """Rehearse the hosts' specs on simulated hosts, `options.forks` at a time. An interrupt ends in a Rehearsed.

    The hosts are gone at the end, however it ends, unless `options.keep` and nothing interrupted it.
    """
    started, tell = time.monotonic(), show or Show()
    run = secrets.token_hex(2)
    made = plan_shapes(pairs, options, run)
    rehearsals = {shape.name: fill(Rehearsal, shape) for shape in made}
    whole = Rehearsed(run=run, rehearsals=list(rehearsals.values()), kept=options.keep)
    possible = [shape for shape in made if shape.description is not None]
    stages: list[Stage] = []
    with limit_interrupts(tell.say), ignore_user_settings():
        ended = False
        try:
            for start in range(0, len(possible), options.forks):
                stages.append(Stage(backend, options.forks))
                part = possible[start : start + options.forks]
                _Rehearsing(part, rehearsals, stages[-1], backend, options, tell, whole).run()
                if not options.keep:
                    whole.leftovers += _clear(stages, tell)
            ended = True
        except KeyboardInterrupt:
            whole.interrupted = True
        finally:
            if not ended:
                try:
                    whole.leftovers += _clear(stages, tell)
                except KeyboardInterrupt:
                    whole.interrupted = True
    whole.seconds = time.monotonic() - started
    return whole


def _clear(stages: list[Stage], show: Show) -> tuple[str, ...]:
    """Remove the hosts of all stages. Returns the names of those that stayed."""
    if stages:
        show.say("removing the simulated hosts")
    left: tuple[str, ...] = ()
    interrupted = False
    while stages:
        try:
            left += stages[-1].clear()
            stages.pop()
        except KeyboardInterrupt:  # removing goes on; what comes after it does not
            interrupted = True
    if interrupted:
        raise KeyboardInterrupt
    return left


class _Rehearsing:
    """Hosts that are rehearsed together."""

    def __init__(
        self,
        shapes: Sequence[Shape],
        rehearsals: dict[str, Rehearsal],
        stage: Stage,
        backend: Backend,
        options: Options,
        show: Show,
        whole: Rehearsed,
    ) -> None:
        self.shapes = {shape.name: shape for shape in shapes}
        self.rehearsals, self.stage, self.backend = rehearsals, stage, backend
        self.options, self.show, self.whole = options, show, whole
        self.pairs: dict[str, Pair] = {}

    def run(self) -> None:
        self._bring_up()
        self._first_apply()
        self._verify("verify")
        self._reboot()
        self._verify("verify again")
        self._second_apply()

    def _going(self) -> list[Pair]:
        return [pair for name, pair in self.pairs.items() if self.rehearsals[name].going]

    def _note(
        self, name: str, act: str, verdict: Verdict, seconds: float, message: str, details: Sequence[str] = ()
    ) -> None:
        self.rehearsals[name].steps.append(
            Step(name=act, verdict=verdict, seconds=seconds, told=message, details=tuple(details))
        )
        if verdict not in ("ok", "waiting"):
            self.show.say(f"{name}: {act}: {message}")

    def _bring_up(self) -> None:
        descriptions = {name: shape.description for name, shape in self.shapes.items() if shape.description is not None}
        self.show.say(f"bringing up {_count(descriptions)}: {', '.join(descriptions)}")
        started = time.monotonic()
        hosts = self.stage.up(descriptions)
        seconds = time.monotonic() - started
        for name, host in hosts.items():
            if isinstance(host, SimulatedHost):
                self.pairs[name] = pair_of(self.shapes[name], host)
                self.rehearsals[name].login = host.login if self.options.keep else ""
                self._note(name, "bring up", "ok", seconds, "answers ssh")
            else:
                self._note(
                    name, "bring up", "unreachable", seconds, host.message, [f"fix: {host.fix}"] * bool(host.fix)
                )

    def _first_apply(self) -> None:
        if not (pairs := self._going()):
            return
        plans = {host_plan.host: host_plan for host_plan in plan(pairs, PlanOptions(exact=False))}
        before = self._snapshots(pairs)
        ran = self._apply(pairs)
        after = self._snapshots(pairs)
        for outcome in ran.hosts:
            name = outcome.host
            if name in before and name in after and outcome.state in ("changed", "unchanged"):
                shape = self.shapes[name]
                blind = list_blind_spots(shape.spec, shape.description or Description())
                changes = find_changes(before[name], after[name], plans.get(name), outcome, blind=blind)
                self.rehearsals[name].seen = changes
            if outcome.state in ("changed", "unchanged"):
                message = (
                    f"{outcome.state} ({counted(len(outcome.changed), 'task')})" if outcome.changed else outcome.state
                )
                self._note(name, "apply", "ok", ran.seconds, message)
            else:
                self._failed(outcome, "apply", ran.seconds, plans.get(name))

    def _failed(self, outcome: HostOutcome, act: str, seconds: float, predicted: HostPlan | None = None) -> None:
        place = f"{outcome.task}: " if outcome.task else ""
        details = [f"fix: {outcome.advice}"] * bool(outcome.advice)
        details += [f"blocked by {r.check}: {r.found}" for r in (predicted.blocked if predicted else ())]
        verdict: Verdict = "unreachable" if outcome.state == "unreachable" else "failed"
        self._note(outcome.host, act, verdict, seconds, f"{outcome.state}: {place}{outcome.message}", details)

    def _apply(self, pairs: Sequence[Pair]) -> ApplyRun:
        options = ApplyOptions(
            yes=True,
            max_fail="100%",
            forks=self.options.forks,
            log_dir=self.options.log_dir,
            checkpoint=self.options.keep,
        )
        ran = apply(pairs, options, self.show)
        if ran.log:
            self.whole.logs.append(str(ran.log))
        if ran.interrupted:
            raise KeyboardInterrupt
        return ran

    def _verify(self, act: str) -> None:
        if not (pairs := self._going()):
            return
        started = time.monotonic()
        with self.show.reading([raw.name for raw, _ in pairs], act) as done:
            results = verify(pairs, on_done=lambda name, _: done(name))
        seconds = time.monotonic() - started
        for raw, _ in pairs:
            own_results = [result for result in results if result.host == raw.name]
            self._judge(self.rehearsals[raw.name], act, own_results, seconds)

    def _judge(self, rehearsal: Rehearsal, act: str, results: list[Result], seconds: float) -> None:
        described = rehearsal.description or Description()
        judged = waivers.judge(results, described.kind, gpu=described.gpu is not None, nvswitch=described.nvswitch)
        rehearsal.results, rehearsal.judged = results, judged
        details = list(waivers.complaints(judged))
        if any(row.status == "unreachable" for row in judged.failed):
            self._note(rehearsal.name, act, "unreachable", seconds, judged.failed[0].found, details)
        elif judged.green:
            self._note(rehearsal.name, act, "ok", seconds, judged.summary)
        elif act == "verify" and judged.proved and not (judged.failed or judged.contradicted):
            self._note(rehearsal.name, act, "ok", seconds, f"{judged.summary} (asked again after the reboot)")
        elif act == "verify" and self._only_waits(rehearsal, results):
            self._note(rehearsal.name, act, "waiting", seconds, f"waits for a reboot: {judged.summary}", details)
        else:
            self._note(rehearsal.name, act, "differs", seconds, judged.summary, details)

    def _only_waits(self, rehearsal: Rehearsal, results: Sequence[Result]) -> bool:
        """Return whether the spec forbids the reboot that fixes every failure."""
        failing = [r for r in results if r.status in ("fail", "error")]
        judged = rehearsal.judged
        alone = judged is not None and not judged.unproved and not judged.contradicted
        return (
            alone
            and self.shapes[rehearsal.name].spec.reboot == "never"
            and bool(failing)
            and all(r.reboot for r in failing)
        )

    def _reboot(self) -> None:
        if not (pairs := self._going()):
            return
        names = [raw.name for raw, _ in pairs]
        self.show.say(f"rebooting {_count(names)}")
        started = time.monotonic()
        for name, error in self.stage.reboot(names).items():
            seconds = time.monotonic() - started
            if error is None:
                self._note(name, "reboot", "ok", seconds, "came back")
            else:
                self._note(name, "reboot", "unreachable", seconds, error.message, self._logs(name))

    def _logs(self, name: str) -> list[str]:
        """Return the last lines of a host's log."""
        try:
            return self.backend.logs(name).splitlines()[-LOG_LINES:]
        except GpuprovError as error:
            return [f"no log: {error.message}"]

    def _second_apply(self) -> None:
        if not (pairs := self._going()):
            return
        ran = self._apply(pairs)
        for outcome in ran.hosts:
            if outcome.state not in ("changed", "unchanged"):
                self._failed(outcome, "second apply", ran.seconds)
            elif outcome.ran or outcome.changed:
                details = [f"{capability}: {why}" for capability, why in outcome.ran.items()]
                details += [f"changed {task}" for task in outcome.changed]
                ran_again, tasks = counted(len(outcome.ran), "role"), counted(len(outcome.changed), "task")
                message = f"not idempotent: {ran_again} ran again, {tasks} changed something"
                self._note(outcome.host, "second apply", "differs", ran.seconds, message, details)
            elif ran.seconds > FAST:
                message = f"unchanged, but it took more than {FAST:g} s"
                self._note(outcome.host, "second apply", "differs", ran.seconds, message)
            else:
                self._note(outcome.host, "second apply", "ok", ran.seconds, "unchanged, Ansible was not started")

    def _snapshots(self, pairs: Sequence[Pair]) -> dict[str, Snapshot]:
        """Take snapshots of the hosts; one that cannot be asked is left out, and the next act reports why."""
        snapshots: dict[str, Snapshot] = {}
        for raw, _ in pairs:
            try:
                snapshots[raw.name] = Snapshot.of(self.backend.run(raw.name, SNAPSHOT))
            except GpuprovError as error:
                self.show.say(f"{raw.name}: not looked at: {error.message}")
        return snapshots


def _count(names: Sequence[str] | dict[str, Description]) -> str:
    return f"{len(names)} simulated host{'s' if len(names) != 1 else ''}"
