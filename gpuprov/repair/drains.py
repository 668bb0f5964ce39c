"""Hosts of a repair taken out of their schedulers, and given back."""

import time
from collections.abc import Callable, Mapping

from gpuprov.core.errors import GpuprovError
from gpuprov.fleet.drain import Step, adapter, check_client, format_undrain, many
from gpuprov.fleet.drain.choose import By, check_options
from gpuprov.fleet.drain.noted import Noted
from gpuprov.repair.model import HostPlan, Options
from gpuprov.spec.model import RawHost

# Looks in a row without an answer, after which a scheduler is asked no more.
UNANSWERED = 3


class Drains:
    """The schedulers of the hosts; `make` raises GpuprovError if this machine cannot ask one of them."""

    def __init__(self, adapters: Mapping[str, Noted], options: Options) -> None:
        self._adapters, self._options = adapters, options
        self._poll = many.POLL if options.poll is None else options.poll

    def take_out(self, plan: HostPlan, tell: Callable[[Step], None], sleep: Callable[[float], bool]) -> Step:
        """Take the host out, or find it out by others, and wait until its last job has left, for as long as the options
        say. `tell` gets each answer that is new. `sleep` returns False when the run is to end."""
        began, options = time.monotonic(), self._options
        unanswered, last, by_others = 0, "", False
        while True:
            step = self._look(plan, by_others=by_others)
            by_others = step.others or (by_others and step.state == "unknown")
            if step.words != last:
                tell(step)
            last = step.words
            unanswered = unanswered + 1 if step.state == "unknown" else 0
            is_final = step.is_free or (step.state == "refused" and not step.others) or unanswered == UNANSWERED
            over = options.wait is not None and time.monotonic() + self._poll > began + options.wait
            if is_final or over or not sleep(self._poll):
                return step

    def _look(self, plan: HostPlan, *, by_others: bool) -> Step:
        """Look once. A host that others had out by the last look is drained only if they have given it back."""
        chosen, options = self._adapters[plan.drain], self._options
        if by_others:
            step = chosen.drained(plan.host, options.run)
            if step.others or step.state == "unknown":
                return step
        (step,) = many.take_out(chosen, [plan.host], options.run, wait=0, poll=self._poll, tell=lambda _: None)
        return step

    def give_back(self, plan: HostPlan) -> Step:
        """Give back a host that is green, or on which nothing was begun."""
        chosen, options = self._adapters[plan.drain], self._options
        (step,) = many.give_back(chosen, {plan.host: True}, options.run, poll=self._poll, tell=lambda _: None)
        return step

    def format_undrain(self, plan: HostPlan) -> str:
        """Return the command that gives the host back later."""
        options = self._options
        command, context = _select_options(plan.drain, options)
        return format_undrain(plan.drain, options.run, host=plan.host, command=command, context=context)


def check(options: Options) -> None:
    """Raise GpuprovError for options of a scheduler that is not asked, or does not have them."""
    check_options(options.by, command=options.command, context=options.context)
    given = {
        "--by": bool(options.by),
        "--context": bool(options.context),
        "--poll": options.poll is not None,
        "--wait": options.wait is not None,
    }
    if not options.drain and any(given.values()):
        names = " and ".join(name for name, value in given.items() if value)
        raise GpuprovError(f"--no-drain asks no scheduler: {names} would do nothing", "leave out --no-drain, or these")


def make(plans: Mapping[str, HostPlan], hosts: Mapping[str, RawHost], options: Options) -> Drains:
    """Make the adapters that these plans need."""
    needed: dict[By, list[str]] = {}
    for name, plan in plans.items():
        if plan.drain:
            needed.setdefault(plan.drain, []).append(name)
    adapters: dict[str, Noted] = {}
    for by, names in needed.items():
        check_client(by)
        command, context = _select_options(by, options)
        chosen = adapter(by, {name: hosts[name].connection for name in names}, command=command, context=context)
        adapters[by] = Noted(chosen, {name: hosts[name] for name in names})
    return Drains(adapters, options)


def _select_options(by: str, options: Options) -> tuple[str, str]:
    """Return --command and --context as they belong to this scheduler."""
    return options.command if by == "command" else "", options.context if by == "kubernetes" else ""
