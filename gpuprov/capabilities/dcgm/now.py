"""Checks of DCGM as it is now: one version, held, its host engine running, of the installed version and responding, its
exporter too."""

import re

from gpuprov.capabilities import answers
from gpuprov.capabilities.base import Context, Outcome, check, fail, not_asked, ok, skip
from gpuprov.capabilities.compared import restart_unit
from gpuprov.capabilities.dcgm.fragment import (
    BASE_PROBES,
    Dcgm,
    choose_builds,
    find_installed,
    list_needed,
    list_versions,
    parse_listen_address,
)
from gpuprov.capabilities.driver import explain_absent_driver, find_target_branch
from gpuprov.catalog import dcgm as catalogue
from gpuprov.catalog import fabric as board
from gpuprov.core.sanitize import counted
from gpuprov.facts.probes.driver import nvidia
from gpuprov.facts.probes.gpus import dcgm, fabric
from gpuprov.facts.probes.host import pci, system
from gpuprov.hardware.topology.fabric import is_of_rack
from gpuprov.rules import followers, resolve

Ctx = Context[Dcgm]
UNIT, EXPORTER_UNIT = catalogue.UNIT, catalogue.EXPORTER_UNIT
JOURNAL = f"journalctl -u {UNIT} -n 30"
PACKAGES = "dpkg -l 'datacenter-gpu-manager*'; rpm -qa 'datacenter-gpu-manager*'"


@check(
    "dcgm.version",
    *(*BASE_PROBES, dcgm.DCGM),
    fields=("version", "cuda", "proprietary", "multinode"),
    evidence=f"{PACKAGES}; nv-hostengine --version",
)
def version(ctx: Ctx) -> Outcome:
    """All packages that the host needs are installed in one version, which is the one that the spec asks for, and the
    program has it."""
    names, present = list_needed(ctx.host, ctx.fragment, ctx.facts), find_installed(ctx.facts)
    expected = f"{', '.join(names)} in one version ({ctx.fragment.version})"
    missing = [name for name in names if name not in present]
    if missing:
        return fail(expected, f"not installed: {', '.join(missing)}", "gpuprov apply")
    broken = [name for name, package in present.items() if not package.whole]
    if broken:
        return fail(expected, f"incomplete: {', '.join(broken)}", "fix the package database, then gpuprov apply")
    versions = {resolve.upstream(present[name].version) for name in names}
    core = resolve.upstream(present[names[0]].version)
    if len(versions) > 1 or not resolve.satisfies(core, ctx.fragment.version):
        listed = ", ".join(f"{name} {present[name].version}" for name in names)
        return fail(expected, listed, "gpuprov apply")
    line = catalogue.find_line(
        ctx.fragment.version, present, choose_builds(ctx.fragment, find_target_branch(ctx.host, ctx.facts), ctx.facts)
    )
    others = (name for name in present if re.fullmatch(catalogue.PATTERNS[line], name) and name != catalogue.CONFIG)
    astray = [f"{name} {present[name].version}" for name in others if resolve.upstream(present[name].version) != core]
    if astray:
        return fail(f"all of DCGM in version {core}", ", ".join(astray), "gpuprov apply")
    program = ctx.facts.get(dcgm.DCGM).installed
    if program != core:
        fix = f"another installation's program lies at {catalogue.PROGRAM}: remove it, then gpuprov apply"
        return fail(f"nv-hostengine {core}", f"nv-hostengine says {program or 'nothing'}", fix)
    return ok(f"{', '.join(names)} {present[names[0]].version}", expected)


@check("dcgm.leftovers", *BASE_PROBES, evidence=PACKAGES)
def leftovers(ctx: Ctx) -> Outcome:
    """Nothing of the other release line is installed (3 and 4 bring the same programs and units), nor a build for
    another CUDA."""
    present = find_installed(ctx.facts)
    cuda = choose_builds(ctx.fragment, find_target_branch(ctx.host, ctx.facts), ctx.facts)
    line = catalogue.find_line(ctx.fragment.version, present, cuda)
    other = [name for name in present if not re.fullmatch(catalogue.PATTERNS[line], name)]
    other += [name for name in catalogue.list_other_builds(present, cuda) if cuda and name not in other]
    expected = f"packages of DCGM {line} only" + (f", for CUDA {' and '.join(cuda)}" if line == "4" and cuda else "")
    if other:
        return fail(expected, f"also installed: {', '.join(other)}", "gpuprov apply removes them")
    return ok(expected)


