"""Checks of eRDMA as it is now: the driver, its mode, its parameters, the MTU, the ports that it needs."""

from __future__ import annotations

import re

from gpuprov.capabilities.answers import APPLY
from gpuprov.capabilities.base import Change, Outcome, check, fail, not_asked, ok, skip
from gpuprov.capabilities.rdma.common import IWARP
from gpuprov.capabilities.rdma.erdma.state import (
    Ctx,
    checksum,
    devices,
    holders,
    of_erdma,
    of_vendor,
    vendor,
    wanted,
    way_out,
)
from gpuprov.catalog.rdma import erdma as catalogue
from gpuprov.catalog.rdma.erdma import MODES
from gpuprov.onhost import erdma as onhost
from gpuprov.onhost.at_boot.erdma_state import is_same_value
from gpuprov.probe.rdma import DEVICES
from gpuprov.probe.rdma.erdma import ERDMA

SYSFS = "/sys/module/erdma/parameters"


@check("rdma.erdma_driver", ERDMA, fields=("stack", "erdma"), evidence="modinfo erdma; ls /sys/module/erdma/parameters")
@of_erdma
def driver(ctx: Ctx) -> Outcome:
    """The loaded driver is the one that the spec asks for: Alibaba's has parameters, the kernel's own has none."""
    state, asked = ctx.facts.get(ERDMA), vendor(ctx.fragment)
    expected = f"{'Alibaba' if asked else 'the kernel'}'s driver erdma, loaded"
    mine = state.mine
    if state.lacks:
        symbol, told = catalogue.read_erdma_file().ofed.symbol, "a tree of OFED was there when it was built"
        hint = "boot into OFED's ib_core, or build erdma anew without that tree: see docs/how-to/erdma.md"
        return fail(expected, f"Unknown symbol {symbol}: no module of this kernel has it; {told}", hint)
    if not state.loaded:
        on_disk = f"{mine.path} is not" if mine and mine.path else "no module erdma of this kernel: none is"
        change = Change(kind="module", name="erdma", after="loaded")
        return fail(expected, f"{on_disk} loaded", f"modprobe erdma; dmesg | grep erdma; {APPLY}", changes=[change])
    has = "compat_mode" in state.parameters
    if has != asked:
        told = "Alibaba's driver is loaded" if has else "the kernel's own driver is loaded, which has no parameters"
        if not asked:
            return fail(expected, told, "stack: erdma-vendor; or remove the package erdma, rmmod erdma, modprobe erdma")
        change = Change(kind="module", name="erdma", before="the kernel's", after="Alibaba's")
        hint = f"{APPLY} with rdma.erdma.installer; modinfo -n erdma says which one modprobe takes"
        return fail(expected, told, hint, changes=[change])
    if state.stale:
        change = Change(kind="module", name="erdma", before="another build", after="that on disk")
        told = "the loaded module is another build than the one on disk"
        return fail(expected, told, f"{APPLY}; or rmmod erdma; modprobe erdma", changes=[change])
    unbound = [address for address, name in state.functions if name != "erdma"]
    if unbound:
        hint = "dmesg | grep erdma; the network interface of the same MAC address must be there first"
        return fail("each eRDMA function bound to erdma", f"not bound: {' '.join(unbound)}", hint)
    return ok(f"{'Alibaba' if asked else 'the kernel'}'s driver, {mine.path if mine and mine.path else 'loaded'}")


@check(
    "rdma.erdma_source",
    ERDMA,
    fields=("erdma",),
    evidence=f"cat {onhost.RECORD}; dpkg -l '*erdma*'; rpm -qa '*erdma*'",
)
@of_vendor
def source(ctx: Ctx) -> Outcome:
    """The driver came from the installer with that checksum, or the packages that the spec names are installed."""
    state, asked = ctx.facts.get(ERDMA), ctx.fragment.erdma
    missing = [name for name in asked.packages if name not in state.packages]
    if missing:
        changes = [Change(kind="package", name=name, after="installed") for name in missing]
        return fail(" ".join(asked.packages), f"not installed: {' '.join(missing)}", APPLY, changes=changes)
    digest = checksum(ctx.fragment)
    if not digest:
        return (
            ok(" ".join(asked.packages))
            if asked.packages
            else not_asked("the spec names no installer: the driver was there")
        )
    ran = state.record.partition(" ")[0]
    if ran != digest:
        change = Change(kind="package", name="erdma_installer", before=ran, after=digest)
        told = f"the one that gpuprov ran has {ran}" if ran else "gpuprov ran none here"
        return fail(f"the installer with SHA-256 {digest}", told, APPLY, changes=[change])
    return ok(f"the installer with SHA-256 {digest}")


