"""The host's method of persistence, and the desired state of the role for it."""

from collections.abc import Iterator

from gpuprov.capabilities.answers import HEADER
from gpuprov.capabilities.base import Context, Desired, Outcome, Resources, check, fail, ok
from gpuprov.capabilities.persistence.fragment import DAEMON, DROP_IN, IDLE, LEGACY, LEGACY_FILE, PROGRAM, Persistence
from gpuprov.capabilities.persistence.tasks import TASKS
from gpuprov.capabilities.steps import Step, hand_steps
from gpuprov.facts.probes.driver import persistence
from gpuprov.facts.probes.host import pci, system
from gpuprov.host_code.json_members import Json
from gpuprov.resources import Absent, File, Resource, Unit, role_values, started
from gpuprov.resources.packages import packages_of
from gpuprov.spec.model import HostSpec

LEGACY_UNIT = f"""{HEADER}[Unit]
Description=Persistence mode of the NVIDIA GPUs (legacy: nvidia-smi -pm 1)
ConditionPathExists=/usr/bin/nvidia-smi
After=systemd-modules-load.service

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/usr/bin/nvidia-smi -pm 1
ExecStop=/usr/bin/nvidia-smi -pm 0

[Install]
WantedBy=multi-user.target
"""
Ctx = Context[Persistence]
PROBES = (persistence.PERSISTENCED, system.OS_RELEASE)
INSTEAD = "persistence: {mode: legacy}, which needs no package"
# Every file that the role may write.
PATHS = (LEGACY_FILE, DROP_IN)


def runfile(ctx: Ctx) -> bool:
    """Return whether NVIDIA's .run file brings the daemon: without a unit, and no package of it may be installed beside
    it."""
    driver = ctx.host.capabilities.get("nvidia_driver")
    return getattr(driver, "source", "") == "runfile"


def brought(ctx: Ctx) -> bool:
    """Return whether a driver package brings the daemon: NVIDIA's and Ubuntu's depend on its package, which has the
    driver's version; Debian's do not."""
    driver = ctx.host.capabilities.get("nvidia_driver")
    if driver is None or runfile(ctx):
        return False
    debian = ctx.facts.get(system.OS_RELEASE).id == "debian"
    return not debian or getattr(driver, "source", "") in ("nvidia", "mirror")


def own(ctx: Ctx) -> bool:
    """Return whether the daemon would come as Debian's own package."""
    is_present = bool(ctx.facts.get(persistence.PERSISTENCED).unit)
    return ctx.facts.get(system.OS_RELEASE).id == "debian" and not (is_present or brought(ctx) or runfile(ctx))


def available(ctx: Ctx) -> bool:
    """Return whether the host has the daemon, or gets it."""
    state = ctx.facts.get(persistence.PERSISTENCED)
    return bool(state.unit) or brought(ctx) or (own(ctx) and (state.installed or bool(state.offered)))


def by_daemon(ctx: Ctx) -> bool:
    return ctx.fragment.mode == "daemon" or (ctx.fragment.mode == "auto" and available(ctx))


@check("persistence.offered", *PROBES, fields=("mode",), moment="preflight", evidence=persistence.PERSISTENCED.evidence)
def offered(ctx: Ctx) -> Outcome:
    """The host has nvidia-persistenced, or gets it, if the spec wants the daemon."""
    if not by_daemon(ctx) or available(ctx):
        return ok(f"{DAEMON if by_daemon(ctx) else LEGACY}")
    fix = (
        "a unit of your own for the nvidia-persistenced of the .run file"
        if runfile(ctx)
        else "enable contrib and non-free"
        if own(ctx)
        else "apply nvidia_driver too, whose packages bring it"
    )
    return fail(DAEMON, "neither a unit of it, nor a package in the host's repositories", f"{fix}, or mode: auto")


