"""Rollback: apply the checkpoint that a host kept when verify was last green there. Same checks, same acts, same
question."""

from collections.abc import Callable, Mapping, Sequence

import msgspec

from gpuprov.apply.execution import apply
from gpuprov.apply.first_look import duplicate, lost
from gpuprov.apply.model import DONE, ApplyRun, HostOutcome, Options
from gpuprov.checkpoints import Back, Refused, back, on_hosts, trusted
from gpuprov.checkpoints.choose import describe_checkpoint
from gpuprov.checkpoints.program import CheckpointsAnswer
from gpuprov.core.errors import UnreachableError
from gpuprov.facts.collect import gather
from gpuprov.facts.collect.rounds import Pace
from gpuprov.facts.probes.base import Facts, ProbeFailed
from gpuprov.facts.probes.host import house
from gpuprov.facts.probes.host.checkpoints import CHECKPOINTS
from gpuprov.fleet.specs import Fleet, judge
from gpuprov.host_code import locked, process
from gpuprov.host_code.fence import Owner
from gpuprov.host_code.kept_files import Request
from gpuprov.host_code.machine import find_duplicates
from gpuprov.plan.extra import checked_run, new_run, owner
from gpuprov.plan.host_lock import of_host
from gpuprov.plan.model import HostPlan
from gpuprov.plan.no_way_back import until_boot
from gpuprov.plan.show import Show
from gpuprov.spec.model import RawHost
from gpuprov.spec.problem import SpecError

NEVER = (
    "not taken back: firmware and VBIOS, keys in the firmware, kernels that are gone, what others than gpuprov "
    "changed, and what programs wrote"
)
PRUNED = "goes, as far as the receipt lists it; packages stay, and settings whose value before is not known"
STAYS = "stays as it is, for the checkpoint says nothing of it"
GO_ON = "gpuprov rollback once more goes on with it"


def rollback(
    hosts: Sequence[RawHost],
    options: Options,
    show: Show | None = None,
    *,
    to: str = "",
    last: bool = False,
    confirm: Callable[[list[HostPlan]], bool] | None = None,
) -> ApplyRun:
    """Roll hosts back to their checkpoints: of the run `to`, or the last one. A host without a checkpoint is blocked;
    the others continue.

    last: to the state in which verify was last green, unless that is what was applied.
    """
    show, pace, run = show or Show(), Pace(options.forks), checked_run(options.run) if options.run else new_run()
    run_owner = owner(run, options.lease)
    outcomes, targets = _find_targets(hosts, to, pace, last=last)
    fleet = _judge_checkpoints(hosts, targets, outcomes)
    if fleet is None:
        return ApplyRun(run=run, act="rollback", hosts=[outcomes[raw.name] for raw in hosts])
    _announce(targets, show)
    raws = {raw.name: raw for raw, _ in fleet.pairs}
    begun = {name: targets[name] for name in raws}
    plain = _make_options(msgspec.structs.replace(options, run=run), begun)
    try:
        _begin(raws, begun, outcomes, show, pace, run_owner, options.break_lock)
        done = apply([pair for pair in fleet.pairs if pair[0].name in begun], plain, show, confirm=confirm)
    except BaseException:
        _end_hosts(raws, {name: Request(over=True) for name in raws}, show, pace, run_owner)
        raise
    # A host that is not among them was not looked at: the run was interrupted before.
    ended = {host.host: host for host in done.hosts}
    ended |= {name: HostOutcome(host=name, state="not-started") for name in begun if name not in ended}
    unclear = {name: Request(over=True) for name in raws if name not in begun and outcomes[name].state != "locked"}
    unclear |= {name: _answer_ended(outcome, begun[name].checkpoint.run) for name, outcome in ended.items()}
    _end_hosts(raws, unclear, show, pace, run_owner)
    for name, outcome in ended.items():
        outcome.rolled_back = _describe_end(outcome, begun[name])
    outcomes |= ended
    return msgspec.structs.replace(done, act="rollback", hosts=[outcomes[raw.name] for raw in hosts])


def _announce(targets: Mapping[str, Back], show: Show) -> None:
    """Print the target of each host, what is removed for it, and what stays."""
    for name, target in targets.items():
        show.say(
            f"{name}: back to {describe_checkpoint(target.checkpoint)}"
            + "".join(f"; {each} {STAYS}" for each in target.stays)
        )
        for each in target.pruned:
            show.say(f"{name}: {each} {PRUNED}")
        for each in target.until_boot:
            show.say(f"{name}: {each}: {until_boot(each)}")
    show.say(NEVER)


def acknowledge(hosts: Sequence[RawHost], done: ApplyRun, forks: int = 0) -> None:
    """Note on hosts that are back that this was reported: the next rollback goes one checkpoint further."""
    run_owner, raws = owner(done.run), {raw.name: raw for raw in hosts}
    back = [host.host for host in done.hosts if host.rolled_back and host.green]
    on_hosts({name: (raws[name], {"action": "told", "owner": of_host(run_owner, name)}) for name in back}, Pace(forks))


