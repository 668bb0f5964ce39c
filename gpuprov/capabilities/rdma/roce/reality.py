"""Export of current RoCE ports and DOCA-OFED as the blocks of a spec."""

from typing import get_args

from gpuprov.capabilities.rdma.fragment import Rdma
from gpuprov.capabilities.rdma.ofed.fragment import Key
from gpuprov.capabilities.rdma.roce.lines import NONE
from gpuprov.catalog.rdma import ofed as catalogue
from gpuprov.core.safe_parse import is_whole
from gpuprov.facts.probes import rdma
from gpuprov.facts.probes.base import Facts
from gpuprov.facts.probes.rdma.ofed import OFED, PACKAGES, release
from gpuprov.facts.probes.rdma.roce import ROCE
from gpuprov.hardware.topology.ports import select_devices
from gpuprov.host_code.at_boot.roce_ports import get_default_priority
from gpuprov.host_code.json_members import Json

ROCE_PROBES = (ROCE, rdma.DEVICES)
OFED_PROBES = (OFED, PACKAGES)
NUMBERS = ("tos", "traffic_class", "cnp_dscp", "cnp_802p_prio", "mtu")
WORDS = {True: "yes", False: "no"}


def roce(facts: Facts, block: Rdma) -> dict[str, Json]:
    """Return the settings that all of the block's ports share; a setting in which they differ, or that nothing shows,
    is omitted."""
    if block.fabric != "roce":
        return {}
    names = {device.name for device in select_devices(block, facts.get(rdma.DEVICES))}
    ports = [port for port in facts.get(ROCE).ports if port.device in names]
    if not ports:
        return {}
    common = {
        key: value
        for key, value in ports[0].values.items()
        if all(port.values.get(key) == value for port in ports if port.has(key))
    }
    spec_block: dict[str, Json] = {key: common[key] for key in ("trust", "mode") if key in common}
    spec_block |= {key: int(common[key]) for key in NUMBERS if is_whole(common.get(key, ""))}
    for key in ("pfc", "ecn"):
        if key in common and (common[key] == NONE or is_whole(common[key].replace(",", ""))):
            spec_block[key] = [NONE] if common[key] == NONE else [int(part) for part in common[key].split(",")]
    mapped = {key.removeprefix("dscp."): int(value) for key, value in common.items() if key.startswith("dscp.")}
    own = {dscp: priority for dscp, priority in mapped.items() if priority != get_default_priority(int(dscp))}
    return {**spec_block, "dscp2prio": own} if own else spec_block


def ofed(facts: Facts) -> dict[str, Json] | None:
    """Return the block of a host with DOCA-OFED; None without it. The host does not record where its package came
    from."""
    state, packages = facts.get(OFED), facts.get(PACKAGES)
    if catalogue.PROFILE not in packages:
        return None
    names = catalogue.list_packages("debian", kernel=True) + catalogue.list_packages("redhat", kernel=True)
    packaged = next((release(packages[name].version) for name in names if name in packages), "")
    keys = {key: value for key, value in (state.settings or {}).items() if key in get_args(Key)}
    values = {key: value == WORDS[True] if value in WORDS.values() else value for key, value in keys.items()}
    known = {
        key: value
        for key, value in values.items()
        if isinstance(value, bool) or (key, value) == ("SET_IPOIB_CM", "auto")
    }
    own = [
        package
        for name, package in packages.items()
        if name in catalogue.list_packages("debian", held=True) + catalogue.list_packages("redhat", held=True)
    ]
    return {
        "version": state.release or packaged,
        "hold": all(package.held for package in own),
        "openib_conf": {key: value for key, value in known.items() if key not in ("ONBOOT",) or value is True},
    }
