"""Export of a host's current RDMA devices as a spec."""

from gpuprov.capabilities.rdma.efa import checks as efa
from gpuprov.capabilities.rdma.erdma import checks as erdma
from gpuprov.capabilities.rdma.fragment import Rdma
from gpuprov.capabilities.rdma.nccl import checks as nccl
from gpuprov.capabilities.rdma.roce import reality as roce_reality
from gpuprov.catalog import rdma as catalogue
from gpuprov.core.safe_parse import is_whole
from gpuprov.facts.probes.base import Facts
from gpuprov.facts.probes.host import systemd
from gpuprov.facts.probes.kernel import boot
from gpuprov.facts.probes.rdma import DEVICES, RdmaDevice, list_hcas, slow_ports
from gpuprov.facts.probes.rdma.surroundings import HOST, RdmaHost
from gpuprov.hardware.topology.ports import select_devices
from gpuprov.host_code.at_boot.devices import IWARP, is_of_fabric
from gpuprov.host_code.json_members import Json
from gpuprov.spec.build import convert
from gpuprov.spec.model import Fragment

PROBES = tuple(
    dict.fromkeys(
        (DEVICES, HOST, boot.LOGIN_LIMITS, systemd.DEFAULT_LIMITS)
        + (
            *erdma.EXPORT_PROBES,
            *efa.EXPORT_PROBES,
            *nccl.EXPORT_PROBES,
            *roce_reality.ROCE_PROBES,
            *roce_reality.OFED_PROBES,
        )
    )
)


def export(facts: Facts) -> Fragment | None:
    """Return the fabric of the devices that are present (InfiniBand first, software last), their number, rate and
    limits. A host that runs opensm is not named: only the inventory knows its name there."""
    devices, host = list_hcas(facts.get(DEVICES)), facts.get(HOST)
    fabric = _find_fabric(devices)
    if not fabric:
        return None
    spec_block: dict[str, Json] = {"fabric": fabric, "memlock": _find_shared_memlock(facts)}
    if fabric == "soft":
        if (made := _read_soft_devices(devices, host)) is None:
            return None
        spec_block["soft"] = made
    elif fabric == "erdma":
        if (known := erdma.exported(facts)) is None:
            return None
        spec_block |= known
    elif fabric == "efa":
        spec_block |= efa.exported(facts)
    elif fabric in ("infiniband", "roce") and (known := roce_reality.ofed(facts)):
        spec_block |= {"stack": "doca-ofed", "ofed": known}
    selected = select_devices(Rdma(fabric=fabric), devices)  # type: ignore[arg-type]
    slow = {(port.device, port.port) for port in slow_ports(selected)}
    rates = [port.rate for device in selected for port in device.ports if (device.name, port.number) not in slow]
    if fabric == "efa":
        spec_block |= {"count": len(selected)}
    elif fabric not in ("soft", "erdma"):
        spec_block |= {"count": len(selected), "rate": int(min(rates)) if rates else 0}
    if fabric == "infiniband":
        lids = [port.sm_lid for device in selected for port in device.ports]
        ipoib = {netdev.address for netdev in host.netdevs if netdev.kind == 32}
        spec_block |= {"opensm": {"elsewhere": any(lids) and not host.managers}}
        spec_block |= {"ipoib": {device.address for device in selected} <= ipoib}
    block, _ = convert(spec_block, Rdma)
    if not isinstance(block, Rdma):
        return None
    spec_block |= {"nccl": nccl.exported(facts, block), "roce": roce_reality.roce(facts, block)}
    block, _ = convert(spec_block, Rdma)
    return block if isinstance(block, Rdma) else None


def _find_fabric(devices: tuple[RdmaDevice, ...]) -> str:
    drivers = {device.driver for device in devices}
    if any(is_of_fabric("infiniband", device) for device in devices):
        return "infiniband"
    if "erdma" in drivers:
        return "erdma"
    if "efa" in drivers:
        return "efa"
    hardware = [device for device in devices if not device.soft]
    if hardware:
        return "iwarp" if all(device.node_type == IWARP for device in hardware) else "roce"
    return "soft" if devices else ""


def _read_soft_devices(devices: tuple[RdmaDevice, ...], host: RdmaHost) -> dict[str, Json] | None:
    """Return the software devices as gpuprov's unit makes them; None if they were not made by it."""
    rows = [line.split() for line in host.soft.config or ()]
    drivers = {row[0] for row in rows if len(row) == 2}
    if host.soft.file != "enabled" or len(drivers) != 1:
        return None
    driver = next(iter(drivers))
    if catalogue.SOFT_MODULES.get(driver) not in {device.driver for device in devices}:
        return None
    return {"driver": driver, "netdevs": [row[1] for row in rows if row[1] != "default"]}


def _find_shared_memlock(facts: Facts) -> str:
    """Return the limit that login sessions and services share; empty if they differ."""
    login = facts.get(boot.LOGIN_LIMITS).get("memlock", "")
    default = facts.get(systemd.DEFAULT_LIMITS).get("memlock", "")
    if login == "unlimited" and default == "infinity":
        return "unlimited"
    return login if is_whole(login) and default == str(int(login) * 1024) else ""
