"""Find out if a saved plan was applied since it was made, by which run and when: from the receipt and the fence of its
hosts."""

from collections.abc import Mapping

from gpuprov.facts.probes.base import ProbeFailed
from gpuprov.facts.probes.host import house
from gpuprov.inventory.names import fold_names as names
from gpuprov.plan.model import HOST
from gpuprov.plan.read import Reading


def applied(run: Mapping[str, str], spec: Mapping[str, str], made_at: str, reading: Reading) -> str:
    """Return by which run and when a host's plan was applied; empty if it was not. run: the capabilities of the plan;
    spec: their digests; made_at: the time of the plan."""
    receipt = reading.facts.known(house.RECEIPT)
    planned = [name for name in run if name != HOST]
    if not receipt or receipt.damaged or not planned:
        return ""
    entries = [receipt.capabilities.get(name) or house.Applied("") for name in planned]
    if any(
        entry.applied_at < made_at or entry.digest != spec.get(name)
        for name, entry in zip(planned, entries, strict=True)
    ):
        return ""
    at = max(entry.applied_at for entry in entries)
    try:
        fence = reading.facts.get(house.FENCE)
    except ProbeFailed:
        fence = {}
    if not fence or fence["since"] > at:
        return f"at {at}"  # another run has taken the lock since
    return f"by run {fence['run']} of {fence['user']} on {fence['host']}, at {at}"


def describe(since: Mapping[str, str]) -> list[str]:
    """Describe the hosts on which the plan was applied since: those of one run on one line."""
    alike: dict[str, list[str]] = {}
    for host, by in since.items():
        alike.setdefault(by, []).append(host)
    return [f"{names(hosts)}: this plan was applied already, {by}" for by, hosts in alike.items()]
