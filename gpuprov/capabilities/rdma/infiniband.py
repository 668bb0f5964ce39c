"""Checks and units for InfiniBand only: management datagrams from user space, IP over InfiniBand, a subnet manager on
the right hosts."""

from collections.abc import Iterator

from gpuprov.capabilities.answers import APPLY, HEADER
from gpuprov.capabilities.base import Context, Outcome, check, fail, not_asked, ok
from gpuprov.capabilities.compared import find_fault
from gpuprov.capabilities.rdma.at_boot import UNITS
from gpuprov.capabilities.rdma.fragment import Rdma
from gpuprov.catalog.rdma import OPENSM_UNIT
from gpuprov.core.sanitize import counted
from gpuprov.facts.probes.rdma import DEVICES
from gpuprov.facts.probes.rdma.surroundings import HOST, RdmaHost
from gpuprov.hardware.topology.ports import select_devices
from gpuprov.host_code.json_members import Json
from gpuprov.resources import KernelModule, Modules, Unit

Ctx = Context[Rdma]
# ARPHRD_INFINIBAND, the type of an IPoIB network interface: include/uapi/linux/if_arp.h in Linux.
IPOIB = 32

ORDER = f"{UNITS}/{OPENSM_UNIT}.d/50-gpuprov.conf"
ORDERED = f"""{HEADER}[Unit]
# Its unit looks for ports once, as it starts.
Wants=rdma-load-modules@infiniband.service
After=rdma-load-modules@infiniband.service rdma-hw.target systemd-modules-load.service openibd.service
"""


def managed(ctx: Ctx) -> bool:
    """Return whether this host is to run opensm."""
    return ctx.fragment.fabric == "infiniband" and ctx.host.name in ctx.fragment.opensm.hosts


def files(ctx: Ctx) -> dict[str, str]:
    """Return opensm's files; it starts when there are ports."""
    return {ORDER: ORDERED} if managed(ctx) else {}


def units(ctx: Ctx) -> Iterator[Unit]:
    """Yield opensm's unit: on for the hosts that the spec names, off elsewhere; nothing if the spec does not mention
    it."""
    manager, here = ctx.fragment.opensm, managed(ctx)
    if ctx.fragment.fabric == "infiniband" and (manager.hosts or manager.elsewhere):
        # Its unit is active without a process where it found no port as it started.
        silent = "without a process" if here and not ctx.facts.get(HOST).managers else ""
        fix = "a port in state DOWN, or no ib_umad: /var/log/opensm*, ibstat -p"
        yield Unit(name=OPENSM_UNIT, enabled=here, active=here, outdated=silent, fix=fix)


def plan_opensm(ctx: Ctx) -> dict[str, Json]:
    """Return opensm's `unit`; `here`: it is to run on this host; `differs`: it does not, in words; `ask`: the command
    that shows whether it does."""
    unit = next(units(ctx), None)
    return {
        "unit": OPENSM_UNIT,
        "here": bool(unit and unit.active),
        "differs": f"opensm: {unit.outdated} -> one for each port" if unit and unit.outdated else "",
        "ask": ["sh", "-c", "cat /proc/[0-9]*/comm 2>/dev/null | grep -x opensm"],
    }


def unloaded(name: str, host: RdmaHost) -> Outcome | None:
    """Return the outcome of a host without this module; None if it has loaded it."""
    module = KernelModule(name=name, loaded=True, fix=f"modprobe {name}; {APPLY}")
    loaded = Modules(loaded=[module_name for module_name, state in host.modules.items() if state == "loaded"])
    return find_fault(module, loaded, f"{name} loaded", f"{name} is not loaded")


@check("rdma.umad", DEVICES, HOST, fields=("fabric",), evidence="ls /sys/class/infiniband_mad /dev/infiniband")
def umad(ctx: Ctx) -> Outcome:
    """On InfiniBand, every port accepts management datagrams from programs (ib_umad), which opensm, ibstat and ibping
    need."""
    if ctx.fragment.fabric != "infiniband":
        return not_asked(f"{ctx.fragment.fabric} has no management datagrams")
    host = ctx.facts.get(HOST)
    needed = sum(len(device.ports) for device in select_devices(ctx.fragment, ctx.facts.get(DEVICES)))
    if fault := unloaded("ib_umad", host):
        return fault
    if host.umad < needed:
        return fail(f"{counted(needed, 'port')} with umad", f"{host.umad}", "ls /dev/infiniband; dmesg | grep umad")
    return ok(f"ib_umad, {counted(host.umad, 'port')}")


@check("rdma.ipoib", DEVICES, HOST, fields=("ipoib",), evidence="ip -d link show type ipoib")
def ipoib(ctx: Ctx) -> Outcome:
    """Each InfiniBand device has an IP network interface, if the spec asks for that."""
    if not ctx.fragment.ipoib:
        return not_asked()
    host, selected = ctx.facts.get(HOST), select_devices(ctx.fragment, ctx.facts.get(DEVICES))
    if fault := unloaded("ib_ipoib", host):
        return fault
    names = {netdev.address: netdev.name for netdev in host.netdevs if netdev.kind == IPOIB}
    without = [device.name for device in selected if device.address not in names]
    if without or not selected:
        message = f"none for {' '.join(without)}" if without else "no InfiniBand device: see rdma.devices"
        return fail("an IPoIB interface for each device", message, "dmesg | grep ipoib; ip -d link show type ipoib")
    return ok(" ".join(names[device.address] for device in selected))


@check("rdma.opensm", HOST, fields=("opensm",), evidence="pgrep -a opensm")
def opensm(ctx: Ctx) -> Outcome:
    """No opensm runs on a host that is not to manage the fabric, whoever started it."""
    manager, count = ctx.fragment.opensm, ctx.facts.get(HOST).managers
    if not manager.hosts and not manager.elsewhere:
        return not_asked("opensm runs, and the spec does not mention it" if count else "not in the spec")
    if count and not managed(ctx):
        where = ", ".join(manager.hosts) or "another subnet manager's fabric"
        fix = (
            f"systemctl disable --now {OPENSM_UNIT} ({APPLY} does); what still runs was not started by it: pgrep "
            "-a opensm"
        )
        return fail(f"no opensm here, but on {where}", counted(count, "opensm process"), fix)
    return ok(f"{counted(count, 'opensm process')}, where it is wanted" if count else "no opensm process")


CHECKS = (umad, ipoib, opensm)
