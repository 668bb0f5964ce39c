"""Defects of the hardware that no block of a spec asks about: told beside the results of verify, which do not fail by
them."""

from gpuprov.capabilities.health import wiring
from gpuprov.core import terminal
from gpuprov.facts.probes.base import Facts
from gpuprov.inventory.names import fold_names
from gpuprov.verify.verify import Pairs

PROBES = wiring.UNASKED


class Unasked:
    """A message that looks like a defect, and the hosts that have it."""

    def __init__(self, fleet: Pairs) -> None:
        self._specs = {raw.name: spec for raw, spec in fleet}
        self._hosts: dict[str, list[str]] = {}

    def note(self, host: str, facts: object) -> None:
        """Judge what was read of a host; nothing of one that was not reached."""
        if isinstance(facts, Facts):
            for defect in wiring.unasked(self._specs[host], facts):
                self._hosts.setdefault(defect, []).append(host)

    def tell(self) -> None:
        """Warn of each defect once, with all hosts that have it."""
        for defect, hosts in self._hosts.items():
            terminal.warning(f"{fold_names(hosts)}: {defect}. The spec does not ask about it; gpuprov health judges it")
