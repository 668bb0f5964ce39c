"""Checks of the RDMA devices: presence, fabric, state of their ports, and rate."""

from gpuprov.capabilities.base import Context, Outcome, check, fail, not_asked, ok
from gpuprov.capabilities.rdma.fragment import Rdma
from gpuprov.core.sanitize import counted
from gpuprov.facts.probes.kernel import modules
from gpuprov.facts.probes.rdma import DEVICES, RdmaDevice, RdmaPort, slow_ports
from gpuprov.facts.probes.rdma.surroundings import HOST, RdmaHost, Silent
from gpuprov.hardware.topology.ports import convert_selectors, select_devices
from gpuprov.host_code.at_boot.devices import find_unmatched, format_selector, is_of_fabric

Ctx = Context[Rdma]
SHOW = "rdma link; ls -l /sys/class/infiniband"
# https://docs.nvidia.com/networking/display/mftv4310/mlxconfig: 1 is InfiniBand, 2 is Ethernet; it counts from the
# next reset on.
LINK_TYPE = {
    "infiniband": "mlxconfig -d {address} set LINK_TYPE_P1=1",
    "roce": "mlxconfig -d {address} set LINK_TYPE_P1=2",
}

# LIDs of a port without a LID: 0, or the permissive LID (InfiniBand Architecture Specification 4.1.3).
NO_LID = (0, 0xFFFF)


@check("rdma.devices", DEVICES, HOST, fields=("fabric", "devices", "count"), evidence=SHOW)
def devices(ctx: Ctx) -> Outcome:
    """The RDMA devices that the spec asks for are present, in the right number, and on the right fabric. NVLink bridges
    and sub-devices for the subnet manager (smi) do not count, nor do SR-IOV functions that `devices` does not name. If
    the spec neither names nor counts devices, every adapter of the fabric on the PCI bus has its RDMA device."""
    block, present = ctx.fragment, ctx.facts.get(DEVICES)
    selected = select_devices(block, present)
    beside = _describe_left_out(present, selected)
    number = str(block.count) if block.count else "one or more"
    expected = f"{number} {block.fabric} device{'s' if block.count != 1 else ''}"
    wrong = [device for device in selected if not is_of_fabric(block.fabric, device)]
    if wrong:
        problems = "; ".join(f"{device.name} ({device.address or device.driver}) is {_is(device)}" for device in wrong)
        return fail(expected, problems + beside, _suggest_other_way(block, wrong[0]))
    if lost := find_unmatched(convert_selectors(block), present):
        problems = "; ".join(f"no device has {format_selector(selector)}" for selector in lost)
        return fail(
            expected, problems + beside, f"{SHOW}; correct rdma.devices in the spec, or {_suggest_where_to_look(ctx)}"
        )
    if not selected:
        others = [device for device in present if device.works]
        problems = "; ".join(f"{device.name} is {_is(device)}" for device in others) or "no RDMA device"
        return fail(
            expected, problems + beside, _suggest_other_way(block, others[0]) if others else _suggest_where_to_look(ctx)
        )
    problems = ", ".join(f"{device.name} ({device.address or ' '.join(device.netdevs)})" for device in selected)
    if block.count and len(selected) != block.count:
        fix = f"a missing device: lspci, dmesg; one too many: name them in rdma.devices by pci; {SHOW}"
        return fail(expected, f"{len(selected)}: {problems}{beside}", fix)
    if dead := silent(block, ctx.facts.get(HOST)):
        named = ", ".join(f"{function.address} [{function.identifier}]" for function in dead)
        fix = f"dmesg | grep {dead[0].address}; if it is not to have one: rdma.count, or rdma.devices by pci"
        return fail(
            f"{expected}, all that are on the PCI bus", f"{problems}; without an RDMA device: {named}{beside}", fix
        )
    return ok(problems + beside, expected)


def _describe_left_out(present: tuple[RdmaDevice, ...], selected: tuple[RdmaDevice, ...]) -> str:
    bridges = [device.name for device in present if device.bridge]
    virtual = sum(device.virtual for device in present if device not in selected)
    subs = [device for device in present if not device.works and not device.bridge]
    parts = [f"{' '.join(bridges)} (NVLink bridges)"] * bool(bridges)
    parts += [f"{sub.name} ({sub.type} of {sub.parent})" for sub in subs]
    parts += [f"{virtual} SR-IOV function{'s' * (virtual > 1)}"] * bool(virtual)
    return f"; left out: {', '.join(parts)}" if parts else ""


