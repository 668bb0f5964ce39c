"""Settings that --prune puts back, compared on the host while a plan is made: those that others changed stay."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from gpuprov.facts.collect.rounds import Pace
from gpuprov.host_code.lasting import parse_settings
from gpuprov.host_code.restore import act
from gpuprov.host_code.restore.kinds import ALREADY
from gpuprov.plan.foresee import Foreseen
from gpuprov.plan.host_code import HostAnswer, run_on_hosts
from gpuprov.plan.model import HOST, HostPlan
from gpuprov.plan.read import Reading
from gpuprov.spec.model import RawHost
from gpuprov.verify.unmanaged import Unmanaged


class Answer(msgspec.Struct, frozen=True):
    """The answer of `gpuprov.host_code.restore.act`: why a setting stays, by its line."""

    stays: dict[str, str] = {}


def compare_settings(
    plans: Sequence[HostPlan],
    foreseen: Mapping[str, tuple[RawHost, Foreseen]],
    *,
    limit: float,
    pace: Pace | None = None,
    on_done: Callable[[str], None] | None = None,
) -> list[HostPlan]:
    """Return the plans, those that put settings back with what their hosts say of them. limit: seconds for one host."""
    lines = {plan.host: list_settings(plan, foreseen) for plan in plans}
    requests = {name: (foreseen[name][0], {"settings": each}) for name, each in lines.items() if each}
    answers = run_on_hosts(act, requests, Answer, limit=limit, pace=pace, on_done=on_done) if requests else {}
    return [with_answer(plan, lines[plan.host], answers.get(plan.host, HostAnswer())) for plan in plans]


def find_moved(
    hosts: Mapping[str, RawHost], limit: float, plans: Iterable[HostPlan], readings: Mapping[str, Reading]
) -> dict[str, list[str]]:
    """Return, by host, how the settings that a saved plan puts back differ from what it says of them: these hosts are
    asked again, but for those that could not be read. limit: seconds for one host."""
    before = {plan.host: plan for plan in plans}
    foreseen = {
        name: (hosts[name], reading.foreseen)
        for name, reading in readings.items()
        if name in hosts and name in before and not reading.lost and reading.foreseen is not None
    }
    bare = [
        msgspec.structs.replace(before[name], unmanaged=made.unmanaged, unpredicted=())
        for name, (_, made) in foreseen.items()
    ]
    moved = {now.host: _list_moved(before[now.host], now) for now in compare_settings(bare, foreseen, limit=limit)}
    return {name: lines for name, lines in moved.items() if lines}


def _list_moved(before: HostPlan, now: HostPlan) -> list[str]:
    was = {_make_key(left): left for left in before.unmanaged if left.kind == "setting"}
    moved = [
        f"{left.name}: the plan {_describe(was[_make_key(left)])}; now apply {_describe(left)}"
        for left in now.unmanaged
        if _make_key(left) in was and was[_make_key(left)].stays != left.stays
    ]
    return [*moved, *(doubt for doubt in now.unpredicted if doubt not in before.unpredicted)]


def _make_key(leftover: Unmanaged) -> Unmanaged:
    return msgspec.structs.replace(leftover, stays="", reboot="")


def _describe(leftover: Unmanaged) -> str:
    return f"leaves it ({leftover.stays})" if leftover.stays else f"puts back {leftover.before}"


def list_settings(plan: HostPlan, foreseen: Mapping[str, tuple[RawHost, Foreseen]]) -> list[str]:
    """Return the lines of the settings that a plan puts back."""
    if plan.host not in foreseen or plan.blocked or not plan.prunes:
        return []
    return [*foreseen[plan.host][1].prune.get("settings", ())]


def with_answer(plan: HostPlan, lines: Iterable[str], answer: HostAnswer[Answer]) -> HostPlan:
    """Return the plan without the settings that stay, each with its reason; without an answer it stays as it is."""
    if answer.answer is None:
        doubt = f"settings that would be put back: {answer.problem}"
        return msgspec.structs.replace(plan, unpredicted=(*plan.unpredicted, doubt)) if answer.problem else plan
    stays = answer.answer.stays
    settings = {line: setting for line in lines for setting in parse_settings([line])}

    def judge(leftover: Unmanaged) -> Unmanaged:
        own = [stays.get(line, "") for line, setting in settings.items() if leftover.is_of(setting)]
        if leftover.stays or not own or "" in own:
            return leftover
        why = next((each for each in own if each != ALREADY), ALREADY)
        return msgspec.structs.replace(leftover, stays=why, reboot="")

    left = tuple(map(judge, plan.unmanaged))
    staying = {(each.name, each.before) for each in left if each.kind == "setting" and each.stays}
    pending = {each.reboot for each in left if each.reboot}
    over = {each.reboot for each in plan.unmanaged if each.reboot} - pending
    reasons = tuple(reason for reason in plan.reboot_reasons if reason not in over)
    return msgspec.structs.replace(
        plan,
        unmanaged=left,
        reboot=plan.reboot if plan.reboot == "unknown" else bool(reasons),
        reboot_reasons=reasons,
        changes=tuple(
            change
            for change in plan.changes
            if not (change.kind == "setting" and change.capability == HOST and (change.name, change.after) in staying)
        ),
    )