@check("rdma.erdma_mode", ERDMA, DEVICES, fields=("erdma",), evidence=f"cat {SYSFS}/compat_mode; ibv_devinfo")
@of_erdma
def mode(ctx: Ctx) -> Outcome:
    """The driver runs in the mode that the spec asks for, read back, and its devices are of that kind: CA in compat mode, else
    RNIC."""
    state, compat = ctx.facts.get(ERDMA), bool(ctx.fragment.erdma.compat_mode)
    expected = f"compat_mode {catalogue.format_parameter(compat)}: {MODES[compat]}"
    if not state.loaded:
        return fail(expected, "erdma is not loaded", "see rdma.erdma_driver")
    value = state.parameters.get("compat_mode", "")
    if value and not is_same_value(value, catalogue.format_parameter(compat)):
        used = holders(state)
        told = f"compat_mode is {value}" + (f", and {used} hold the devices" if used else "")
        rebooted = way_out(state, ctx.fragment)
        hint = f"end them, then {APPLY}{rebooted}" if used else f"{APPLY}; or rmmod erdma; modprobe erdma"
        change = Change(
            kind="setting", name=f"{SYSFS}/compat_mode", before=value, after=catalogue.format_parameter(compat)
        )
        return fail(
            expected, told, hint, changes=[change], reboot=f"{used} hold eRDMA devices" if used and rebooted else ""
        )
    if vendor(ctx.fragment) and not value:
        return fail(expected, "the loaded driver has no compat_mode: it is the kernel's", "see rdma.erdma_driver")
    strange = [one.name for one in devices(ctx) if (one.node_type == IWARP) == compat] if value else []
    if strange:
        told = (
            f"compat_mode is {value}, and {' '.join(strange)} {'is' if len(strange) == 1 else 'are'} of the other kind"
        )
        return fail(expected, told, f"rmmod erdma; modprobe erdma; or {APPLY}")
    kinds = " ".join(f"{one.name} {one.node_type}" for one in devices(ctx))
    return ok(
        f"{expected}; {kinds or 'no device'}" if value else f"the kernel's driver: {kinds or 'no device'}", expected
    )


@check("rdma.erdma_parameters", ERDMA, fields=("erdma",), evidence=f"grep . {SYSFS}/*")
@of_vendor
def parameters(ctx: Ctx) -> Outcome:
    """The driver's other parameters match the spec, read back from sysfs."""
    state = ctx.facts.get(ERDMA)
    asked = {name: value for name, value in wanted(ctx.fragment).items() if name != "compat_mode"}
    if not asked:
        return not_asked("none is asked for")
    expected = " ".join(f"{name}={value}" for name, value in asked.items())
    missing = [name for name in asked if name not in state.parameters]
    if missing and state.loaded:
        return fail(expected, f"this build of erdma has no {' '.join(missing)}", "take it out of rdma.erdma.parameters")
    wrong = {
        name: state.parameters.get(name, "")
        for name in asked
        if not is_same_value(state.parameters.get(name, ""), asked[name])
    }
    if wrong:
        told = " ".join(f"{name}={value or 'not loaded'}" for name, value in wrong.items())
        changes = [
            Change(kind="setting", name=f"{SYSFS}/{name}", before=wrong[name], after=asked[name]) for name in wrong
        ]
        return fail(expected, told, f"{APPLY}; or rmmod erdma; modprobe erdma", changes=changes)
    return ok(expected)


