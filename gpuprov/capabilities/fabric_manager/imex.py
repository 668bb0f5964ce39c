"""nvidia-imex on compute trays of a rack, in place of Fabric Manager: rules of its domain for one host and across a
fleet, and checks of hardware, installation and members."""

from collections.abc import Iterable, Sequence
from ipaddress import ip_address

from gpuprov.capabilities import answers
from gpuprov.capabilities.answers import APPLY
from gpuprov.capabilities.base import Context, Outcome, check, fail, not_asked, ok, skip
from gpuprov.capabilities.compared import judge_package, judge_program
from gpuprov.capabilities.driver import explain_absent_driver
from gpuprov.capabilities.fabric_manager.fragment import (
    DRIVER_PROBES,
    FabricManager,
    driver_version,
    hold,
    package,
)
from gpuprov.capabilities.fabric_manager.tray import in_domains, list_members, of_tray, on_trays, package_only
from gpuprov.catalog import fabric as catalogue
from gpuprov.catalog import gpus
from gpuprov.core.sanitize import counted
from gpuprov.facts.probes.base import Facts
from gpuprov.facts.probes.driver import nvidia
from gpuprov.facts.probes.gpus import fabric
from gpuprov.facts.probes.gpus.imex import IMEX
from gpuprov.facts.probes.host import pci, system
from gpuprov.hardware.topology import fabric as rules
from gpuprov.spec.model import HostSpec
from gpuprov.spec.problem import Path, Problem, report_under

Ctx = Context[FabricManager]
HERE = "fabric_manager"
UNIT, PROCESS = catalogue.IMEX_UNIT, "nvidia-imex"
JOURNAL = f"journalctl -u {UNIT} -n 30; tail /var/log/nvidia-imex.log"


def trays(facts: Facts) -> list[str]:
    """Return the GPUs on the bus that belong to compute trays."""
    models = (gpus.find_by_pci_id(function.identifier) for function in pci.gpus(facts.get(pci.NVIDIA_FUNCTIONS)))
    return [model.key for model in models if model and model.fabric_manager.imex]


@on_trays
@check(
    "fabric_manager.imex_hardware",
    *(pci.NVIDIA_FUNCTIONS, IMEX),
    moment="preflight",
    evidence="lspci -nn -d 10de:; hostname -I",
)
def hardware(ctx: Ctx) -> Outcome:
    """The host is a compute tray, and one of the members of its IMEX domain."""
    if not trays(ctx.facts):
        fix = "take imex out of this host's spec: boards with NVSwitches have Fabric Manager, PCIe cards nothing"
        return fail("GPUs of GB200 or GB300 racks", "none on the bus", fix)
    addresses = ctx.facts.get(IMEX).addresses
    if list_members(ctx.fragment) and addresses and not set(list_members(ctx.fragment)) & addresses:
        message = f"the host has {', '.join(sorted(addresses))}"
        return fail(f"one of {', '.join(list_members(ctx.fragment))}", message, "correct fabric_manager.imex.nodes")
    return ok(f"{counted(len(trays(ctx.facts)), 'GPU')} of a rack")


@on_trays
@check(
    "fabric_manager.imex_version",
    *(*DRIVER_PROBES, fabric.PACKAGES, IMEX),
    fields=("imex",),
    evidence="nvidia-imex --version; dpkg -l 'nvidia-imex*'; rpm -qa 'nvidia-imex*'; cat /proc/driver/nvidia/version",
)
def version(ctx: Ctx) -> Outcome:
    """Package and program have the driver's full version."""
    driver, own_package = driver_version(ctx.facts), package(ctx.facts, "imex")
    program = ctx.facts.get(IMEX).daemon.version
    expected = f"nvidia-imex {driver}" if driver else "a driver, and nvidia-imex of its version"
    if own_package is None:
        return fail(expected, "nvidia-imex is not installed", APPLY)
    wrong = judge_package(ctx.facts, own_package, driver, expected) or judge_program(
        ctx.facts, catalogue.IMEX_PROGRAM, program, driver, expected
    )
    if wrong:
        return wrong
    return ok(f"{own_package.name} {own_package.version}", expected)


@on_trays
@check(
    "fabric_manager.imex_held",
    fabric.PACKAGES,
    *DRIVER_PROBES,
    *answers.HOLDING[1:],
    moment="next-boot",
    evidence=answers.SHOWN,
)
def held(ctx: Ctx) -> Outcome:
    """nvidia-imex is held as the driver's set is: no upgrade moves it alone."""
    own_package = package(ctx.facts, "imex")
    return answers.held(
        ctx.facts, {own_package.name: own_package} if own_package else {}, "nvidia-imex", hold=hold(ctx.host)
    )