@check("dcgm.held", *(dcgm.PACKAGES, *answers.HOLDING), fields=("hold",), moment="next-boot", evidence=answers.SHOWN)
def held(ctx: Ctx) -> Outcome:
    """Every package of DCGM, and its exporter, is held: no upgrade moves one of them alone. Or none is, if the spec
    asks for that."""
    present = find_installed(ctx.facts)
    if ctx.fragment.exporter and catalogue.EXPORTER in ctx.facts.get(dcgm.PACKAGES):
        present[catalogue.EXPORTER] = ctx.facts.get(dcgm.PACKAGES)[catalogue.EXPORTER]
    return answers.held(ctx.facts, present, "DCGM", hold=ctx.fragment.hold)


@check("dcgm.alive", dcgm.DCGM, evidence="dcgmi discovery -l; dcgmi -v")
def alive(ctx: Ctx) -> Outcome:
    """The unit's host engine answers dcgmi, and is of the installed version: a process keeps its old libraries."""
    state = ctx.facts.get(dcgm.DCGM)
    engine, expected = state.engine, f"the host engine of {UNIT} answers dcgmi"
    if not engine.pid:
        beside = f"; a host engine outside the unit answers dcgmi ({state.running})" if state.running else ""
        return fail(expected, f"{UNIT} has no process{beside}", JOURNAL)
    if state.running and state.running != state.installed:
        message = f"process {engine.pid} is of version {state.running}, installed is {state.installed or 'none'}"
        return fail("a host engine of the installed version", message, f"systemctl restart {UNIT}")
    if state.gpus is None:
        message = f"dcgmi: {state.complaint or 'no answer'}"
        return fail(expected, message, JOURNAL, changes=restart_unit(UNIT, "silent"))
    return ok(f"process {engine.pid}, {state.running or state.installed}, answers dcgmi", expected)


@check(
    "dcgm.gpus",
    *(dcgm.DCGM, pci.NVIDIA_FUNCTIONS, nvidia.DRIVER, system.CONTAINER),
    evidence="dcgmi discovery -l; lspci -d 10de:",
)
def gpus(ctx: Ctx) -> Outcome:
    """The host engine manages every GPU on the bus; an engine that was started before the driver, or with another's
    libraries, sees none."""
    on_bus, state = len(pci.driven(ctx.facts.get(pci.NVIDIA_FUNCTIONS))), ctx.facts.get(dcgm.DCGM)
    if not on_bus:
        return skip("no NVIDIA GPU on the PCI bus")
    if reason := explain_absent_driver(ctx.facts):
        return skip(reason)
    if state.gpus != on_bus:
        message = counted(state.gpus, "GPU") if state.gpus is not None else f"dcgmi: {state.complaint or 'no answer'}"
        return fail(counted(on_bus, "GPU"), message, f"nvidia-smi -L; then systemctl restart {UNIT}")
    return ok(counted(on_bus, "GPU"))


