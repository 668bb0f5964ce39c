"""The order of a run's hosts, and when it stops: a policy from its options, carried out by the engine of a single
process."""

from collections.abc import Collection, Iterable, Mapping, Sequence

from gpuprov.apply.model import DONE, Act, HostOutcome, Options
from gpuprov.fleet.policy.events import HostEnd, Verdict, verdict_of
from gpuprov.fleet.policy.in_memory import InMemory
from gpuprov.fleet.policy.options import OPTIONS, policy_of
from gpuprov.fleet.policy.planned import Member, planned
from gpuprov.fleet.policy.policy import Policy
from gpuprov.plan.read import Pair
from gpuprov.verify.verify import verdict


def check(pairs: Sequence[Pair], options: Options) -> None:
    """Raise GpuprovError for invalid options: a number, or a canary that is not among these hosts."""
    _list_canaries(_list_members(pairs), _build_policy(options))


def engine(pairs: Sequence[Pair], options: Options, outcomes: Mapping[str, HostOutcome]) -> InMemory:
    """Return the engine over the hosts with something to do: shares refer to these. Hosts named by --canary belong to
    the canary even if there is nothing to do on them; they count in their current state."""
    policy, members = _build_policy(options), _list_members(pairs)
    named = _list_canaries(members, policy)
    taking_part = [member for member in members if outcomes[member.name].ran or member.name in named]
    idle = [member.name for member in taking_part if not outcomes[member.name].ran]
    plan = planned(policy, taking_part, total=len(taking_part) - len(idle), options=OPTIONS)
    return InMemory(plan, ends(outcomes, idle, options.act))


def ends(outcomes: Mapping[str, HostOutcome], hosts: Iterable[str], act: Act) -> list[HostEnd]:
    """Return the outcomes of these hosts as the engine counts them."""
    return [HostEnd(name, _judge_host(outcomes[name], act), outcomes[name].state) for name in hosts]


def _build_policy(options: Options) -> Policy:
    return policy_of(canary=options.canary, serial=options.serial, max_fail=options.max_fail, reboot=options.reboot)


def _list_members(pairs: Sequence[Pair]) -> list[Member]:
    return [Member(raw.name, raw.groups) for raw, _ in pairs]


def _list_canaries(members: Sequence[Member], policy: Policy) -> Collection[str]:
    """Return the hosts that the canary names; none if it is a number of hosts."""
    return planned(policy, members, options=OPTIONS).batches[0].hosts if policy.canary.hosts else ()


def _judge_host(outcome: HostOutcome, act: Act) -> Verdict:
    ended, reboot = outcome.state in DONE, bool(outcome.reboot)
    if act == "prepare":  # what waits for a reboot waits for the apply after it
        return verdict_of(outcome.state, green=ended and (reboot or not outcome.wrong), reboot=False)
    proven = not outcome.unproven or verdict(outcome.verified) != "not proven"
    return verdict_of(outcome.state, green=ended and proven and not outcome.wrong, reboot=reboot)