@check(
    "rdma.erdma_mtu",
    ERDMA,
    fields=("erdma",),
    evidence="rdma link; ip -br link",
)
@of_erdma
def mtu(ctx: Ctx) -> Outcome:
    """Each device's network interface has the MTU of the instance's jumbo frame setting; NCCL's LL128 corrupts data with another."""
    state, asked = ctx.facts.get(ERDMA), catalogue.get_mtu(ctx.fragment.erdma.mtu)
    expected = f"MTU {asked} ({ctx.fragment.erdma.mtu})"
    if not state.pairs:
        return fail(expected, "no eRDMA device", "see rdma.erdma_driver and rdma.erdma_function")
    alone = [pair.device for pair in state.pairs if not pair.netdev]
    if alone:
        hint = "ip -br link: the interface with the device's MAC address (its node GUID) must be up"
        return fail(expected, f"{' '.join(alone)} has no network interface", hint)
    wrong = [pair for pair in state.pairs if pair.mtu != asked]
    if wrong:
        told = ", ".join(f"{pair.netdev} of {pair.device} has MTU {pair.mtu}" for pair in wrong)
        hint = f"systemctl restart {catalogue.UNIT} ({APPLY} does); until then, NCCL_PROTO=^LL128: with it, data would be corrupted"
        changes = [
            Change(kind="setting", name=f"{pair.netdev} mtu", before=str(pair.mtu), after=str(asked)) for pair in wrong
        ]
        return fail(expected, told, hint, changes=changes)
    return ok(f"MTU {asked}: {' '.join(f'{pair.netdev} ({pair.device})' for pair in state.pairs)}", expected)


@check(
    "rdma.erdma_ports",
    ERDMA,
    DEVICES,
    fields=("erdma",),
    evidence="ss -tlnp 'sport >= :30608 and sport <= :30623'; rdma link",
)
@of_vendor
def ports(ctx: Ctx) -> Outcome:
    """In compat mode, no other program uses or may be assigned the driver's TCP ports, and no rxe device uses RoCE's UDP port."""
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
        told = f"net.ipv4.ip_local_port_range is {first} {last}, and any connection may be given one of {span}"
        hint = f'kernel: {{sysctl: {{net.ipv4.ip_local_reserved_ports: "{span}"}}}}'
        return fail(f"TCP {span} for eRDMA alone", told, hint)
    return ok(f"TCP {span}, UDP {catalogue.read_erdma_file().ports.udp} for eRDMA")


def clashes(ctx: Ctx) -> Outcome | None:
    """Return the failure that names another user of a port that compat mode needs; None if there is none."""
    state, needed = ctx.facts.get(ERDMA), catalogue.list_ports(ctx.fragment.erdma.parameters)  # type: ignore[arg-type]
    known = catalogue.read_erdma_file().ports
    expected = f"TCP {needed[0]}-{needed[-1]} and UDP {known.udp} for eRDMA's compat mode"
    if taken := sorted(state.listening & set(needed)):
        hint = f"ss -tlnp 'sport = :{taken[0]}' says who; or rdma.erdma.parameters: {{reserve_ports_base: NUMBER}}"
        return fail(expected, f"somebody listens on TCP {', '.join(map(str, taken))}", hint)
    soft = [one.name for one in ctx.facts.get(DEVICES) if one.soft and one.node_type != IWARP]
    if soft:
        told = f"{' '.join(soft)}: rxe has UDP {known.udp}, which compat mode needs"
        return fail(expected, told, f"rdma link delete {soft[0]}; rmmod rdma_rxe, and whatever makes it at boot")
    return None


@check("rdma.erdma_eadm", ERDMA, evidence="eadm ver")
@of_vendor
def eadm(ctx: Ctx) -> Outcome:
    """Alibaba's diagnostic program, if installed, reaches the driver and reports its version."""
    said = ctx.facts.get(ERDMA).eadm
    if said is None:
        return skip("eadm is not installed; it comes with Alibaba's installer, and nothing needs it")
    if not re.search("[0-9]", said):
        return fail("eadm ver reports a version", said or "nothing", "modprobe erdma; dmesg | grep erdma")
    return ok(said)


CHECKS = (driver, source, mode, parameters, mtu, ports, eadm)