def drop_in(unit: tuple[str, ...]) -> str:
    """Return what Ubuntu's unit lacks: it has no [Install] section, and starts the daemon with the mode off. Empty if
    it lacks nothing."""
    start = next(
        (line.partition("=")[2] for line in unit if line.startswith("ExecStart=") and line != "ExecStart="), ""
    )
    if not start:
        return ""
    text = f"[Service]\nExecStart=\nExecStart={start.replace(f' {IDLE}', '')}\n" if IDLE in start else ""
    text += "" if "[Install]" in unit else "[Install]\nWantedBy=multi-user.target\n"
    return text and HEADER + text


def units(ctx: Ctx) -> tuple[str, str]:
    """Return the unit that is on, and the one that is off."""
    return (DAEMON, LEGACY) if by_daemon(ctx) else (LEGACY, DAEMON)


def waits(ctx: Ctx) -> str:
    """Return why neither unit can do anything on this host; empty if it can."""
    if not pci.driven(ctx.facts.get(pci.NVIDIA_FUNCTIONS)):
        return "no NVIDIA GPU on the PCI bus: the daemon has nothing to hold"
    if container := ctx.facts.get(system.CONTAINER):
        return f"{container} container: the GPUs are the machine's, not this host's"
    return ""


def reads(_host: HostSpec, _block: Persistence) -> dict[str, tuple[str, ...]]:
    """Return what the daemon has read at its start, by unit; the legacy mode's has no process that lasts."""
    return {DAEMON: (PROGRAM, DROP_IN.rpartition("/")[0])}


def desired(ctx: Ctx) -> Iterator[Resource]:
    """Yield the unit that is on, the one that is off, and the files that make them so."""
    daemon = by_daemon(ctx)
    texts = {
        LEGACY_FILE: "" if daemon else LEGACY_UNIT,
        DROP_IN: drop_in(ctx.facts.get(persistence.PERSISTENCED).unit) if daemon else "",
    }
    yield from (File(path, text) if text else Absent(path) for path, text in texts.items())
    own_unit, other = units(ctx)
    why = waits(ctx)
    outdated = f"active with {IDLE}" if daemon and ctx.facts.get(persistence.PERSISTENCED).idle else ""
    yield Unit(
        name=own_unit,
        enabled=True,
        active=None if why else True,
        waits=why,
        outdated=outdated,
        reads=reads(ctx.host, ctx.fragment).get(own_unit, ()),
        process=PROGRAM.rpartition("/")[2] if daemon else "",
    )
    yield Unit(name=other, enabled=False, active=False)


def make(ctx: Ctx) -> dict[str, Json]:
    """Return the role's values. `install`: the daemon's package, which is fetched before anything changes; the values
    of its resources. The unit is started unless the driver has no GPU yet that it could hold."""
    state, resources = ctx.facts.get(persistence.PERSISTENCED), list(desired(ctx))
    missing = by_daemon(ctx) and own(ctx) and not state.installed
    runs = (
        next((resource for resource in resources if isinstance(resource, Unit) and resource.active), None)
        if state.gpus
        else None
    )
    offered_packages = [f"{persistence.PACKAGE}={version}" for version in state.offered[:1]]
    steps = [Step("download", {"install": offered_packages}, missing and offered_packages)]
    if runs:
        steps.append(Step("unit", started(runs, f"journalctl -u {runs.name}, on the host")))
    return {
        "of": persistence.PACKAGE,
        "instead": INSTEAD,
        "install": [persistence.PACKAGE] if missing else [],
        **role_values(resources, "files", "absent", "on", "off"),
        "tasks": hand_steps(steps, TASKS),
    }


RESOURCES = Resources(
    desired,
    lambda _host, _block: PATHS,
    (*PROBES, pci.NVIDIA_FUNCTIONS, system.CONTAINER),
    reads=reads,
    units=lambda _host, _block: (DAEMON, LEGACY),
    proves={"enabled": ("mode",), "active": ("mode",)},
)
DESIRED = Desired(RESOURCES.probes, make, packages=lambda values: (packages_of(values, judge=True),))
