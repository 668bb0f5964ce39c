"""Checks of eRDMA as it is now: the driver, its mode, its parameters, the MTU, the ports that it needs."""

import re

import msgspec

from gpuprov.capabilities.answers import APPLY
from gpuprov.capabilities.base import Outcome, check, fail, not_asked, ok, skip
from gpuprov.capabilities.compared import Group, compared, find_fault, find_missing, move_packages
from gpuprov.capabilities.rdma.erdma.state import (
    Ctx,
    advise_reboot,
    checksum,
    devices,
    holders,
    list_parameters,
    of_erdma,
    of_vendor,
    vendor,
)
from gpuprov.catalog.rdma import erdma as catalogue
from gpuprov.catalog.rdma.erdma import MODES
from gpuprov.facts.probes.rdma import DEVICES
from gpuprov.facts.probes.rdma.erdma import ERDMA
from gpuprov.host_code import erdma as onhost
from gpuprov.host_code.at_boot.devices import IWARP
from gpuprov.host_code.at_boot.erdma_state import is_same_value
from gpuprov.resources import KernelModule, Modules, Setting

SYSFS = "/sys/module/erdma/parameters"


@check("rdma.erdma_driver", ERDMA, fields=("stack", "erdma"), evidence="modinfo erdma; ls /sys/module/erdma/parameters")
@of_erdma
def driver(ctx: Ctx) -> Outcome:
    """The loaded driver is the one that the spec asks for: Alibaba's has parameters, the kernel's own has none."""
    state, by_vendor = ctx.facts.get(ERDMA), vendor(ctx.fragment)
    expected = f"{'Alibaba' if by_vendor else 'the kernel'}'s driver erdma, loaded"
    running = state.running
    if state.lacks:
        symbol, message = catalogue.read_erdma_file().ofed.symbol, "a tree of OFED was there when it was built"
        fix = "boot into OFED's ib_core, or build erdma anew without that tree"
        return fail(expected, f"Unknown symbol {symbol}: no module of this kernel has it; {message}", fix)
    on_disk = f"{running.path} is not" if running and running.path else "no module erdma of this kernel: none is"
    loaded, has = Modules(loaded=("erdma",) * state.loaded), "compat_mode" in state.parameters
    module = KernelModule(name="erdma", loaded=True)
    fix = f"modprobe erdma; dmesg | grep erdma; {APPLY}"
    if fault := find_fault(module, loaded, expected, f"{on_disk} loaded", fix=fix):
        return fault
    if has != by_vendor:
        message = "Alibaba's driver is loaded" if has else "the kernel's own driver is loaded, which has no parameters"
        if not by_vendor:
            return fail(
                expected, message, "stack: erdma-vendor; or remove the package erdma, rmmod erdma, modprobe erdma"
            )
        other = msgspec.structs.replace(module, outdated="the kernel's", right="Alibaba's")
        fix = f"{APPLY} with rdma.erdma.installer; modinfo -n erdma says which one modprobe takes"
        return find_fault(other, loaded, expected, message, fix=fix) or ok(expected)
    other = msgspec.structs.replace(module, outdated="another build" * state.stale)
    message = "the loaded module is another build than the one on disk"
    if fault := find_fault(other, loaded, expected, message, fix=f"{APPLY}; or rmmod erdma; modprobe erdma"):
        return fault
    unbound = [address for address, name in state.functions if name != "erdma"]
    if unbound:
        fix = "dmesg | grep erdma; the network interface of the same MAC address must be there first"
        return fail("each eRDMA function bound to erdma", f"not bound: {' '.join(unbound)}", fix)
    return ok(
        f"{'Alibaba' if by_vendor else 'the kernel'}'s driver, {running.path if running and running.path else 'loaded'}"
    )


@check(
    "rdma.erdma_source", ERDMA, fields=("erdma",), evidence=f"cat {onhost.RECORD}; dpkg -l '*erdma*'; rpm -qa '*erdma*'"
)
@of_vendor
def source(ctx: Ctx) -> Outcome:
    """The driver came from the installer with that checksum, or the packages that the spec names are installed."""
    state, options = ctx.facts.get(ERDMA), ctx.fragment.erdma
    if missing := find_missing(options.packages, state.packages):
        return missing
    digest = checksum(ctx.fragment)
    if not digest:
        return (
            ok(" ".join(options.packages))
            if options.packages
            else not_asked("the spec names no installer: the driver was there")
        )
    ran = state.record.partition(" ")[0]
    if ran != digest:
        changes = move_packages({"erdma_installer": digest}, {"erdma_installer": ran})
        message = f"the one that gpuprov ran has {ran}" if ran else "gpuprov ran none here"
        return fail(f"the installer with SHA-256 {digest}", message, APPLY, changes=changes)
    return ok(f"the installer with SHA-256 {digest}")


