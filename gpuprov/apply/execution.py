"""A run of apply: read, decide, run Ansible batch by batch according to the policy, verify. Success is decided by
verify, not by "failed=0"."""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TypedDict, Unpack

import msgspec

from gpuprov.apply import keeping, nodes, policy
from gpuprov.apply.aftermath import describe_interruption, give_back, leave
from gpuprov.apply.first_look import duplicate, first_look, lost
from gpuprov.apply.keeper import Keeper
from gpuprov.apply.lists import Lists
from gpuprov.apply.log import Log
from gpuprov.apply.model import ApplyRun, HostOutcome, Known, Laps, Options
from gpuprov.apply.outcome import judge
from gpuprov.core import durations
from gpuprov.core.errors import GpuprovError
from gpuprov.core.signals import ended_politely
from gpuprov.facts.collect.rounds import Pace
from gpuprov.fleet.drain import in_play
from gpuprov.inventory.names import fold_names as names
from gpuprov.plan import playbook
from gpuprov.plan.events import Ledger, given_up
from gpuprov.plan.extra import Extra, checked_run, extra_variables, new_run, owner
from gpuprov.plan.interrupt import GRACE
from gpuprov.plan.model import HOST, HostPlan
from gpuprov.plan.read import Pair, Reading, duplicates, for_ansible, read
from gpuprov.plan.show import Show
from gpuprov.plan.workspace import place, remove_leftovers, workspace
from gpuprov.spec.model import RawHost, is_secret
from gpuprov.verify.evaluate import MOMENTS

# Acts of a run that only prepares; in the other acts it has no hosts.
PREPARING = ("Reach the hosts", "Act 1,")
LOCKS_STAY = "the locks may still be there; the next apply from this machine takes them over"
Agreed = Callable[[Mapping[str, Reading], Mapping[str, Mapping[str, str]]], Mapping[str, HostPlan]]


class Callbacks(TypedDict, total=False):
    """What a run calls. confirm: with the plans before anything is changed, unless `options.yes`. agreed: with the
    readings and the capabilities to run, by host; returns the approved plans, or raises GpuprovError if they differ.
    known: with the outcome of a host as soon as it is final: nothing to do, failed, or verified."""

    confirm: Callable[[list[HostPlan]], bool] | None
    agreed: Agreed | None
    known: Known | None


def apply(
    pairs: Sequence[Pair],
    options: Options,
    show: Show | None = None,
    *,
    grace: float = GRACE,
    **callbacks: Unpack[Callbacks],
) -> ApplyRun:
    """Bring the hosts to the state in their specs. Raises GpuprovError for invalid options, before any host is read. An
    interrupt ends in an ApplyRun."""
    everyone, confirm = [raw.name for raw, _ in pairs], callbacks.get("confirm")
    policy.check(pairs, options)
    execution = _Execution(pairs, options, show or Show(), callbacks.get("known") or (lambda _: None), grace)
    with ended_politely():
        try:
            execution.read()
            ran = {name: outcome.ran for name, outcome in execution.outcomes.items()}
            if agreed := callbacks.get("agreed"):
                execution.lists.approve(agreed(execution.readings, ran))
            work = [name for name, roles in ran.items() if roles]
            if work and not options.yes and confirm and not confirm(execution.plans()):
                raise GpuprovError("not confirmed: nothing was changed", "answer y, or give --yes")
            execution.tidy()
            if work:
                execution.roll(work)
                execution.verify(everyone)
            execution.give_back_nodes(everyone)
            execution.keep()
        except KeyboardInterrupt:
            execution.interrupted = True
    execution.warn_of_nodes()
    execution.lists.settle_rest(execution.outcomes, execution.readings)
    return execution.conclude()


