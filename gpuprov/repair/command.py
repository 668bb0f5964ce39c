"""`gpuprov repair`: read the hosts' health, show what would be done, ask, do it host by host within the budget,
report."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from gpuprov.core import terminal
from gpuprov.core.errors import GpuprovError, defect
from gpuprov.core.sanitize import counted
from gpuprov.core.signals import ENDING, handled
from gpuprov.fleet.policy.events import HostEnd, Verdict
from gpuprov.fleet.policy.in_memory import InMemory
from gpuprov.fleet.policy.options import REPAIR_OPTIONS, policy_of_repairs
from gpuprov.fleet.policy.planned import Member, planned
from gpuprov.repair import drains
from gpuprov.repair.chain import IN_USE, Chain
from gpuprov.repair.hosts import Hosts
from gpuprov.repair.model import HostPlan, HostRepair, Options, Repaired, State, Step
from gpuprov.repair.planning import plan_host
from gpuprov.repair.text import format_plan
from gpuprov.spec.model import HostSpec, RawHost

ACTING: tuple[Step, ...] = ("reset", "reboot")
# Outcomes of hosts on which nothing is done.
STATES: Mapping[Step, State] = {
    "nothing": "fit",
    "ticket": "given up",
    "refused": "refused",
    "not proven": "not proven",
    "unreachable": "unreachable",
}
Pairs = Sequence[tuple[RawHost, HostSpec]]
GREEN: tuple[State, ...] = ("fit", "repaired")
# States of hosts that may be repaired at another time.
ANOTHER_TIME: tuple[State, ...] = ("locked", "unreachable")
# Hosts that are asked for services and users at a time.
AT_ONCE = 8
# The failure domain of all hosts, in the engine's words.
DOMAIN = "the inventory"


def make_plans(pairs: Pairs, hosts: Hosts, options: Options) -> dict[str, HostPlan]:
    """Read the hosts and plan each. Services and users are asked of the hosts that something would be done on."""
    names = [raw.name for raw, _ in pairs]
    with terminal.Progress(names, "reading", quiet=True), ThreadPoolExecutor(AT_ONCE) as pool:
        judged = hosts.judge(names)
        plans = {raw.name: plan_host(spec, *judged[raw.name], options) for raw, spec in pairs}
        for _ in pool.map(lambda plan: _look(plan, hosts), (plan for plan in plans.values() if plan.step in ACTING)):
            pass
    return plans


def _look(plan: HostPlan, hosts: Hosts) -> None:
    answer = hosts.act("look", plan)
    if answer.problem:
        plan.step = "unreachable" if answer.silent else "not proven"
        plan.message, plan.fix = answer.problem, ""
        return
    plan.services = answer.services if plan.step == "reset" else ()
    plan.holders = answer.holders
    if answer.here and plan.step == "reboot":
        plan.step, plan.message = "ticket", "only a reboot repairs it, and it is the machine that gpuprov runs on"
        plan.fix = "reboot it yourself, or repair it from another machine"
    elif plan.holders and not plan.drain:
        plan.step, plan.message, plan.fix = "refused", f"in use by {', '.join(plan.holders[:5])}", IN_USE
    plan.reboot = plan.reboot and not answer.here


def run(pairs: Pairs, hosts: Hosts, options: Options, show: Callable[[str], None]) -> Repaired:
    """Repair the hosts. `show` gets the plan. Raises GpuprovError if a person does not agree."""
    began = time.monotonic()
    drains.check(options)
    total = options.total or len(pairs)
    policy = policy_of_repairs(options.max_out, options.max_fail, total)
    plans = make_plans(pairs, hosts, options)
    outcomes = {name: _settle_plan(plan, options) for name, plan in plans.items()}
    acting = {name: plan for name, plan in plans.items() if plan.step in ACTING}
    repaired = Repaired(run=options.run, hosts=())
    if acting and not options.check:
        schedulers = drains.make(acting, {raw.name: raw for raw, _ in pairs}, options)
        show("\n".join(format_plan(plan) for plan in plans.values() if plan.step != "nothing"))
        if not options.yes and not terminal.confirm(f"Repair {counted(len(acting), 'host')}?"):
            raise GpuprovError("not confirmed: nothing was done", "answer y, or give --yes")
        engine = InMemory(
            planned(policy, [Member(name, domain=DOMAIN) for name in acting], total=total, options=REPAIR_OPTIONS)
        )
        repaired.interrupted = _roll(engine, acting, outcomes, _Worker(hosts, schedulers, options))
        if engine.waiting:
            repaired.stopped = f"{engine.state.stopped or 'interrupted'}; {engine.waiting} not started"
    repaired.hosts, repaired.seconds = tuple(outcomes.values()), time.monotonic() - began
    return repaired


def _settle_plan(plan: HostPlan, options: Options) -> HostRepair:
    """Return the outcome of a host before anything is done on it."""
    state = STATES.get(plan.step, "planned" if options.check else "not started")
    left = plan.findings if state not in GREEN else ()
    return HostRepair(plan=plan, state=state, message=plan.message, fix=plan.fix, left=left)


class _Worker:
    """Repairs single hosts, until the run is to end."""

    def __init__(self, hosts: Hosts, schedulers: drains.Drains, options: Options) -> None:
        self._hosts, self._schedulers, self._options = hosts, schedulers, options
        self.ended = threading.Event()

    def repair(self, plan: HostPlan, say: Callable[[str, str], None]) -> HostRepair:
        """Repair a host; a defect of gpuprov costs that host alone."""
        chain = Chain(
            plan, self._hosts, self._schedulers, self._options, say=say, goes_on=lambda: not self.ended.is_set()
        )
        try:
            return chain.run()
        except Exception as error:
            message, fix = (
                (error.message, error.fix)
                if isinstance(error, GpuprovError)
                else defect("the repair of the host", error)
            )
            return HostRepair(plan=plan, state="given up", message=message, fix=fix, left=plan.findings)


def _roll(engine: InMemory, plans: Mapping[str, HostPlan], outcomes: dict[str, HostRepair], worker: _Worker) -> bool:
    """Repair the hosts in the order of the policy, as many at a time as may be out. Returns whether the run was ended
    by a signal: then each act that has begun is completed."""
    with (
        handled(ENDING, lambda *_: worker.ended.set()),
        terminal.Progress(list(plans), "repairing") as progress,
    ):
        while not worker.ended.is_set() and (batch := engine.begin()):
            with ThreadPoolExecutor(len(batch)) as pool:
                for outcome in pool.map(lambda name: worker.repair(plans[name], progress.update), batch):
                    outcomes[outcome.host] = outcome
                    progress.done(outcome.host, outcome.state)
            engine.end([HostEnd(name, _judge(outcomes[name]), outcomes[name].state) for name in batch])
    return worker.ended.is_set()


def _judge(outcome: HostRepair) -> Verdict:
    """Return what the host costs of the budget: nothing if it was not touched, and is not kept out by this run."""
    kept = any(tried.act == "return" and tried.problem for tried in outcome.tries)
    is_untouched = outcome.state in ANOTHER_TIME and not outcome.is_begun and not kept
    return "green" if outcome.state in GREEN or is_untouched else "failed"
