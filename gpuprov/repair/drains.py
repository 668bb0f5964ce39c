"""Hosts of a repair taken out of their schedulers, and given back."""

import time
from collections.abc import Callable, Mapping

from gpuprov.fleet.drain import Step, adapter, check_client, many
from gpuprov.fleet.drain.choose import By
from gpuprov.fleet.drain.noted import Noted
from gpuprov.repair.model import HostPlan, Options
from gpuprov.spec.model import RawHost

UNSURE = ("waiting", "unknown")


class Drains:
    """The schedulers of the hosts; `make` raises GpuprovError if this machine cannot ask one of them."""

    def __init__(self, adapters: Mapping[str, Noted], options: Options) -> None:
        self._adapters, self._options = adapters, options

    def take_out(self, plan: HostPlan, tell: Callable[[Step], None], sleep: Callable[[float], bool]) -> Step:
        """Take the host out, and wait until its last job has left, for as long as the options say. `sleep` returns
        False when the run is to end."""
        began, options = time.monotonic(), self._options
        while True:
            (step,) = many.take_out(
                self._adapters[plan.drain], [plan.host], options.run, wait=0, poll=options.poll, tell=tell
            )
            over = options.wait is not None and time.monotonic() + options.poll > began + options.wait
            if step.state not in UNSURE or over or not sleep(options.poll):
                return step

    def give_back(self, plan: HostPlan, tell: Callable[[Step], None]) -> Step:
        """Give back a host that is green."""
        chosen, options = self._adapters[plan.drain], self._options
        (step,) = many.give_back(chosen, {plan.host: True}, options.run, poll=options.poll, tell=tell)
        return step


def make(plans: Mapping[str, HostPlan], hosts: Mapping[str, RawHost], options: Options) -> Drains:
    """Make the adapters that these plans need."""
    needed: dict[By, list[str]] = {}
    for name, plan in plans.items():
        if plan.drain:
            needed.setdefault(plan.drain, []).append(name)
    adapters: dict[str, Noted] = {}
    for by, names in needed.items():
        check_client(by)
        command = options.command if by == "command" else ""
        context = options.context if by == "kubernetes" else ""
        chosen = adapter(by, {name: hosts[name].connection for name in names}, command=command, context=context)
        adapters[by] = Noted(chosen, {name: hosts[name] for name in names})
    return Drains(adapters, options)
