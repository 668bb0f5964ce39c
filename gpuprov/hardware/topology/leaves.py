"""Cables in the wrong switch, as a comparison of hosts shows them: where each rail has a switch of its own, the same
adapter of each host ends there."""

from collections import Counter
from collections.abc import Mapping

from gpuprov.hardware.topology.judge import Finding
from gpuprov.hardware.topology.model import Hca, Wiring

# Hosts whose same adapters end in a switch before it counts as that rail's.
LEAST = 3


def find_crossed(wirings: Mapping[str, Wiring]) -> dict[str, list[Finding]]:
    """Find by host the HCAs whose cable ends in the switch of another HCA's rail. A switch is a rail's if more than
    half of its known cables, and at least three, are of one HCA, by PCI address: one that all adapters of a rack share
    is none's."""
    cables = [
        (name, hca, end) for name, wiring in wirings.items() for hca in wiring.hcas for end in wiring.find_ends(hca)
    ]
    users: dict[str, Counter[str]] = {}
    names: dict[str, Hca] = {}
    for _, hca, end in cables:
        users.setdefault(end.switch, Counter())[hca.function.address] += 1
        names.setdefault(hca.function.address, hca)
    crossed: dict[str, list[Finding]] = {}
    for name, hca, end in cables:
        ((owner, count),) = users[end.switch].most_common(1)
        own = hca.function.address
        if own != owner and count >= LEAST and count * 2 > users[end.switch].total():
            message = (
                f"the cable of {hca.name} leads to {end}, where on {count} other hosts that of {names[owner].name} does"
            )
            fix = "compare the cabling plan: two cables of this host may be exchanged"
            crossed.setdefault(name, []).append(Finding(kind="rail", message=message, hint=fix, places=(own,)))
    return crossed
