"""Checks of RoCE: whether the host supports the requested settings, and has them."""

from gpuprov.capabilities.answers import APPLY
from gpuprov.capabilities.base import Context, Outcome, check, fail, not_asked, ok, skip
from gpuprov.capabilities.compared import Group, compared
from gpuprov.capabilities.rdma.devices import up
from gpuprov.capabilities.rdma.fragment import Rdma
from gpuprov.capabilities.rdma.ofed.checks import foreign
from gpuprov.capabilities.rdma.roce.lines import list_values, request
from gpuprov.capabilities.rdma.roce.rules import rules
from gpuprov.catalog.rdma import roce as catalogue
from gpuprov.facts.probes import rdma
from gpuprov.facts.probes.host import system
from gpuprov.facts.probes.rdma.ofed import OFED
from gpuprov.facts.probes.rdma.roce import ROCE
from gpuprov.hardware.topology.ports import select_devices
from gpuprov.host_code.at_boot import roce_ports
from gpuprov.host_code.at_boot.roce_ports import Difference, RocePort
from gpuprov.host_code.lasting import BOOT
from gpuprov.resources import Setting

Ctx = Context[Rdma]
FIELDS = ("roce",)
NO_PORT = "no RoCE port"
NO_PORT_FIX = (
    "rdma link shows what there is; a port in InfiniBand mode: mlxconfig -d PCI set LINK_TYPE_P1=ETH, then a reboot; "
    "a wrong one: correct rdma.devices"
)
DCB = ("trust", "dscp", "pfc")
MANAGER = ("mode", "tos")


def ports(ctx: Ctx) -> list[RocePort]:
    """Return the ports of the block's devices, as the probe read them."""
    return roce_ports.select_ports(request(ctx.fragment), ctx.facts.get(ROCE).ports, ctx.facts.get(rdma.DEVICES))


def differences(ctx: Ctx) -> list[Difference]:
    """Return each port's differences from the spec."""
    return roce_ports.list_differences(ports(ctx), list_values(ctx.fragment.roce))


def _judge_elsewhere(ctx: Ctx) -> Outcome | None:
    return None if ctx.fragment.fabric == "roce" else not_asked(f"the fabric is {ctx.fragment.fabric}")


@compared("rdma.roce_settings", ROCE, rdma.DEVICES, fields=FIELDS, evidence=ROCE.evidence, until=BOOT)
def settings(ctx: Ctx) -> Group | Outcome:
    """Each RoCE port has every setting that the spec asks for, read back from driver and kernel."""
    if answer := _judge_elsewhere(ctx):
        return answer
    desired = list_values(ctx.fragment.roce)
    if not desired:
        return not_asked("no setting of RoCE in the spec: all are left as they are")
    expected = " ".join(f"{key}={value}" for key, value in desired.items())
    own_ports = ports(ctx)
    if not own_ports:
        return fail(expected, NO_PORT, NO_PORT_FIX)
    actual = {(row.port.name, row.key): row.actual for row in differences(ctx)}
    each = [(port.name, key, value) for port in own_ports for key, value in desired.items() if port.has(key)]
    words = {
        name: f"{name} " + ", ".join(f"{key} is {before}" for (port, key), before in actual.items() if port == name)
        for name in {port.name for port in own_ports}
    }
    return Group(
        tuple(Setting(kind=key, device=name, key=key, value=value, words=words[name]) for name, key, value in each),
        {(name, key): actual.get((name, key), value) for name, key, value in each},
        expected=expected,
        right=f"{expected}, on {', '.join(port.name for port in own_ports)}",
        present=tuple(port.name for port in ctx.facts.get(ROCE).ports),
        fix=f"systemctl restart {catalogue.UNIT} ({APPLY} does); what it says: journalctl -u {catalogue.UNIT}",
    )


@check("rdma.roce_gids", rdma.DEVICES, fields=("fabric",), evidence="rdma link; ibv_devinfo -v | grep -A99 GID")
def gids(ctx: Ctx) -> Outcome:
    """Each port of a RoCE device is an Ethernet port, and has a GID of the RoCE version that the spec asks for, or else
    of v2."""
    if answer := _judge_elsewhere(ctx):
        return answer
    selected = select_devices(ctx.fragment, ctx.facts.get(rdma.DEVICES))
    kind = "IB/RoCE v1" if ctx.fragment.roce.mode == "v1" else "RoCE v2"
    expected = f"a GID of {kind} on each Ethernet port"
    if not selected:
        return fail(expected, NO_PORT, NO_PORT_FIX)
    problems, fixes, good = [], [], []
    for device in selected:
        for port in device.ports:
            name = f"{device.name} port {port.number}"
            matching = [gid for gid in port.gids if gid.kind == kind]
            if port.link_layer != "Ethernet":
                problems.append(f"{name} is {port.link_layer or 'of no link layer'}")
                fixes.append(
                    f"mlxconfig -d {device.address or device.name} set LINK_TYPE_P{port.number}=ETH, then a reboot"
                )
            elif not matching:
                problems.append(f"{name} has none")
                fixes.append(f"{up(device)}, and give it an address")
            else:
                address = next((gid.ipv4 for gid in matching if gid.ipv4), "no IPv4 address")
                good.append(f"{name} ({address})")
    if problems:
        return fail(expected, ", ".join(problems), "; ".join(dict.fromkeys(fixes)))
    return ok(", ".join(good), expected)


