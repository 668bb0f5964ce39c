"""Desired state of the role: a sound peer module and the unit that loads it, or neither; gdrcopy."""

from __future__ import annotations

from collections.abc import Iterator

from gpuprov.capabilities import package_sources
from gpuprov.capabilities.answers import BEFORE, HEADER, TRY_BY_HAND
from gpuprov.capabilities.base import Desired, Resources
from gpuprov.capabilities.gpudirect_rdma import gdrcopy
from gpuprov.capabilities.gpudirect_rdma import peer as peer_module
from gpuprov.capabilities.gpudirect_rdma.checks import MISSING, Ctx, decided
from gpuprov.capabilities.gpudirect_rdma.decision import PROBES, Decision
from gpuprov.capabilities.gpudirect_rdma.fragment import OVERRIDES
from gpuprov.capabilities.gpudirect_rdma.rules import OVERRIDE
from gpuprov.capabilities.gpudirect_rdma.tasks import TASKS
from gpuprov.capabilities.steps import Step, hand_steps
from gpuprov.catalog.rdma import gpudirect as catalogue
from gpuprov.facts.probes.base import ProbeFailed
from gpuprov.facts.probes.driver import nvidia
from gpuprov.facts.probes.host import house, system
from gpuprov.facts.probes.rdma import gpudirect as gdrcopy_probe
from gpuprov.facts.probes.rdma.gpudirect import GPUDIRECT, Gpudirect
from gpuprov.host_code.json_members import Json
from gpuprov.resources import Absent, File, Resource, Unit, role_values
from gpuprov.resources.packages import packages_of

FORERUNNER = "nv_peer_mem.service"
# Every file that the role may write.
PATHS = (catalogue.UNIT_FILE, catalogue.DROP_IN)


def unit(name: str) -> str:
    """Return the unit that loads a peer module."""
    return f"""{HEADER}\
# After openibd, which may put another ib_core in place; stopped before openibd is, which cannot take away an ib_core in use.
[Unit]
Description=GPU memory for RDMA devices ({name}), after the RDMA stack
ConditionVirtualization=!container
After=systemd-modules-load.service openibd.service nvidia-persistenced.service gpuprov-persistence.service network-pre.target
# NCCL asks once, as a job starts: without the module it copies through the CPU until the job ends.
{BEFORE}PartOf=openibd.service

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/sbin/modprobe {name}
ExecStop=-/sbin/rmmod {name}

[Install]
WantedBy=multi-user.target openibd.service
"""


def files(state: Gpudirect, name: str) -> dict[str, str]:
    """Return, by path, the files that have a peer module loaded at boot, and again when openibd is started."""
    if not name:
        return {}
    openibd = state.units.get("openibd.service", MISSING).load == "loaded"
    after = {catalogue.DROP_IN: f"{HEADER}[Service]\nExecStartPost=-/sbin/modprobe {name}\n"} if openibd else {}
    return {catalogue.UNIT_FILE: unit(name), **after}


def dead(state: Gpudirect, name: str) -> str:
    """Return why the installed peer module cannot be loaded; empty if every kernel has a loadable one, or none is
    wanted."""
    pairs = ((kernel.release, kernel.modules.get(name)) for kernel in state.targets())
    without = [release for release, module in pairs if module is None or module.symbols == "no"]
    if not name or not without:
        return ""
    return (
        f"kernel {', '.join(without)} has no {name} that was built against peer memory, and no other loads. Fix: "
        "OFED with its headers for that kernel (rdma.stack doca-ofed), nvidia_driver.build dkms; or method dmabuf"
    )


def reboot(ctx: Ctx) -> str:
    """Return why the driver's parameter takes effect only with a reboot."""
    target, now = str(OVERRIDES[ctx.fragment.topology_check]), ctx.facts.get(nvidia.PARAMETERS).get(OVERRIDE, "")
    differs = now not in ("", target) and not ctx.facts.get(system.CONTAINER)
    return f"the loaded driver has {OVERRIDE}={now}, {target} is wanted" if differs else ""


def peer(ctx: Ctx, name: str) -> dict[str, Json]:
    """Return the arguments of step peer_memory; empty if nothing is to be loaded now."""
    if not name or peer_module.find_obstacle(ctx):
        return {}
    causes = [
        {"text": message.text, "cause": message.cause, "way": message.way}
        for message in catalogue.read_gpudirect_file().messages
    ]
    parameters = peer_module.list_parameters(ctx.fragment, name)
    return {"name": name, "other": peer_module.OTHERS[name], "parameters": parameters, "causes": causes}


# Options of gpuprov_packages for gdrcopy.
GDRCOPY = {"of": "gdrcopy", "fix": TRY_BY_HAND}