class _Execution:
    """A run and the outcomes of its hosts so far."""

    def __init__(self, pairs: Sequence[Pair], options: Options, show: Show, known: Known, grace: float) -> None:
        self.known = known
        self.pairs, self.options, self.show, self.grace = pairs, options, show, grace
        self.run = checked_run(options.run) if options.run else new_run()
        self.owner = owner(self.run, options.lease)
        self.pace = Pace(options.forks)
        self.cluster = in_play.parse_options(options.drain or "", self.run)
        waits = bool(self.cluster and options.act == "apply")  # until nodes are back
        self.done: Known = (lambda _: None) if waits else known
        self.outcomes: dict[str, HostOutcome] = {}
        self.readings: dict[str, Reading] = {}
        self.interrupted, self.stopped = False, ""
        self.log: Path | None = None
        self.laps, self.lists = Laps(), Lists(pairs, options)
        self.started = time.monotonic()

    def conclude(self) -> ApplyRun:
        return ApplyRun(
            run=self.run,
            act=self.options.act,
            hosts=[self.outcomes[raw.name] for raw, _ in self.pairs if raw.name in self.outcomes],
            interrupted=self.interrupted,
            stopped=self.stopped,
            log=self.log,
            acts=self.laps.all,
            seconds=time.monotonic() - self.started,
        )

    def read(self) -> None:
        """Read every host and decide what to do on it."""
        pair_of, outcomes = {pair[0].name: pair for pair in self.pairs}, dict[str, HostOutcome]()

        def look(name: str, reading: Reading) -> None:
            outcomes[name] = first_look(pair_of[name], reading, self.options)
            if not outcomes[name].ran:
                self.done(outcomes[name])
            self.lists.note(name, reading)

        chosen, pruned = self.options.only, self.options.prune_only
        with self.show.reading(list(pair_of), "reading") as done:
            self.readings = read(self.pairs, only=chosen, prune_only=pruned, pace=self.pace, on_done=done, each=look)
        self.outcomes = {name: outcomes[name] for name in pair_of}
        self.outcomes |= {name: duplicate(name, other) for name, other in duplicates(self.readings).items()}

    def _raws(self, chosen: Collection[str]) -> list[RawHost]:
        hosts = frozenset(chosen)
        return [raw for raw, _ in self.pairs if raw.name in hosts]

    def plans(self) -> list[HostPlan]:
        """Return the plans of this run, as `gpuprov plan` makes them."""
        return self.lists.confirmed(self.pace, self.show)

    def tidy(self) -> None:
        """Remove leftovers of killed runs, here and on hosts that have nothing to do; on the other hosts the run takes
        them over."""
        remove_leftovers(place())
        idle = [raw for raw, _ in self.pairs if self.outcomes[raw.name].state == "unchanged"]
        give_back(idle, self.readings, self.owner, self.pace.forks)

    def roll(self, work: list[str]) -> None:
        """Run Ansible on the hosts with something to do, in the order of the policy."""
        engine = policy.engine(self.pairs, self.options, self.outcomes)
        batches, changing = engine.batches, frozenset(work)
        chosen = [for_ansible(pair, self.readings[pair[0].name]) for pair in self.pairs if pair[0].name in changing]
        words = [str(value) for raw, _ in chosen for key, value in raw.connection.items() if is_secret(key)]
        with Log(self.options.log_dir, self.run, words) as log, workspace(chosen) as folder:
            self.log = log.path
            log.write(f"gpuprov apply, run {self.run}: {', '.join(work)}")
            for number, batch in enumerate(iter(engine.begin, ()), start=1):
                if batches > 1:
                    self.show.say(f"batch {number} of {batches}: {names(batch)}")
                self._batch(folder, batch, log, number)
                if self.interrupted or not engine.waiting:
                    return  # all hosts are verified after the last batch
                self.verify(batch)
                self.give_back_nodes(batch)
                engine.end(policy.ends(self.outcomes, batch, self.options.act))
            self.stopped = f"{engine.state.stopped}; {engine.waiting} not started"
            log.write(f"stopped: {self.stopped}")

    def _batch(self, folder: Path, batch: Sequence[str], log: Log, number: int) -> None:
        options, preparing = self.options, self.options.act != "apply"
        ledger, started = Ledger(options.timeout), time.monotonic()
        keeper = Keeper(self._raws(batch), self.owner, options.lease, self.pace.forks)

        def note(event: playbook.Event) -> None:
            keeper.heard(str((event.get("event_data") or {}).get("host") or ""))
            if event.get("stdout"):
                log.write(str(event["stdout"]))
            step = ledger.feed(event)
            if name := given_up(event):
                self.known(self._judged(name, ledger, playbook.Ended("ended", 2), log, started))
            if step is None or (preparing and step.kind == "act" and not step.text.startswith(PREPARING)):
                return
            if step.kind == "act":
                self.laps.begins(step.text, number, len(batch))
            shown(msgspec.structs.replace(step, text=log.masked(step.text)))

        roles = {role for name in batch for role in self.outcomes[name].ran}
        try:
            with self.show.applying(batch, "applying", durations.earlier("apply", roles)) as shown, keeper.keeping():
                ended = playbook.run(
                    folder,
                    batch,
                    self._extra_variables(batch),
                    forks=self.pace.forks,
                    grace=self.grace,
                    on_event=note,
                    on_interrupt=lambda: self.show.say(describe_interruption(ledger)),
                )
        except BaseException:
            self._give_back(batch)
            raise
        self.laps.end()
        self.interrupted = ended.how == "interrupted"
        if not self.interrupted:
            durations.note("apply", roles, time.monotonic() - started, len(batch))
        self.outcomes |= {name: self._judged(name, ledger, ended, log, started) for name in batch}
        for name in batch if preparing else ():  # which is not verified
            self.known(self.outcomes[name])
        # After an interrupt nobody knows how far the events have come: a lock that none of them tells of may be there.
        self._give_back([name for name in batch if self.interrupted or ledger.cut_off(name)])

    def _extra_variables(self, batch: Sequence[str]) -> Extra:
        """Return the variables of the batch's playbook, on top of the inventory."""
        options = self.options
        only = {name: self.outcomes[name].ran for name in batch}
        extra = extra_variables(
            self.owner,
            only,
            reboot=options.reboot,
            drain=options.drain,
            timeout=options.timeout,
            prepare=options.act == "prepare",
            seen={name: token for name in batch if (token := self.readings[name].fence) is not None},
            pruned={name: self.readings[name].prune for name, ran in only.items() if HOST in ran},
        )
        if options.break_lock:
            extra["gpuprov_break_lock"] = list(options.break_lock)
        return extra

    def _judged(self, name: str, ledger: Ledger, ended: playbook.Ended, log: Log, started: float) -> HostOutcome:
        """Return the outcome of a host according to Ansible's events."""
        outcome = msgspec.structs.replace(self.outcomes[name])
        judge(outcome, ledger, ended, self.options.act)
        outcome.message, outcome.seconds = log.masked(outcome.message), time.monotonic() - started
        return outcome

    def _give_back(self, batch: Sequence[str]) -> None:
        """Return the locks of hosts whose playbook did not complete, and report what still runs on them."""
        if not batch:
            return
        self.show.say(f"giving back the lock{'s' * (len(batch) > 1)} of {names(batch)}")
        try:
            left = leave(self._raws(batch), self.owner, at_a_time=self.pace.forks)
        except KeyboardInterrupt:
            self.interrupted = True
            self.show.say(f"interrupted again: {LOCKS_STAY}")
            for name in batch:
                self.outcomes[name].left = LOCKS_STAY
            return
        for name, leftover in left.items():
            self.outcomes[name].left = str(leftover)

    def verify(self, chosen: Sequence[str]) -> None:
        """Read hosts again and add the results to their outcomes. Skips hosts that were never reached, and a run that
        only prepares."""
        if self.options.act == "prepare":
            return
        reached = {name for name in chosen if self.outcomes[name].state != "unreachable"}
        pairs = [pair for pair in self.pairs if pair[0].name in reached]

        def judged(name: str, reading: Reading) -> None:
            outcome = self.outcomes[name]
            outcome.results = list(reading.results)
            if reading.lost and outcome.state in ("changed", "unchanged"):
                outcome.state = "unreachable"
                outcome.message, outcome.fix = lost(reading.lost)
            self.lists.settle(outcome, self.readings[name], reading)
            self.done(outcome)

        with self.show.reading([raw.name for raw, _ in pairs], "verifying") as done:
            read(pairs, MOMENTS, only=self.options.only, pace=self.pace, on_done=done, each=judged)

    def give_back_nodes(self, chosen: Sequence[str]) -> None:
        """Return nodes of Kubernetes to service if verify has found their hosts green."""
        if self.cluster is not None and self.options.act == "apply" and not self.interrupted:
            nodes.give_back(self.cluster, self._raws(chosen), self.outcomes, self.owner, self.show.say, self.known)

    def warn_of_nodes(self) -> None:
        """Report that nodes of Kubernetes may stay out of service after an interrupt."""
        if self.interrupted and self.cluster and self.log and self.options.act == "apply":
            self.show.say(f"nodes that this run has drained may stay out. {in_play.later(self.run)}")

    def keep(self) -> None:
        """Have fully green hosts keep a checkpoint."""
        options = self.options
        if options.act == "apply" and options.only is None and options.checkpoint and not self.interrupted:
            keeping.keep(self.pairs, self.outcomes, self.readings, self.owner, self.pace, self.show.say)
