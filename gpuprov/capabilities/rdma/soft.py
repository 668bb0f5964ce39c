"""Software RDMA: the device of each network interface, and the unit that creates it at each boot."""

import msgspec

from gpuprov.capabilities.answers import APPLY, BEFORE
from gpuprov.capabilities.at_boot import COMMON, command, unit
from gpuprov.capabilities.base import Context, Outcome, not_asked
from gpuprov.capabilities.compared import Group, compared
from gpuprov.capabilities.rdma.at_boot import RDMA, UNITS, AtBoot, configuration
from gpuprov.capabilities.rdma.fragment import Rdma
from gpuprov.catalog import rdma as catalogue
from gpuprov.facts.probes.base import Facts
from gpuprov.facts.probes.rdma import DEVICES, RdmaDevice
from gpuprov.facts.probes.rdma.surroundings import HOST
from gpuprov.host_code.at_boot import soft as onhost
from gpuprov.host_code.at_boot.network import Netdev
from gpuprov.host_code.at_boot.soft import DEFAULT
from gpuprov.resources import Setting

Ctx = Context[Rdma]
# Reloading makes and removes what differs; a restart would remove every device, under those that use it.
UNIT = unit(
    f"""
Description=Software RDMA devices
Documentation=man:rdma-link(8) man:rxe(7)
Wants=network-online.target
After=network-online.target systemd-modules-load.service
{BEFORE}""",
    f"""
ExecStart={command(RDMA, "soft", "apply", 60)}
ExecReload={command(RDMA, "soft", "apply", 30)}
ExecStop={command(RDMA, "soft", "remove")}
TimeoutStartSec=120
""",
)
MODULES = (*COMMON, "devices", "devices_reader", "network", "soft")
SERVICE = catalogue.SOFT_UNIT
FILES = (f"{UNITS}/{SERVICE}", catalogue.SOFT_CONFIG)


def lines(block: Rdma) -> tuple[str, ...]:
    """Return the configuration on the host: `DRIVER INTERFACE`."""
    return tuple(f"{block.soft.driver} {name}" for name in block.soft.netdevs or (DEFAULT,))


def interfaces(block: Rdma, facts: Facts) -> dict[str, Netdev | None]:
    """Return each requested interface, as the spec names it, with the host's interface."""
    host = facts.get(HOST)
    if not block.soft.netdevs:
        return {"the default route's": host.netdev(host.default_route) if host.default_route else None}
    return {name: host.netdev(name) for name in block.soft.netdevs}


@compared("rdma.soft", DEVICES, HOST, fields=("soft",), evidence="rdma link")
def soft(ctx: Ctx) -> Group | Outcome:
    """Each network interface that the spec names has a device of this driver, matched by interface whatever the
    device's name."""
    block = ctx.fragment
    if block.fabric != "soft":
        return not_asked()
    module = catalogue.SOFT_MODULES[block.soft.driver]
    netdevs = interfaces(block, ctx.facts)
    absent = tuple(f"no network interface {name}" for name, netdev in netdevs.items() if netdev is None)
    links, values, good = list[Setting](), dict[tuple[str, str], str](), list[str]()
    for netdev, own, others in devices(block, ctx.facts):
        other = ", ".join(f"{device.name} is {device.driver}" for device in others)
        words = f"{netdev.name} has no {block.soft.driver} device" + (f" ({other})" if other else "")
        link = Setting(kind="rdma link", device=netdev.name, value=block.soft.driver, words=words, before=other)
        links.append(msgspec.structs.replace(link, name=f"rdma link, {netdev.name}"))
        if own:
            good.append(f"{own[0].name} on {netdev.name}")
            values[netdev.name, ""] = block.soft.driver
    expected = f"{block.soft.driver} on {', '.join(netdevs)}"
    return Group(
        tuple(links), values, expected=expected, right=", ".join(good), fix=_make_fix(ctx, module), beside=absent
    )


def devices(block: Rdma, facts: Facts) -> list[tuple[Netdev, list[RdmaDevice], list[RdmaDevice]]]:
    """Return each requested interface that is present, its software devices of the requested driver, and its other
    ones."""
    module, entries = catalogue.SOFT_MODULES[block.soft.driver], []
    for netdev in filter(None, interfaces(block, facts).values()):
        on = onhost.select_of_netdev(netdev.name, facts.get(DEVICES))
        own = [device for device in on if device.driver == module]
        entries.append((netdev, own, [device for device in on if device not in own]))
    return entries


def at_boot(ctx: Ctx) -> AtBoot | None:
    """Return the unit that creates the devices; None if none are requested."""
    block = ctx.fragment
    if block.fabric != "soft":
        return None
    wanting = [netdev.name for netdev, own, _ in devices(block, ctx.facts) if not own]
    about = f"DRIVER INTERFACE; an interface is a name, a MAC address, or {DEFAULT}: that of the default route."
    return AtBoot(
        unit=SERVICE,
        text=UNIT,
        modules=MODULES,
        files={catalogue.SOFT_CONFIG: configuration(lines(block), about)},
        differs=", ".join(f"{name} {block.soft.driver}" for name in wanting),
        speaks="rdma-soft",
        fix="correct what it reports and apply again; dmesg | grep -E 'rxe|siw', on the host",
    )


def _make_fix(ctx: Ctx, module: str) -> str:
    host = ctx.facts.get(HOST)
    if host.modules.get(module) == "absent":
        return f"this kernel has no module {module}"
    if host.port_users and host.modules.get("rdma_rxe") != "loaded" and ctx.fragment.soft.driver == "rxe":
        return f"UDP port {catalogue.ROCE_PORT} is held by {', '.join(host.port_users)}: end it, then {APPLY}"
    return f"systemctl restart {SERVICE} ({APPLY} does)"


CHECKS = (soft,)