@check("rdma.roce_filter", ROCE, fields=("fabric",), evidence="nft list ruleset | grep 4791; iptables-save | grep 4791")
def packet_filter(ctx: Ctx) -> Outcome:
    """No rule of the host's own packet filter drops UDP port 4791, which RoCE v2 uses.

    Switches and security groups cannot be examined from the host.
    """
    if answer := _judge_elsewhere(ctx):
        return answer
    state = ctx.facts.get(ROCE)
    if ctx.fragment.roce.mode == "v1":
        return not_asked("RoCE v1 is not UDP")
    if state.blocking:
        fix = f"take the rule out: RoCE v2 needs UDP port {catalogue.UDP_PORT} on every hop"
        return fail(f"no rule against UDP port {catalogue.UDP_PORT}", "; ".join(state.blocking), fix)
    if not state.filter:
        return skip("neither nft nor iptables-save shows a packet filter")
    return ok(f"{state.filter} shows no rule against UDP port {catalogue.UDP_PORT}")


@check(
    "rdma.roce_alone",
    ROCE,
    fields=FIELDS,
    evidence="pgrep -ax lldpad; for d in /sys/class/infiniband/*/device/net/*; do dcb dcbx show dev ${d##*/}; done",
)
def alone(ctx: Ctx) -> Outcome:
    """lldpad, which sets trust and PFC too, does not run beside gpuprov's unit."""
    if answer := _judge_elsewhere(ctx):
        return answer
    keys = [key for key in list_values(ctx.fragment.roce) if key.partition(".")[0] in DCB]
    if not keys:
        return not_asked("neither trust, dscp2prio nor pfc in the spec")
    if ctx.facts.get(ROCE).lldpad:
        fix = "systemctl disable --now lldpad.socket lldpad.service; or leave trust, dscp2prio and pfc to it"
        return fail("no lldpad", "lldpad runs, and may overwrite what is set", fix)
    return ok("no lldpad")


@check(
    "rdma.roce_ways",
    *(ROCE, OFED, system.CONTAINER, rdma.DEVICES),
    fields=FIELDS,
    moment="preflight",
    evidence="command -v mlnx_qos dcb cma_roce_mode; ls -d /sys/kernel/config/rdma_cm; rdma link",
)
def ways(ctx: Ctx) -> Outcome:
    """Every setting that the spec asks for can be set on this host: the program, or the file, is present.

    Checked only if the stack is installed.
    """
    if answer := _judge_elsewhere(ctx):
        return answer
    desired = list_values(ctx.fragment.roce)
    state, own_ports = ctx.facts.get(ROCE), ports(ctx)
    if not desired:
        return not_asked("no setting of RoCE in the spec")
    if later(ctx):
        return skip("its tools and drivers come with DOCA-OFED, and openibd")
    if lost := roce_ports.describe_missing_ports(request(ctx.fragment), state.ports, ctx.facts.get(rdma.DEVICES)):
        return fail("RoCE ports", "; ".join(lost), NO_PORT_FIX)
    lacking: dict[str, list[str]] = {}
    for port in own_ports:
        for key in filter(port.has, desired):
            field = "dscp2prio" if key.startswith("dscp.") else key
            shown = "trust" if field == "dscp2prio" else field
            if shown not in port.values and not (key in MANAGER and "rdma_cm" not in state.tools):
                lacking.setdefault(field, []).append(port.name)
    if lacking:
        message = "; ".join(
            f"nothing sets {key} of {', '.join(dict.fromkeys(names))}" for key, names in lacking.items()
        )
        return fail(f"{', '.join(desired)} can be set", message, _find_fix(ctx.fragment, lacking))
    return ok(f"{', '.join(desired)} can be set")


def later(ctx: Ctx) -> bool:
    """Return whether the ports cannot be judged yet."""
    return ctx.fragment.own_stack == "doca-ofed" and not _is_ofed_loaded(ctx)


def _is_ofed_loaded(ctx: Ctx) -> bool:
    """Return whether DOCA-OFED's drivers are already loaded, so that settings which they do not show will not appear
    later."""
    state = ctx.facts.get(OFED)
    return "mlnx_qos" in ctx.facts.get(ROCE).tools and state.active == "active" and not foreign(ctx.facts)


def _find_fix(block: Rdma, lacking: dict[str, list[str]]) -> str:
    ofed = block.own_stack == "doca-ofed"
    known = [catalogue.get_setting(key) for key in lacking]
    by = ", ".join(dict.fromkeys(way.ofed if ofed else way.inbox or "nothing" for way in known))
    if ofed:
        return f"they are set by {by}: have openibd load DOCA-OFED's drivers; or leave {', '.join(lacking)} out"
    return (
        f"with the kernel's drivers they are set by {by}; stack: doca-ofed has all; or leave {', '.join(lacking)} out"
    )


CHECKS = (settings, gids, packet_filter, alone, ways)
__all__ = ("CHECKS", "rules")
