"""What would be done on a host, from its health: nothing is decided about a finding that health does not say."""

from collections.abc import Collection, Sequence

from gpuprov.facts.probes.base import Facts, ProbeFailed
from gpuprov.facts.probes.host.checkpoints import REPAIRS, Repair
from gpuprov.facts.probes.host.system import CLOCK
from gpuprov.fleet.drain.choose import CLIENTS
from gpuprov.repair.model import HostPlan, Options, Scheduler, Scope, Step
from gpuprov.repair.scope import find_scope, list_lost_instances
from gpuprov.spec.model import HostSpec
from gpuprov.verify.evaluate import Result
from gpuprov.verify.fitness import Fitness, fitness

MIG = "mig"
# Repairs of one finding within so many seconds, after which it is given up when it comes back.
MOST, WINDOW = 3, 7 * 86400
# Fixes for actions that do not repair a GPU.
OTHERWISE = {
    "restart": "a program or a daemon is to be restarted: gpuprov apply starts what the spec asks for",
    "update": "driver and firmware are to be updated: nvidia_driver.version in the spec, then gpuprov apply",
}
PERMIT = "permit one: --reboot, or reboot: if-needed in the spec"
BY_HAND = "somebody has to go to the machine, or to its vendor: the ticket says what was found"


def plan_host(spec: HostSpec, results: Sequence[Result], facts: Facts | None, options: Options) -> HostPlan:
    """Return the plan. `facts`: None if the host was not reached."""
    (fit,) = fitness(results) or (Fitness(host=spec.name, fit="not proven"),)
    plan = HostPlan(host=spec.name, step=choose_step(fit), sentence=fit.sentence, findings=fit.causes)
    unreached = next((result for result in results if result.status == "unreachable"), None)
    if unreached or facts is None:
        plan.step = "unreachable"
        plan.message, plan.fix = (unreached.found, unreached.fix) if unreached else ("it was not read", "")
        return plan
    if plan.step == "not proven":
        plan.message = f"no finding to repair, and {fit.sentence}"
        plan.fix = "gpuprov health says what could not be read"
    if plan.step in ("reset", "reboot"):
        _plan_acts(plan, spec, facts, options)
    elif plan.step == "ticket":
        plan.message, plan.fix = "no reset and no reboot repairs it", OTHERWISE.get(fit.action, BY_HAND)
    return plan


def choose_step(fit: Fitness) -> Step:
    """Return what is done first about a host of this fitness."""
    if fit.fit == "until" and fit.action in ("reset", "reboot"):
        return "reset" if fit.action == "reset" else "reboot"
    return "nothing" if fit.fit == "yes" else "not proven" if fit.fit == "not proven" else "ticket"


def _plan_acts(plan: HostPlan, spec: HostSpec, facts: Facts, options: Options) -> None:
    try:
        past = facts.get(REPAIRS)
        plan.scope = find_scope(plan.findings, facts) if plan.step == "reset" else Scope()
        plan.loses = list_lost_instances(plan.scope, facts) if MIG not in spec.capabilities else ()
    except ProbeFailed as error:
        plan.step, plan.message, plan.fix = "not proven", f"what a reset takes is not known: {error}", error.fix
        return
    plan.reboot = options.reboot or spec.reboot == "if-needed"
    plan.drain = choose_scheduler(spec, options)
    if again := count_repairs(past, plan, facts):
        plan.step = "ticket"
        plan.message = f"{again} repairs of it within {WINDOW // 86400} days did not last"
        plan.fix = BY_HAND
    elif plan.step == "reboot" and not plan.reboot:
        plan.step, plan.message = "ticket", "only a reboot repairs it, and the spec permits none"
        plan.fix = PERMIT


def choose_scheduler(spec: HostSpec, options: Options) -> Scheduler:
    """Return who schedules the host: what --by says, else its spec; empty if nobody."""
    if not options.drain:
        return ""
    return options.by or next((by for by in CLIENTS if by in spec.capabilities), "")


def count_repairs(past: Collection[Repair], plan: HostPlan, facts: Facts) -> int:
    """Return the number of repairs of a finding of this host in the window, and of those that not even a reboot
    helped, if no further one is to be made; else 0.
    The window ends at the host's own time, by whose clock they were recorded."""
    now = facts.known(CLOCK) or facts.read_at
    gpus = {gpu.address for gpu in plan.scope.gpus}
    worst = {finding.check for finding in plan.findings if finding.action == plan.step}
    rebooted = {repair.run for repair in past if repair.act == "reboot"}
    alike = [
        repair
        for repair in past
        if (repair.act == "repaired" or (repair.act == "given up" and repair.run in rebooted))
        and now - WINDOW <= repair.at
        and repair.is_made_by(now)
        and worst & {*repair.checks}
        and (not gpus or not repair.gpus or gpus & {*repair.gpus})
    ]
    return len(alike) if len(alike) >= MOST else 0