@check("rdma.erdma_mode", ERDMA, DEVICES, fields=("erdma",), evidence=f"cat {SYSFS}/compat_mode; ibv_devinfo")
@of_erdma
def mode(ctx: Ctx) -> Outcome:
    """The driver runs in the mode that the spec asks for, read back, and its devices are of that kind: CA in compat
    mode, else RNIC."""
    state, compat = ctx.facts.get(ERDMA), bool(ctx.fragment.erdma.compat_mode)
    expected = f"compat_mode {catalogue.format_parameter(compat)}: {MODES[compat]}"
    if not state.loaded:
        return fail(expected, "erdma is not loaded", "see rdma.erdma_driver")
    value = state.parameters.get("compat_mode", "")
    if value and not is_same_value(value, catalogue.format_parameter(compat)):
        used = holders(state)
        message = f"compat_mode is {value}" + (f", and {used} hold the devices" if used else "")
        rebooted = advise_reboot(state, ctx.fragment)
        fix = f"end them, then {APPLY}{rebooted}" if used else f"{APPLY}; or rmmod erdma; modprobe erdma"
        setting = parameter("compat_mode", catalogue.format_parameter(compat))
        reason = f"{used} hold eRDMA devices" if used and rebooted else ""
        values = {("", "compat_mode"): value}
        return find_fault(setting, values, expected, message, fix=fix, reboot=reason) or ok(expected)
    if vendor(ctx.fragment) and not value:
        return fail(expected, "the loaded driver has no compat_mode: it is the kernel's", "see rdma.erdma_driver")
    strange = [device.name for device in devices(ctx) if (device.node_type == IWARP) == compat] if value else []
    if strange:
        message = (
            f"compat_mode is {value}, and {' '.join(strange)} {'is' if len(strange) == 1 else 'are'} of the other kind"
        )
        return fail(expected, message, f"rmmod erdma; modprobe erdma; or {APPLY}")
    kinds = " ".join(f"{device.name} {device.node_type}" for device in devices(ctx))
    return ok(
        f"{expected}; {kinds or 'no device'}" if value else f"the kernel's driver: {kinds or 'no device'}", expected
    )


@compared("rdma.erdma_parameters", ERDMA, fields=("erdma",), evidence=f"grep . {SYSFS}/*")
@of_vendor
def parameters(ctx: Ctx) -> Group | Outcome:
    """The driver's other parameters match the spec, read back from sysfs."""
    state = ctx.facts.get(ERDMA)
    values = {name: value for name, value in list_parameters(ctx.fragment).items() if name != "compat_mode"}
    if not values:
        return not_asked("none is asked for")
    expected = " ".join(f"{name}={value}" for name, value in values.items())
    missing = [name for name in values if name not in state.parameters]
    if missing and state.loaded:
        return fail(expected, f"this build of erdma has no {' '.join(missing)}", "take it out of rdma.erdma.parameters")
    return Group(
        tuple(parameter(name, value) for name, value in values.items()),
        {
            ("", name): values[name] if is_same_value(value, values[name]) else value
            for name, value in state.parameters.items()
            if name in values
        },
        expected=expected,
        fix=f"{APPLY}; or rmmod erdma; modprobe erdma",
    )


def parameter(name: str, value: str) -> Setting:
    """Return a parameter of the loaded module, by its value in sysfs."""
    return Setting(kind="erdma", name=f"{SYSFS}/{name}", key=name, value=value, missing="not loaded")


