"""Rules and checks of the part `rdma.erdma`: Alibaba's eRDMA."""

from gpuprov.capabilities.base import Check
from gpuprov.capabilities.rdma.erdma import boot, now, preflight
from gpuprov.capabilities.rdma.erdma.rules import fleet_rules, rules
from gpuprov.catalog.rdma import erdma as catalogue
from gpuprov.facts.probes.base import Facts
from gpuprov.facts.probes.rdma.erdma import ERDMA
from gpuprov.host_code.json_members import Json

CHECKS: tuple[Check, ...] = now.CHECKS + boot.CHECKS + preflight.CHECKS
EXPORT_PROBES = (ERDMA,)


def exported(facts: Facts) -> dict[str, Json] | None:
    """Return the host's eRDMA as `stack` and `erdma` of a spec; None if gpuprov would set it up differently."""
    state = facts.get(ERDMA)
    mtus = {pair.mtu for pair in state.pairs}
    known = catalogue.read_erdma_file().mtu
    setting = {known.jumbo: "jumbo", known.standard: "standard"}.get(next(iter(mtus), 0)) if len(mtus) == 1 else None
    if not state.loaded or setting is None or state.config is None:
        return None
    value = state.parameters.get("compat_mode", "")
    configured = dict(
        line.split()[1:] for line in state.config if line.startswith("parameter ") and len(line.split()) == 3
    )
    others = {name: shown for name, shown in configured.items() if name != "compat_mode"}
    parameters = {name: shown == "Y" if shown in ("Y", "N") else int(shown) for name, shown in others.items()}
    return {
        "stack": "erdma-vendor" if value else "inbox",
        "erdma": {"compat_mode": value == "Y", "mtu": setting, "parameters": parameters},
    }


__all__ = ["CHECKS", "EXPORT_PROBES", "exported", "fleet_rules", "rules"]