def _find_targets(
    hosts: Sequence[RawHost], to: str, pace: Pace, *, last: bool
) -> tuple[dict[str, HostOutcome], dict[str, Back]]:
    outcomes: dict[str, HostOutcome] = {}
    targets: dict[str, Back] = {}
    raws = {raw.name: raw for raw in hosts}
    read = gather([(raw, (CHECKPOINTS, house.RECEIPT, house.MACHINE)) for raw in hosts], pace=pace)
    machines = {
        name: host_facts.known(house.MACHINE) or ""
        for name, host_facts in read.items()
        if isinstance(host_facts, Facts)
    }
    again = find_duplicates(machines)
    for name, facts in read.items():
        if name in again:
            outcomes[name] = duplicate(name, again[name])
            continue
        if isinstance(facts, UnreachableError):
            message, fix = lost(facts)
            outcomes[name] = HostOutcome(host=name, state="unreachable", message=message, fix=fix)
            continue
        try:
            way_back = back(facts.get(CHECKPOINTS), facts.get(house.RECEIPT), to, last=last)
        except ProbeFailed as error:
            way_back = Refused(str(error), error.fix or "see what the host prints, then roll back again")
        if isinstance(way_back, Back):
            way_back = trusted(raws[name], way_back)
        if isinstance(way_back, Refused):
            outcomes[name] = HostOutcome(host=name, state="blocked", message=way_back.message, fix=way_back.fix)
        else:
            targets[name] = way_back
    return outcomes, targets


def _judge_checkpoints(
    hosts: Sequence[RawHost], targets: dict[str, Back], outcomes: dict[str, HostOutcome]
) -> Fleet | None:
    """Return the specs of the checkpoints. A host whose checkpoint cannot be judged is blocked, without affecting the
    others."""
    fix = "--to RUN goes to another checkpoint; or name the versions in the inventory, and apply"

    def refuse(name: str, why: str) -> None:
        message = f"the spec of its checkpoint cannot be applied: {why}"
        outcomes[name] = HostOutcome(host=name, state="blocked", message=message, fix=fix)
        del targets[name]

    for name in [name for name, target in targets.items() if not target.values]:
        refuse(name, "it asks for nothing")
    while targets:
        raws = [msgspec.structs.replace(raw, values=targets[raw.name].values) for raw in hosts if raw.name in targets]
        try:
            return judge(raws)
        except SpecError as error:
            wrong = {name: problem for problem in error.problems for name in problem.hosts if name in targets}
            if not wrong:
                raise
            for name, problem in wrong.items():
                refuse(name, problem.message)
    return None


def _make_options(options: Options, targets: Mapping[str, Back]) -> Options:
    """Return the options of the apply that brings hosts to their checkpoints."""
    pruned = {name: tuple(dict.fromkeys((*target.pruned, *target.settings))) for name, target in targets.items()}
    return msgspec.structs.replace(
        options, act="apply", only=None, checkpoint=False, asked_at="", prune=True, prune_only=pruned
    )


def _describe_end(outcome: HostOutcome, target: Back) -> str:
    words = "rolled back" if outcome.state in DONE else "was to go back"
    return f"{words} to {describe_checkpoint(target.checkpoint)}"


def _begin(
    raws: Mapping[str, RawHost],
    begun: dict[str, Back],
    outcomes: dict[str, HostOutcome],
    show: Show,
    pace: Pace,
    run_owner: Owner,
    broken: Sequence[str],
) -> None:
    """Take each host's lock, record its target there, and offer the packages that it kept; leave a host alone if that
    fails."""
    plain: Request = {"action": "begin", "broken": list(broken)}
    requests: dict[str, tuple[RawHost, Request]] = {
        name: (raws[name], {**plain, "run": target.checkpoint.run, "owner": of_host(run_owner, name)})
        for name, target in begun.items()
    }
    answers = on_hosts(requests, pace)
    left = {name: answer.locked for name, answer in answers.items() if answer.locked}
    again: dict[str, tuple[RawHost, Request]] = {
        name: (raws[name], {**requests[name][1], "stale": str(answer.get("text", ""))})
        for name, answer in left.items()
        if process.is_dead(answer["holder"] if isinstance(answer.get("holder"), dict) else {}, run_owner)
    }
    for name, answer in {**answers, **on_hosts(again, pace)}.items():
        if answer.locked:
            message, fix = locked.explain_refusal(answer.locked, broken, "roll back with")
            outcomes[name] = HostOutcome(host=name, state="locked", message=message, fix=fix)
            del begun[name]
            continue
        if answer.problem is not None:
            outcomes[name] = HostOutcome(host=name, state="blocked", message=answer.problem, fix="then roll back again")
            del begun[name]
        _report_packages(name, answer, show)


def _report_packages(name: str, answer: CheckpointsAnswer, show: Show) -> None:
    """Print which packages the host takes from the files that it kept, and which it lacks."""
    unasked, offered, missing = answer.unasked, answer.offered, answer.missing
    if unasked:
        show.say(f"{name}: its repositories cannot be asked: {unasked}")
    if offered:
        why = "" if unasked else "no repository has these any more, so "
        show.say(f"{name}: {why}they come from the files the host kept: {', '.join(offered)}")
    if missing:
        why = "not kept" if unasked else "in no repository, and not kept"
        show.say(f"{name}: {why}: {', '.join(missing)}")


def _end_hosts(
    raws: Mapping[str, RawHost],
    how: Mapping[str, Request],
    show: Show,
    pace: Pace,
    run_owner: Owner,
) -> None:
    """End the rollback on these hosts, each as its fields in `how` say."""
    requests: dict[str, tuple[RawHost, Request]] = {
        name: (raws[name], {**fields, "action": "end", "owner": of_host(run_owner, name)})
        for name, fields in how.items()
    }
    for name, answer in on_hosts(requests, pace).items():
        if answer.problem is not None:
            show.say(f"{name}: what rollback put there is still there ({answer.problem}); {GO_ON}")


def _answer_ended(outcome: HostOutcome, run: str) -> Request:
    """Return the answer for the host: `over` if it was left alone, `there` if it has reached its target. A host that
    waits for a reboot has not."""
    return {"over": outcome.state in ("blocked", "not-started", "locked"), "arrived": run if outcome.green else ""}