@check(
    "dcgm.switches",
    *(dcgm.DCGM, pci.NVIDIA_FUNCTIONS, fabric.BRIDGES, nvidia.DRIVER, system.CONTAINER),
    evidence="dcgmi discovery -l; lspci -d 10de:; tail /var/log/nv-hostengine.log",
)
def switches(ctx: Ctx) -> Outcome:
    """The host engine sees the NVSwitches that Fabric Manager manages: without their library, or with one of another
    version than the driver, everything else works and it shows 0 NvSwitches."""
    block = ctx.host.capabilities.get(followers.FABRIC_MANAGER)
    setting = str(getattr(block, "query_library", "never"))
    if not followers.wants_library(setting, (followers.DCGM,)):
        return not_asked(
            "the spec asks for no library through which DCGM reads NVSwitches (fabric_manager.query_library)"
        )
    functions = [fact.identifier for fact in ctx.facts.get(pci.NVIDIA_FUNCTIONS)]
    on_bus, bridges = sum(function in board.list_switches() for function in functions), ctx.facts.get(fabric.BRIDGES)
    own_gpus = [fact for fact in ctx.facts.get(pci.NVIDIA_FUNCTIONS) if fact.is_gpu]
    if own_gpus and all(map(is_of_rack, own_gpus)):
        return not_asked("the NVSwitches are in the rack's switch trays")
    if not on_bus and not bridges:
        return skip("no NVSwitch on the bus: see fabric_manager.hardware")
    if board.find_generation(functions, bridged=bool(bridges)) not in board.LIBRARY:
        return not_asked("no library is known that reads the NVSwitches of this board")
    state = ctx.facts.get(dcgm.DCGM)
    if reason := explain_absent_driver(ctx.facts):
        return skip(reason)
    expected = counted(on_bus, "NVSwitch") if on_bus else "the NVSwitches behind the board's bridges"
    fix = f"see fabric_manager.query_library; then systemctl restart {UNIT}: the library is loaded once"
    if state.gpus is None or state.switches is None:
        return fail(expected, f"dcgmi: {state.complaint or 'no answer'}", JOURNAL)
    if (on_bus and state.switches != on_bus) or not state.switches:
        seen = f"{state.switches} NvSwitches"
        return fail(expected, f"dcgmi discovery -l: {seen}", fix, changes=restart_unit(UNIT, seen))
    return ok(f"{state.switches} NVSwitches", expected)


@check("dcgm.listens", dcgm.DCGM, fields=("listen",), evidence=f"systemctl cat {UNIT}; ss -ltnp")
def listening(ctx: Ctx) -> Outcome:
    """The host engine listens on the address of the spec, and its unit makes it do so again at the next start."""
    address, engine = ctx.fragment.listen, ctx.facts.get(dcgm.DCGM).engine
    if not engine.start:
        return fail(f"{UNIT} on {address}", f"no {UNIT}", "gpuprov apply")
    if parse_listen_address(engine.start) != address:
        return fail(
            address, f"the unit has {parse_listen_address(engine.start)}", f"gpuprov apply; systemctl cat {UNIT}"
        )
    if not engine.command:
        return fail(address, "no host engine runs", "see dcgm.active")
    if parse_listen_address(engine.command) != address:
        return fail(
            address, f"the process listens on {parse_listen_address(engine.command)}", f"systemctl restart {UNIT}"
        )
    return ok(address)


@check(
    "dcgm.exporter",
    *(dcgm.PACKAGES, dcgm.DCGM),
    fields=("exporter", "exporter_port", "exporter_counters"),
    evidence=f"systemctl status {EXPORTER_UNIT}; curl -s localhost:{catalogue.EXPORTER_PORT}/metrics",
)
def exporter(ctx: Ctx) -> Outcome:
    """The exporter fits this DCGM, its file of counters exists, and it answers on its port with metrics."""
    state = ctx.facts.get(dcgm.DCGM)
    if not ctx.fragment.exporter:
        return not_asked("no exporter in the spec; one that is there is left alone")
    port, counters = ctx.fragment.exporter_port, ctx.fragment.exporter_counters
    expected = f"metrics of {counters} on port {port}"
    current = list_versions(ctx.facts).get(catalogue.EXPORTER, "")
    if not current:
        return fail(expected, f"{catalogue.EXPORTER} is not installed", "gpuprov apply")
    core = next((resolve.upstream(package.version) for package in find_installed(ctx.facts).values()), "")
    if core and not catalogue.is_fitting_exporter(current, core):
        fix = "gpuprov apply takes the exporter that was released for it"
        return fail(f"an exporter for DCGM {core}", f"{catalogue.EXPORTER} {current} is for a newer one", fix)
    if not state.counters:
        return fail(expected, f"no {counters}", "put the file there, or leave exporter_counters out")
    if state.metrics is None:
        fix = f"tail /var/log/dcgm-exporter.log; ss -ltnp 'sport = :{port}'"
        return fail(expected, f"no answer on port {port}", fix, changes=restart_unit(EXPORTER_UNIT, "silent"))
    return ok(f"{current}, {state.metrics} values on port {port}", expected)


CHECKS = (version, leftovers, held, alive, gpus, switches, listening, exporter)