def silent(block: Rdma, host: RdmaHost) -> tuple[Silent, ...]:
    """Return the fabric's dead adapters, if the spec neither counts nor names its devices."""
    if block.count or block.fabric not in LINK_TYPE or any(device.pci or device.netdev for device in block.devices):
        return ()
    return tuple(device for device in host.silent if device.infiniband == (block.fabric == "infiniband"))


@check(
    "rdma.ports",
    DEVICES,
    fields=("fabric",),
    evidence="rdma link; ibstat; cat /sys/class/infiniband/*/ports/*/state /proc/net/bonding/*",
)
def ports(ctx: Ctx) -> Outcome:
    """Every port of these devices is ACTIVE; on InfiniBand it has a LID and knows a subnet manager. On Ethernet LID 0
    is right. No interface of a bond is down or left out by LACP: the bond's device would stay ACTIVE regardless."""
    selected = select_devices(ctx.fragment, ctx.facts.get(DEVICES))
    if not selected:
        return fail("active ports", "no such device: see rdma.devices", SHOW)
    problems, fixes = [], []
    for device in selected:
        for port in device.ports:
            if complaint := _find_port_fault(device, port):
                problems.append(f"{device.name} port {port.number} {complaint[0]}")
                fixes.append(complaint[1])
        problems += [f"{device.name}: {leg}" for leg in device.legs]
        fixes += [f"ethtool {leg.partition(' ')[0]}: link detected; cat /proc/net/bonding/*" for leg in device.legs[:1]]
    if none := [device.name for device in selected if not device.ports]:
        problems.append(f"{' '.join(none)}: no port")
        fixes.append("dmesg")
    if problems:
        return fail("ACTIVE ports", "; ".join(problems), "; ".join(dict.fromkeys(fixes)))
    slow = [] if ctx.fragment.rate else [f"; {port}" for port in slow_ports(selected)]
    return ok(f"{counted(sum(len(device.ports) for device in selected), 'port')} ACTIVE{''.join(slow)}")


@check("rdma.rate", DEVICES, fields=("rate",), evidence="cat /sys/class/infiniband/*/ports/*/rate")
def rate(ctx: Ctx) -> Outcome:
    """Every port runs at the rate that the spec asks for, or faster: a worn cable reduces a link to fewer lanes or a
    lower speed."""
    speed = ctx.fragment.rate
    selected = select_devices(ctx.fragment, ctx.facts.get(DEVICES))
    rows = [(device, port) for device in selected for port in device.ports]
    if not speed:
        return not_asked()
    if not rows:
        return fail(f"{speed} Gb/s", "no such device: see rdma.devices", SHOW)
    slow = [f"{device.name} port {port.number}: {port.rate:g} Gb/s" for device, port in rows if port.rate < speed]
    if slow:
        look = "mlxlink -d DEVICE shows lanes and errors"
        fix = f"the cable, its seat, and the switch's port, which gpuprov topology may name; {look}"
        return fail(f"{speed} Gb/s or more", "; ".join(slow), fix)
    return ok(f"{min(port.rate for _, port in rows):g} Gb/s", f"{speed} Gb/s or more")


def _is(device: RdmaDevice) -> str:
    if device.soft:
        return f"software ({device.driver})"
    layers = (
        " and ".join(dict.fromkeys(port.link_layer for port in device.ports if port.link_layer)) or "without a port"
    )
    return f"{layers}, driver {device.driver or 'unknown'}" + (", iWARP" if device.node_type == "RNIC" else "")


def _suggest_other_way(block: Rdma, device: RdmaDevice) -> str:
    if device.driver == "mlx5_core" and (way := LINK_TYPE.get(block.fabric)):
        return f"{way.format(address=device.address)} and a reboot, if it is VPI; or the other rdma.fabric"
    if block.fabric == "iwarp":
        return (
            "devlink dev param show: enable_iwarp and enable_roce say what the adapter speaks; or the other rdma.fabric"
        )
    return f"the other rdma.fabric, or name the devices in rdma.devices; {SHOW}"