def copies(ctx: Ctx) -> dict[str, Json]:
    """Return gdrcopy's packages to `install`, its `service` if that is to be on, and whether it is to `run` again,
    which loads the module and makes the device node; `later`: what waits for a package source."""
    if not ctx.fragment.gdrcopy.install:
        return {**GDRCOPY, "install": [], "service": "", "run": False, "later": {}}
    present, index = ctx.facts.get(gdrcopy_probe.PACKAGES), ctx.facts.get(gdrcopy_probe.INDEX)
    lacking = [name for name in gdrcopy.list_packages(ctx) if name not in present]
    none = [name for name in lacking if not (index.get(name) or index.busy)]
    driver = ctx.host.capabilities.get("nvidia_driver")
    url = package_sources.coming(driver, ctx.facts) if none else ""
    problem = f"gpudirect_rdma.gdrcopy: no package source of the host has {' '.join(none)}"
    if none and not url:
        raise ProbeFailed(problem, gdrcopy.SOURCE)
    message = f"gdrcopy is installed when apply has added {url}"
    waits = bool(lacking) or bool(ctx.facts.get(house.REBOOT_REASONS))
    return {
        **GDRCOPY,
        "install": [] if none else lacking,
        "service": "" if lacking else gdrcopy.known(ctx.facts).service,
        "run": not waits and gdrcopy.find_device_fault(ctx) is not None,
        "later": {"told": message, "problem": f"{problem}. Fix: {gdrcopy.SOURCE}"} if none else {},
    }


def desired(ctx: Ctx) -> Iterator[Resource]:
    """Yield the file that loads the peer module at boot, or its absence; the units of nv_peer_mem off and gdrcopy on.

    Raises ProbeFailed if no method can be decided.
    """
    decision = decided(ctx)
    if decision.problem:
        raise ProbeFailed(f"gpudirect_rdma.method {ctx.fragment.method}: {decision.problem}", decision.fix)
    name = loaded_module(decision)
    texts = files(ctx.facts.get(GPUDIRECT), name)
    yield from (File(path, text) for path, text in texts.items())
    yield from (Absent(path) for path in PATHS if path not in texts)
    # What it loads may have been loaded by others, and then it does not run: gpudirect_rdma.loaded looks at the module
    # itself.
    yield Unit(name=catalogue.UNIT, enabled=bool(name), active=None if name else False)
    if name != "nv_peer_mem":
        yield Unit(name=FORERUNNER, enabled=False, active=False)
    yield from gdrcopy.units(ctx)


def loaded_module(decision: Decision) -> str:
    """Return the peer module that is loaded at boot; empty if there is none."""
    return "" if decision.method == "dmabuf" else decision.method


def make(ctx: Ctx) -> dict[str, Json]:
    """Return the role's values. The method is reported with its reason, and modules are rebuilt; `problem`: why they
    cannot load after that. The values of its resources. `reboot`: the reason for one. `gdrcopy`: its packages. `later`:
    what waits for a package source."""
    values = role_values(desired(ctx), "files", "absent", "on", "off")
    decision, state = decided(ctx), ctx.facts.get(GPUDIRECT)
    name = loaded_module(decision)
    again = {kernel.release: kernel.rebuild[name] for kernel in state.targets() if name in kernel.rebuild}
    own = copies(ctx)
    message = (
        f"gpudirect_rdma: {decision.method or 'the method is decided when there is a driver'}, since {decision.reason}"
    )
    why, loads = "; ".join(f"{release}: {why}" for release, why in again.items()), peer(ctx, name)
    steps = [
        Step("method", {"msg": message}),
        Step("peer_build", {"module": name, "kernels": list(again), "why": why}, again),
        Step("peer_memory", {**loads, "unit": catalogue.UNIT}, loads),
        Step("gdrcopy", {"name": own.pop("service")}, own.pop("run")),
    ]
    return {
        "later": own.pop("later"),
        "problem": dead(state, name),
        **values,
        "reboot": reboot(ctx),
        "gdrcopy": own,
        "tasks": hand_steps(steps, TASKS),
    }


SERVICES = tuple(entry.service for entry in catalogue.read_gpudirect_file().gdrcopy)
RESOURCES = Resources(
    desired,
    lambda _host, _block: PATHS,
    tuple(dict.fromkeys((*PROBES, system.OS_RELEASE))),
    units=lambda _host, _block: (catalogue.UNIT, FORERUNNER, *SERVICES),
    proves={"files": ("method",), "enabled": ("method", "gdrcopy"), "active": ("method",)},
)
DESIRED = Desired(
    (
        *(*PROBES, *gdrcopy.BASE, gdrcopy_probe.INDEX, gdrcopy_probe.GDRCOPY, nvidia.PARAMETERS),
        *(system.CONTAINER, house.REBOOT_REASONS, *package_sources.COMING),
    ),
    make,
    packages=lambda values: (packages_of(values["gdrcopy"]),),
)
