"""Software RDMA: has each network interface its device, and will it have it after a reboot."""

from __future__ import annotations

from gpuprov.capabilities import answers
from gpuprov.capabilities.base import Change, Context, Outcome, check, fail, not_asked, ok
from gpuprov.capabilities.rdma.fragment import Rdma
from gpuprov.catalog import rdma as catalogue
from gpuprov.probe.base import Facts
from gpuprov.probe.rdma import DEVICES, RdmaDevice
from gpuprov.probe.rdma_host import HOST, Netdev

Ctx = Context[Rdma]
APPLY = "gpuprov apply"
DEFAULT = "default"
"""In the configuration: the network interface of the default route."""


def lines(block: Rdma) -> tuple[str, ...]:
    """The configuration on the host: `DRIVER INTERFACE`."""
    return tuple(f"{block.soft.driver} {name}" for name in block.soft.netdevs or (DEFAULT,))


def interfaces(block: Rdma, facts: Facts) -> dict[str, Netdev | None]:
    """Each interface that is asked for, as it is named in the spec, and what the host has."""
    host = facts.get(HOST)
    if not block.soft.netdevs:
        return {"the default route's": host.netdev(host.default_route) if host.default_route else None}
    return {name: host.netdev(name) for name in block.soft.netdevs}


@check("rdma.soft", DEVICES, HOST, fields=("soft",), evidence="rdma link")
def soft(ctx: Ctx) -> Outcome:
    """Each network interface that is asked for has a device of this driver, found by the interface, whatever its name is."""
    block = ctx.fragment
    if block.fabric != "soft":
        return not_asked()
    module = catalogue.SOFT_MODULES[block.soft.driver]
    wanted, found = interfaces(block, ctx.facts), ctx.facts.get(DEVICES)
    told, changes, good = [], [], []
    for name, netdev in wanted.items():
        if netdev is None:
            told.append(f"no network interface {name}")
            continue
        there = _on(netdev, found)
        right = [device.name for device in there if device.driver == module]
        if right:
            good.append(f"{right[0]} on {netdev.name}")
            continue
        other = ", ".join(f"{device.name} is {device.driver}" for device in there)
        told.append(f"{netdev.name} has no {block.soft.driver} device" + (f" ({other})" if other else ""))
        changes.append(Change(kind="setting", name=f"rdma link, {netdev.name}", before=other, after=block.soft.driver))
    expected = f"{block.soft.driver} on {', '.join(wanted)}"
    if told:
        return fail(expected, "; ".join(told), _hint(ctx, module), changes=changes)
    return ok(", ".join(good), expected)


@check(
    "rdma.soft_boot",
    HOST,
    fields=("soft",),
    moment="next-boot",
    evidence=f"systemctl status {catalogue.SOFT_UNIT}; cat {catalogue.SOFT_CONFIG}",
)
def soft_boot(ctx: Ctx) -> Outcome:
    """The unit that makes the devices at boot is enabled, has what is asked for, and did not fail: `rdma link add` is gone
    with the next boot."""
    host, unit = ctx.facts.get(HOST), catalogue.SOFT_UNIT
    if ctx.fragment.fabric != "soft":
        if host.soft.file == "enabled":
            change = Change(kind="service", name=unit, before="enabled", after="removed")
            return fail("no software devices", f"{unit} is enabled", APPLY, changes=[change])
        return not_asked()
    return answers.set_at_boot(unit, catalogue.SOFT_CONFIG, lines(ctx.fragment), host.soft, "rdma-soft", _hint(ctx, ""))


def _on(netdev: Netdev, devices: tuple[RdmaDevice, ...]) -> list[RdmaDevice]:
    return [device for device in devices if device.soft and netdev.name in device.netdevs]


def _hint(ctx: Ctx, module: str) -> str:
    host = ctx.facts.get(HOST)
    if module and host.modules.get(module) == "absent":
        return f"this kernel has no module {module}"
    if host.port_users and host.modules.get("rdma_rxe") != "loaded" and ctx.fragment.soft.driver == "rxe":
        return f"UDP port {catalogue.ROCE_PORT} is held by {', '.join(host.port_users)}: end it, then {APPLY}"
    return f"systemctl restart {catalogue.SOFT_UNIT} ({APPLY} does)"


CHECKS = (soft, soft_boot)
