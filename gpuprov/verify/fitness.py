"""Is a host fit for work: what its health checks come to, and what is to be done, the most severe first."""

from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

from gpuprov.catalog.xids import SEVERITY, Action
from gpuprov.catalog.xids import find_worst as highest
from gpuprov.core.errors import Code, Outcome, choose_code
from gpuprov.verify.evaluate import FAILING, JUDGED, RECORDED, Result
from gpuprov.verify.verify import judge_hosts

Fit = Literal["yes", "until", "no", "not proven"]
CAPABILITY = "health"
# What is done on the host itself: after it, it is fit again. A program's error fails where the spec says so, and is
# told else.
UNTIL: dict[Action, str] = {
    "restart": "a program is restarted",
    "update": "driver and firmware are updated",
    "reset": "its GPUs are reset",
    "reboot": "it is restarted",
}
NO: dict[Action, str] = {"drain": "drain it", "return": "drain it, and return the card", "none": "see what fails"}


class Fitness(msgspec.Struct, frozen=True, kw_only=True):
    """The fitness of one host."""

    host: str
    fit: Fit
    # The most severe that is requested.
    action: Action = "none"
    # Failures that follow from nothing else, the most severe first, each with its `followers`.
    causes: tuple[Result, ...] = ()
    followers: dict[str, tuple[str, ...]] = {}
    # What could not be checked.
    unproven: tuple[Result, ...] = ()
    # What passes and requests an action all the same.
    notices: tuple[Result, ...] = ()

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
    """The results that say something of a host's health: the capability's own, and why a host could not be judged at
    all."""
    return [
        result
        for result in results
        if result.capability == CAPABILITY or result.status == "unreachable" or result.check in (JUDGED, RECORDED)
    ]


def fitness(results: Sequence[Result]) -> list[Fitness]:
    """Return the fitness of each host, in their order."""
    hosts: dict[str, list[Result]] = {}
    for result in of_health(results):
        hosts.setdefault(result.host, []).append(result)
    return [_judge_fitness(host, host_results) for host, host_results in hosts.items()]


def severity(result: Result) -> int:
    """Return how severe the required action is; a failure for which no action is named stands between a program and the
    GPU."""
    if result.status == "fail" and result.action in ("", "none"):
        return SEVERITY.index("update")
    return SEVERITY.index(_choose_action(result))


def _choose_action(result: Result) -> Action:
    return next((action for action in SEVERITY if action == result.action), "none")


def _judge_fitness(host: str, results: Sequence[Result]) -> Fitness:
    checks = {
        result.check for result in results
    }  # what follows from a check of another capability follows from nothing that is reported here
    bad = [result for result in results if result.status == "fail"]
    causes = sorted((result for result in bad if result.follows not in checks), key=lambda item: -severity(item))
    broken = [
        result for result in results if result.status in ("error", "unreachable") and result.follows not in checks
    ]
    unproven = (*broken, *(result for result in results if result.status == "skip"))
    followers: dict[str, tuple[str, ...]] = {}
    for result in results:
        if result.follows in checks and result.status in FAILING:
            followers[result.follows] = (*followers.get(result.follows, ()), result.check)
    notices = tuple(result for result in results if result.status == "pass" and result.action not in ("", "none"))
    worst = highest(tuple(_choose_action(result) for result in causes))
    unnamed = any(result.action in ("", "none") for result in causes)
    fit: Fit
    if worst in ("drain", "return") or (unnamed and worst in ("none", "restart")):
        fit = "no"
        worst = "none" if worst == "restart" else worst
    elif worst in UNTIL:
        fit = "until"
    elif unproven or not any(result.status == "pass" for result in results):
        fit = "not proven"
    else:
        fit = "yes"
        worst = "restart" if notices else "none"
    return Fitness(
        host=host,
        fit=fit,
        action=worst,
        causes=tuple(causes),
        followers=followers,
        unproven=tuple(unproven),
        notices=notices,
    )


OUTCOMES: dict[Fit, Outcome] = {"yes": "ok", "until": "differs", "no": "differs", "not proven": "not proven"}


def judge_fitness(results: Sequence[Result]) -> dict[str, Outcome]:
    """Return the outcome of each host; a check that fails only because of another one is a difference, too."""
    relevant = of_health(results)
    judged = judge_hosts(relevant)
    return {
        host.host: judged[host.host] if judged[host.host] in ("unreachable", "differs") else OUTCOMES[host.fit]
        for host in fitness(relevant)
    }


def health_code(results: Sequence[Result]) -> Code:
    """Return the exit code of health."""
    return choose_code(judge_fitness(results).values())
