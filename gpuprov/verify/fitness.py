"""Is a host fit for work: what its health checks come to, and what is to be done, the most severe first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

from gpuprov.catalog.xids import SEVERITY, Action
from gpuprov.catalog.xids import worst as highest
from gpuprov.verify.evaluate import FAILING, JUDGED, Result

Fit = Literal["yes", "until", "no", "not proven"]
CAPABILITY = "health"
UNTIL: dict[Action, str] = {
    "restart": "a program is restarted",
    "update": "driver and firmware are updated",
    "reset": "its GPUs are reset",
    "reboot": "it is restarted",
}
"""What is done on the host itself: after it, it is fit again. A program's error fails where the spec says so, and is told else."""
NO: dict[Action, str] = {
    "drain": "drain it",
    "return": "drain it, and return the card",
    "none": "see what fails",
}


class Fitness(msgspec.Struct, frozen=True, kw_only=True):
    """Of one host. `action`: the most severe that is asked for. `causes`: what fails and follows from nothing else, the most severe
    first, each with its `followers`; `unproven`: what could not be judged; `told`: what passes and asks for something all the same."""

    host: str
    fit: Fit
    action: Action = "none"
    causes: tuple[Result, ...] = ()
    followers: dict[str, tuple[str, ...]] = {}
    unproven: tuple[Result, ...] = ()
    told: tuple[Result, ...] = ()

    @property
    def sentence(self) -> str:
        """`not fit for work: drain it`."""
        head, _, rest = str(self).partition(": ")
        if self.fit == "not proven":
            return f"not proven to be fit for work: {rest}"
        if self.fit == "until":
            return f"not fit for work {str(self).removeprefix('not ')}"
        return f"not fit for work: {rest}" if self.fit == "no" else f"fit for work{head.removeprefix('yes')}"

    def __str__(self) -> str:
        if self.fit == "until":
            return f"not until {UNTIL[self.action]}"
        if self.fit == "no":
            return f"no: {NO.get(self.action, 'see what fails')}"
        if self.fit == "not proven":
            return f"not proven: {self.unproven[0].found if self.unproven else 'nothing was judged'}"
        return "yes; a program is to be restarted" if self.action == "restart" else "yes"


def of_health(results: Iterable[Result]) -> list[Result]:
    """The results that say something of a host's health: the capability's own, and why a host could not be judged at all."""
    return [
        one for one in results if one.capability == CAPABILITY or one.status == "unreachable" or one.check == JUDGED
    ]


def fitness(results: Sequence[Result]) -> list[Fitness]:
    """Of each host, in their order."""
    hosts: dict[str, list[Result]] = {}
    for one in of_health(results):
        hosts.setdefault(one.host, []).append(one)
    return [_of(host, found) for host, found in hosts.items()]


def severity(result: Result) -> int:
    """How severe what is to be done is; what fails without anybody naming an action stands between a program and the GPU."""
    if result.status == "fail" and result.action in ("", "none"):
        return SEVERITY.index("update")
    return SEVERITY.index(_action(result))


def _action(result: Result) -> Action:
    return next((one for one in SEVERITY if one == result.action), "none")


def _of(host: str, found: Sequence[Result]) -> Fitness:
    told_of = {
        one.check for one in found
    }  # what follows from a check of another capability follows from nothing that is told here
    bad = [one for one in found if one.status == "fail"]
    causes = sorted((one for one in bad if one.follows not in told_of), key=lambda one: -severity(one))
    broken = [one for one in found if one.status in ("error", "unreachable") and one.follows not in told_of]
    unproven = (*broken, *(one for one in found if one.status == "skip"))
    followers: dict[str, tuple[str, ...]] = {}
    for one in found:
        if one.follows in told_of and one.status in FAILING:
            followers[one.follows] = (*followers.get(one.follows, ()), one.check)
    told = tuple(one for one in found if one.status == "pass" and one.action not in ("", "none"))
    worst = highest(tuple(_action(one) for one in causes))
    unnamed = any(one.action in ("", "none") for one in causes)
    fit: Fit
    if worst in ("drain", "return") or (unnamed and worst in ("none", "restart")):
        fit = "no"
        worst = "none" if worst == "restart" else worst
    elif worst in UNTIL:
        fit = "until"
    elif unproven or not any(one.status == "pass" for one in found):
        fit = "not proven"
    else:
        fit = "yes"
        worst = "restart" if told else "none"
    return Fitness(
        host=host, fit=fit, action=worst, causes=tuple(causes), followers=followers, unproven=tuple(unproven), told=told
    )


def health_code(results: Sequence[Result]) -> int:
    """4 if a host was unreachable, else 1 if one is not fit, or not proven to be, or a check fails; else 0."""
    judged = of_health(results)
    if any(one.status == "unreachable" for one in judged):
        return 4
    hosts = fitness(judged)
    return int(not hosts or any(one.fit != "yes" for one in hosts) or any(one.status in FAILING for one in judged))