def _suggest_where_to_look(ctx: Ctx) -> str:
    """Return where to look for what may be missing: the soft link, the module with the RDMA part of a driver, the
    adapter."""
    modules = ctx.facts.get(HOST).modules
    if ctx.fragment.fabric == "soft":
        return "see rdma.soft"
    if ctx.fragment.fabric == "erdma" and modules.get("erdma") != "loaded":
        return "modprobe erdma; dmesg | grep erdma"
    if ctx.fragment.fabric == "efa":
        return "lspci -nn -d 1d0f:; modprobe efa; dmesg | grep -w efa; see rdma.efa_function"
    if modules.get("mlx5_ib") == "there":
        return "modprobe mlx5_ib; dmesg | grep mlx5"
    return "lspci -nn | grep -iE 'infiniband|ethernet'; dmesg | grep -iE 'mlx5|infiniband'"


def _find_port_fault(device: RdmaDevice, port: RdmaPort) -> tuple[str, str] | None:
    """Return the fault of a port and its fix; None if the port is in order."""
    infiniband = port.link_layer == "InfiniBand"
    if port.state == "ACTIVE":
        if infiniband and (port.lid in NO_LID or not port.sm_lid):
            return (
                f"is ACTIVE with LID {port.lid} and subnet manager LID {port.sm_lid}",
                "sminfo; the subnet manager has not set this port up",
            )
        return None
    shown = f"is {port.state or 'unknown'} ({port.physical or 'physical state unknown'})"
    if infiniband and port.state == "INIT" and not port.sm_lid:
        return f"{shown}, sm_lid 0", "no subnet manager: a managed switch, or rdma.opensm.hosts; then sminfo"
    if infiniband and port.state in ("INIT", "ARMED"):
        return (
            f"{shown}, sm_lid {port.sm_lid}",
            "the subnet manager has not finished with this port: its log; ibdiagnet",
        )
    if port.physical == "Disabled":
        return shown, f"ibportstate -D 0 {port.number} enable" if infiniband else up(device)
    if not infiniband:
        names = " ".join(device.netdevs) or "none"
        return f"{shown}, network interface {names}", f"{up(device)}; ethtool {names}: link detected"
    return shown, f"the cable, and the switch's port: ibstat, mlxlink -d {device.address or device.name}"


def up(device: RdmaDevice) -> str:
    """Return the command that brings the interfaces of a device up, or what prevents that."""
    if not device.netdevs:
        return f"see why {device.name} has no network interface: rdma link"
    return "; ".join(f"ip link set {name} up" for name in device.netdevs)


@check(
    "rdma.kept_away",
    *(DEVICES, modules.MODPROBE, modules.BUILT_IN),
    fields=("devices",),
    moment="next-boot",
    evidence="modprobe -c | grep -E '^(blacklist|install) (mlx|ib_|rdma|bnxt|irdma|efa|erdma|ionic)'",
)
def kept_away(ctx: Ctx) -> Outcome:
    """Nothing keeps the drivers of these devices out at the next boot: no blacklist of modprobe's, which udev heeds,
    and no command in the place of one. openibd loads those of DOCA-OFED by name, in spite of a blacklist."""
    if ctx.fragment.fabric not in LINK_TYPE:
        return not_asked(f"gpuprov's own unit brings the driver of {ctx.fragment.fabric}")
    known, built_in = ctx.facts.get(modules.MODPROBE), ctx.facts.get(modules.BUILT_IN)
    selected = select_devices(ctx.fragment, ctx.facts.get(DEVICES))
    drivers = dict.fromkeys(modules.underscored(device.driver) for device in selected if device.driver)
    wrong = []
    for name in (driver for driver in drivers if driver not in built_in):
        if name in known.blacklist and ctx.fragment.own_stack == "inbox":
            wrong.append(f"{name} is blacklisted ({known.show_places('blacklist', name)})")
        elif modules.loads_nothing(known.install.get(name, "")):
            wrong.append(f"install {name} {known.install[name]} ({known.show_places('install', name)})")
    if wrong:
        fix = "grep -rnE 'blacklist|install' /etc/modprobe.d /run/modprobe.d /usr/lib/modprobe.d, and take it out"
        return fail("nothing that keeps the drivers out", "; ".join(wrong), fix)
    if not drivers:
        return not_asked("no such device: see rdma.devices")
    return ok(f"nothing keeps {', '.join(drivers)} out")


CHECKS = (devices, ports, rate, kept_away)
