"""Desired state of the role: settings at each boot, the unit that applies them, irqbalance's policy, and the masks of
rdma_topo."""

from collections.abc import Iterator

from gpuprov.capabilities.answers import APPLY, BEFORE, HEADER
from gpuprov.capabilities.at_boot import COMMON, command, unit
from gpuprov.capabilities.at_boot import files as at_boot
from gpuprov.capabilities.base import Desired, Resources
from gpuprov.capabilities.pcie.fragment import REASON, Ctx, Pcie, explain_policy, lines, settings
from gpuprov.capabilities.pcie.tasks import TASKS
from gpuprov.capabilities.steps import Step, hand_steps
from gpuprov.catalog import pcie as catalogue
from gpuprov.facts.probes.host import system
from gpuprov.facts.probes.host.pcie import PCIE
from gpuprov.host_code.at_boot.pcie import CONFIG, list_differences, set_here
from gpuprov.host_code.at_boot.program import Refused
from gpuprov.host_code.json_members import Json
from gpuprov.resources import Absent, File, Program, Resource, Unit, role_values, started

MODULES = (*COMMON, "pcie")
PROGRAM = at_boot("pcie", MODULES)
FIX = "see dmesg | grep -E 'mlx5|pci' and lspci -nn, or take out of the spec what it names"
UNIT_FILE = f"/etc/systemd/system/{catalogue.UNIT}"
# Every file that the role may write; a file that is no longer needed is removed.
FILES = (UNIT_FILE, CONFIG, catalogue.DROP_IN, catalogue.POLICY, *PROGRAM)
# Files that irqbalance reads at its start; it asks the policy once of each interrupt.
READS = {
    catalogue.BALANCER: (catalogue.BALANCER_PROGRAM, catalogue.POLICY, catalogue.DROP_IN.rpartition("/")[0]),
}
UNIT = unit(
    f"""
Description=PCI Express settings of GPUs and HCAs
# openibd loads the drivers of HCAs anew, and the functions lose their settings with a reset.
After=systemd-modules-load.service systemd-udev-trigger.service openibd.service rdma-hw.target network.target network-online.target
PartOf=openibd.service
Before=irqbalance.service
{BEFORE}""",
    f"""
ExecStartPre=-/usr/bin/env udevadm settle --timeout=60
ExecStart={command("pcie", "pcie", "apply")}
TimeoutStartSec=180
""",
    wanted_by="multi-user.target openibd.service",
)
DROP_IN = f"""{HEADER}[Unit]
After={catalogue.UNIT}

[Service]
Type=simple
ExecStart=
ExecStart={catalogue.BALANCER_PROGRAM} --foreground $OPTIONS $IRQBALANCE_ARGS --policyscript={catalogue.POLICY}
"""
POLICY = f"""#!/bin/sh
# irqbalance --policyscript: SYSFS-DEVICE IRQ. Interrupts of HCAs stay where {catalogue.UNIT} has put them. Managed by gpuprov.
[ -d "$1/infiniband" ] && echo ban=true
exit 0
"""


def registers(block: Pcie) -> bool:
    """Return whether setpci is needed."""
    return bool(settings(block).keys() - {"affinity"})


def differs(ctx: Ctx) -> str:
    """Return what the unit has to set now; all of it if there is nothing to compare yet."""
    values = settings(ctx.fragment)
    functions = set_here(ctx.facts.get(PCIE).functions.values(), container=bool(ctx.facts.get(system.CONTAINER)))
    try:
        return ", ".join(str(difference) for difference in list_differences(functions, values))
    except Refused:
        return ", ".join(lines(ctx.fragment))


def is_balanced(ctx: Ctx) -> bool:
    """Return whether irqbalance leaves the interrupts of HCAs where the unit puts them."""
    return ctx.fragment.affinity == "local" and ctx.facts.get(PCIE).balances


def desired(ctx: Ctx) -> Iterator[Resource]:
    """Yield the unit, the files that it reads and runs, and irqbalance's policy; and the removal of those that are not
    needed."""
    setting_lines = lines(ctx.fragment)
    texts = {catalogue.DROP_IN: DROP_IN} if is_balanced(ctx) else {}
    programs: dict[str, str] = {}
    if setting_lines:
        texts |= {CONFIG: configuration(setting_lines), UNIT_FILE: UNIT}
        programs = PROGRAM
        yield File(catalogue.POLICY, POLICY, 0o755)
    yield from (File(path, text) for path, text in texts.items())
    yield from (Program(path, name) for path, name in programs.items())
    kept = {*texts, *programs, *([catalogue.POLICY] if setting_lines else [])}
    yield from (Absent(path) for path in FILES if path not in kept)
    yield Unit(name=catalogue.UNIT, enabled=bool(setting_lines), active=bool(setting_lines))
    yield from balancer(ctx)


def balancer(ctx: Ctx) -> Iterator[Unit]:
    """Yield irqbalance's unit, which is restarted where it runs and has another policy, and never started; nothing if
    it is others' alone."""
    state, needed = ctx.facts.get(PCIE), is_balanced(ctx)
    has_policy = catalogue.POLICY in state.irqbalance
    if needed or has_policy:
        yield Unit(
            name=catalogue.BALANCER,
            reads=READS[catalogue.BALANCER] if needed else (),
            process=catalogue.BALANCER_PROGRAM.rpartition("/")[2] if needed else "",
            outdated=explain_policy(state.irqbalance, needed=needed) if state.balancer else "",
            fix=f"{APPLY}; systemctl restart {catalogue.BALANCER}",
        )


def configuration(setting_lines: tuple[str, ...]) -> str:
    return f"{HEADER}# SETTING VALUE: what {catalogue.UNIT} sets at boot.\n" + "".join(
        f"{line}\n" for line in setting_lines
    )


def make(ctx: Ctx) -> dict[str, Json]:
    """Return the role's values. `install`: packages; the values of its resources. `reboot`: why rdma_topo's masks,
    which a command gives to GRUB, need one."""
    block, state = ctx.fragment, ctx.facts.get(PCIE)
    masks, topo = block.acs == "rdma_topo", state.topo
    in_force = state.topo_status == 0 or state.topo_started
    values = role_values(desired(ctx), "program", "programs", "files", "units", "absent", "on", "off")
    written = {"argv": [topo, "write-grub-acs", "--output", catalogue.GRUB]}
    steps = [Step("masks", written, masks and topo and state.topo_grub != "same")]
    steps += [Step("balancer", started(service), service.reads or service.outdated) for service in balancer(ctx)]
    if values.pop("on"):
        own = {"name": catalogue.UNIT, "state": "ran", "enabled": True, "program": "pcie"}
        steps.append(Step("unit", {**own, "differs": differs(ctx), "fix": FIX}))
    return {
        "of": "PCIe settings",
        "install": ["pciutils"] if registers(block) and not state.setpci else [],
        **values,
        "reboot": REASON if masks and not in_force else "",
        "tasks": hand_steps(steps, TASKS),
    }


# Fields that the unit sets at each boot.
BY_UNIT = ("acs", "max_read_request", "gpu_max_read_request", "relaxed_ordering", "affinity")
RESOURCES = Resources(
    desired,
    lambda _host, _block: FILES,
    (PCIE,),
    reads=lambda _host, _block: READS,
    units=lambda _host, _block: (catalogue.UNIT,),
    proves={"files": BY_UNIT, "enabled": BY_UNIT, "active": BY_UNIT},
)
DESIRED = Desired((PCIE, system.CONTAINER), make)