@in_domains
@check(
    "fabric_manager.imex_alive",
    IMEX,
    nvidia.DRIVER,
    system.CONTAINER,
    evidence=f"systemctl status {UNIT}; nvidia-imex-ctl -q",
)
def alive(ctx: Ctx) -> Outcome:
    """The daemon reports READY."""
    state = ctx.facts.get(IMEX)
    if state.daemon.process(PROCESS) is None and (reason := explain_absent_driver(ctx.facts)):
        return skip(reason)
    ready, message = rules.judge_imex(state)
    return ok(message) if ready else fail("READY", message, JOURNAL)


@in_domains
@check("fabric_manager.imex_nodes", IMEX, fields=("imex",), evidence="hostname -I")
def nodes(ctx: Ctx) -> Outcome:
    """This host is among the members."""
    state, members = ctx.facts.get(IMEX), list_members(ctx.fragment)
    listed = " ".join(members)
    if not set(members) & state.addresses:
        message = f"the host has {', '.join(sorted(state.addresses)) or 'no address'}"
        return fail(f"one of {listed}", message, "correct fabric_manager.imex.nodes")
    return ok(counted(len(members), "member"), listed)


@in_domains
@check(
    "fabric_manager.imex_domain", IMEX, nvidia.DRIVER, system.CONTAINER, fields=("imex",), evidence="nvidia-imex-ctl -N"
)
def domain(ctx: Ctx) -> Outcome:
    """Every member of the domain is READY and connected to every other, as the control program reports."""
    state, members = ctx.facts.get(IMEX), list_members(ctx.fragment)
    expected = f"UP, {counted(len(members), 'member')} READY and connected"
    if not state.daemon.processes and (reason := explain_absent_driver(ctx.facts)):
        return skip(reason)
    if state.domain is None:
        message = f"nvidia-imex-ctl -N does not tell{': ' + state.complaint if state.complaint else ''}"
        return fail(expected, message, f"see {HERE}.imex_alive; {JOURNAL}")
    bad = [f"{member.host} is {member.status}" for member in state.domain.members if member.status != "READY"]
    bad += [
        f"{member.host} is not connected to {', '.join(member.lost)}"
        for member in state.domain.members
        if member.status == "READY" and member.lost
    ]
    told_of = {member.host for member in state.domain.members}
    bad += [f"{node} is not told of" for node in members if node not in told_of]
    bad += [f"{host} is a member that the spec does not name" for host in sorted(told_of - set(members))]
    if bad or state.domain.status != "UP":
        fix = (
            "on these: systemctl status nvidia-imex, one version and one list of nodes, TCP ports 50000 and 50005 open"
        )
        return fail(expected, f"{state.domain.status}: {'; '.join(bad) or 'no member says why'}", fix)
    return ok(f"UP, {counted(len(state.domain.members), 'member')}", expected)


@on_trays
@check(
    "fabric_manager.imex_channel",
    *(IMEX, nvidia.DRIVER, system.CONTAINER),
    fields=("imex",),
    evidence=f"ls -l {catalogue.IMEX_CHANNEL}; grep Imex /proc/driver/nvidia/params",
)
def channel(ctx: Ctx) -> Outcome:
    """The driver was loaded with the parameter that creates channel 0; kernel.module_options checks this for the next
    boot."""
    state, imex = ctx.facts.get(IMEX), ctx.fragment.imex
    if not imex.channel0:
        return not_asked()
    if reason := explain_absent_driver(ctx.facts):
        return skip(reason)
    if not ctx.facts.get(nvidia.DRIVER).version:
        return fail(catalogue.IMEX_CHANNEL, "no NVIDIA module is loaded", "see nvidia_driver.loaded")
    if state.parameter and state.parameter != "1":
        reason = f"the driver was loaded without {catalogue.IMEX_PARAMETER}=1"
        return fail(
            f"{catalogue.IMEX_PARAMETER}=1", f"it is {state.parameter}", "reload the driver, or reboot", reboot=reason
        )
    if not state.channel:
        fix = f"modinfo -p nvidia | grep {catalogue.IMEX_PARAMETER[7:]}; nvidia-modprobe"
        return fail(catalogue.IMEX_CHANNEL, "there is no such device", fix)
    return ok(catalogue.IMEX_CHANNEL)