@compared("rdma.erdma_mtu", ERDMA, fields=("erdma",), evidence="rdma link; ip -br link")
@of_erdma
def mtu(ctx: Ctx) -> Group | Outcome:
    """Each device's network interface has the MTU of the instance's jumbo frame setting; NCCL's LL128 corrupts data
    with another."""
    state, target = ctx.facts.get(ERDMA), catalogue.get_mtu(ctx.fragment.erdma.mtu)
    expected = f"MTU {target} ({ctx.fragment.erdma.mtu})"
    if not state.pairs:
        return fail(expected, "no eRDMA device", "see rdma.erdma_driver and rdma.erdma_function")
    alone = [pair.device for pair in state.pairs if not pair.netdev]
    if alone:
        fix = "ip -br link: the interface with the device's MAC address (its node GUID) must be up"
        return fail(expected, f"{' '.join(alone)} has no network interface", fix)
    fix = (
        f"systemctl restart {catalogue.UNIT} ({APPLY} does); until then, NCCL_PROTO=^LL128: with it, data would "
        "be corrupted"
    )
    return Group(
        tuple(
            Setting(
                kind="mtu",
                device=pair.netdev,
                value=str(target),
                words=f"{{devices}} of {pair.device} has MTU {{before}}",
            )
            for pair in state.pairs
        ),
        {(pair.netdev, ""): str(pair.mtu) for pair in state.pairs},
        expected=expected,
        right=f"MTU {target}: {' '.join(f'{pair.netdev} ({pair.device})' for pair in state.pairs)}",
        fix=fix,
    )


@check(
    "rdma.erdma_ports",
    ERDMA,
    DEVICES,
    fields=("erdma",),
    evidence="ss -tlnp 'sport >= :30608 and sport <= :30623'; rdma link",
)
@of_vendor
def ports(ctx: Ctx) -> Outcome:
    """In compat mode, no other program uses or may be assigned the driver's TCP ports, and no rxe device uses RoCE's
    UDP port."""
    if not ctx.fragment.erdma.compat_mode:
        return not_asked("only compat mode needs ports")
    taken = clashes(ctx)
    state, needed = ctx.facts.get(ERDMA), catalogue.list_ports(ctx.fragment.erdma.parameters)  # type: ignore[arg-type]
    if taken:
        return taken
    first, last = state.ephemeral
    open_ports = [port for port in needed if first <= port <= last and port not in state.reserved]
    span = f"{needed[0]}-{needed[-1]}"
    if open_ports:
        message = f"net.ipv4.ip_local_port_range is {first} {last}, and any connection may be given one of {span}"
        fix = f'kernel: {{sysctl: {{net.ipv4.ip_local_reserved_ports: "{span}"}}}}'
        return fail(f"TCP {span} for eRDMA only", message, fix)
    return ok(f"TCP {span}, UDP {catalogue.read_erdma_file().ports.udp} for eRDMA")


def clashes(ctx: Ctx) -> Outcome | None:
    """Return the failure that names another user of a port that compat mode needs; None if there is none."""
    state, needed = ctx.facts.get(ERDMA), catalogue.list_ports(ctx.fragment.erdma.parameters)  # type: ignore[arg-type]
    known = catalogue.read_erdma_file().ports
    expected = f"TCP {needed[0]}-{needed[-1]} and UDP {known.udp} for eRDMA's compat mode"
    if taken := sorted(state.listening & set(needed)):
        fix = f"ss -tlnp 'sport = :{taken[0]}' says who; or rdma.erdma.parameters: {{reserve_ports_base: NUMBER}}"
        return fail(expected, f"a process listens on TCP {', '.join(map(str, taken))}", fix)
    soft = [fact.name for fact in ctx.facts.get(DEVICES) if fact.soft and fact.node_type != IWARP]
    if soft:
        message = f"{' '.join(soft)}: rxe has UDP {known.udp}, which compat mode needs"
        return fail(expected, message, f"rdma link delete {soft[0]}; rmmod rdma_rxe, and whatever makes it at boot")
    return None


@check("rdma.erdma_eadm", ERDMA, evidence="eadm ver")
@of_vendor
def eadm(ctx: Ctx) -> Outcome:
    """Alibaba's diagnostic program, if installed, reaches the driver and reports its version."""
    output = ctx.facts.get(ERDMA).eadm
    if output is None:
        return skip("eadm is not installed; it comes with Alibaba's installer, and nothing needs it")
    if not re.search("[0-9]", output):
        return fail("eadm ver reports a version", output or "nothing", "modprobe erdma; dmesg | grep erdma")
    return ok(output)


CHECKS = (driver, source, mode, parameters, mtu, ports, eadm)