@on_trays
@check(
    "fabric_manager.imex_fabric",
    *(pci.NVIDIA_FUNCTIONS, fabric.STATE, nvidia.DRIVER, system.CONTAINER),
    evidence=fabric.STATE.evidence,
)
def in_fabric(ctx: Ctx) -> Outcome:
    """Every GPU of the tray is attached to the rack's NVLink fabric: Completed, Success, healthy, all in one clique of
    one cluster."""
    functions = ctx.facts.get(pci.NVIDIA_FUNCTIONS)
    on_bus = sorted(gpu.address for gpu in pci.driven(functions))
    if pci.gpus(functions) and not on_bus:
        return not_asked("all GPUs are lent to virtual machines")
    states = {gpu.bus: gpu for gpu in ctx.facts.get(fabric.STATE)}
    expected = f"{counted(len(on_bus), 'GPU')}: Completed, Success, in one clique of a cluster"
    if reason := explain_absent_driver(ctx.facts):
        return skip(reason)
    if not ctx.facts.get(nvidia.DRIVER).version:
        return fail(expected, "no NVIDIA module is loaded", "see nvidia_driver.loaded")
    bad = [f"{bus} {wrong}" for bus in on_bus if (wrong := rules.explain_detached(states.get(bus)))]
    groups = {(states[bus].cluster, states[bus].clique) for bus in on_bus if bus in states}
    if not bad and len(groups) > 1:
        bad = [f"several: {', '.join(sorted(f'{cluster}.{clique}' for cluster, clique in groups))}"]
    if bad or not on_bus:
        return fail(expected, "; ".join(bad) or "no GPU on the bus", rules.RACK)
    cluster, clique = groups.pop()
    if not clique:
        return skip(f"{counted(len(on_bus), 'GPU')} Completed, Success; this nvidia-smi does not report their clique")
    return ok(f"{counted(len(on_bus), 'GPU')} attached, clique {clique} of {cluster}", expected)


CHECKS = (version, held, alive, nodes, domain, channel, in_fabric, hardware)


problem = report_under(HERE)
PLACE: Path = (HERE, "imex", "nodes")


def problems(host: HostSpec, block: FabricManager) -> Iterable[Problem]:
    """Yield why an IMEX domain cannot be on this host, and what is wrong with its list."""
    gpu = gpus.find_gpu(host.gpu.model) if host.gpu else None
    members = list_members(block)
    if not of_tray(block):
        if gpu and gpu.fabric_manager.imex:
            fix = (
                'fabric_manager: {imex: {nodes: ["192.0.2.1", ...]}} with all members of the domain, imex: '
                "{service: disabled} under "
                "Kubernetes; or fabric_manager: false"
            )
            yield problem("", f"has nothing to manage: {catalogue.explain_absence(gpu)}", fix)
        return
    if gpu and not gpu.fabric_manager.imex:
        message = f"is for compute trays of GB200 and GB300 racks, and the host has {gpu.key}"
        yield problem("imex", message, "take imex out of this host's spec")
    if members and package_only(block):
        message = (
            "fabric_manager.imex.nodes has no meaning where service is disabled: each ComputeDomain has "
            "members of its own"
        )
        yield Problem(path=PLACE, message=message, fix="take nodes out, or service")
    if block.fabric_mode != "bare-metal" or block.settings:
        message = "is for hosts without Fabric Manager, whose fabric_mode and settings have no meaning there"
        yield problem("imex", message, "take fabric_mode and settings out")
    for number, node in enumerate(members):
        try:
            spelled = str(ip_address(node))
        except ValueError:
            spelled = ""
        if spelled != node:
            message = f'fabric_manager.imex.nodes[{number}] is "{node}"'
            fix = f'write it as "{spelled}"' if spelled else "allowed: an IPv4 or IPv6 address"
            yield Problem(path=(*PLACE, number), message=message, fix=fix)
    twice = sorted({node for node in members if members.count(node) > 1})
    if twice:
        message = f"fabric_manager.imex.nodes names {', '.join(twice)} twice"
        yield Problem(path=PLACE, message=message, fix="name each member once")


def fleet_rules(hosts: Sequence[HostSpec], _unmanaged: Sequence[str], *, whole: bool) -> Iterable[tuple[str, Problem]]:
    """Yield members of one domain that have different lists: nodes with different maps do not talk to each other.
    `whole` does not matter."""
    lists: dict[str, tuple[str, tuple[str, ...]]] = {}
    for host in hosts:
        members = list_members(host.capabilities.get(HERE))
        known = next((lists[node] for node in members if node in lists), None)
        if known and known[1] != members:
            here, elsewhere = " ".join(members), " ".join(known[1])
            message = (
                f"fabric_manager.imex.nodes is another list than that of {known[0]}, its member: {here} here, "
                f"{elsewhere} there"
            )
            fix = "one list, in one order, for all members of a domain"
            yield host.name, Problem(path=PLACE, message=message, fix=fix)
        for node in members:
            lists.setdefault(node, (host.name, members))
