"""`fabric_manager`: the daemon that configures NVSwitches: the driver's version, held with it, enabled and running."""

from collections.abc import Iterable

from gpuprov.capabilities.base import LOADED, Capability
from gpuprov.capabilities.fabric_manager import imex, library, now, preflight, tray
from gpuprov.capabilities.fabric_manager.desired import DESIRED, RESOURCES
from gpuprov.capabilities.fabric_manager.fragment import FabricManager, Imex, driver_wanted, written
from gpuprov.capabilities.fabric_manager.tasks import TASKS
from gpuprov.catalog import drivers, gpus
from gpuprov.catalog import fabric as catalogue
from gpuprov.catalog.drivers.sets import MODULE_NAMES
from gpuprov.catalog.gpus import Gpu
from gpuprov.core.safe_parse import is_whole
from gpuprov.facts.probes.base import Facts
from gpuprov.facts.probes.gpus import dcgm, fabric
from gpuprov.facts.probes.gpus.imex import IMEX
from gpuprov.facts.probes.host import systemd
from gpuprov.rules.followers import LIBRARIES
from gpuprov.spec.build import convert
from gpuprov.spec.kernel import Kernel, Scalar
from gpuprov.spec.model import Fragment, HostSpec
from gpuprov.spec.problem import Problem, report_under
from gpuprov.spec.shown import show
from gpuprov.spec.unknown_keys import report_unknown_key

HERE = "fabric_manager"
problem = report_under(HERE)


def rules(host: HostSpec, block: FabricManager) -> Iterable[Problem]:
    gpu = gpus.find_gpu(host.gpu.model) if host.gpu else None
    yield from imex.problems(host, block)
    if gpu and not gpu.fabric_manager.imex and not tray.of_tray(block):
        yield from hardware_problems(gpu, driver_wanted(host))
    yield from channel_problems(host, block)
    if not driver_wanted(host):
        fix = "add nvidia_driver: {}; without it, an upgrade of the driver leaves Fabric Manager behind"
        yield problem("", "follows the driver, and nvidia_driver is not in the spec", fix, warning=True)
    yield from setting_problems(gpu, block)


def hardware_problems(gpu: Gpu, version: str) -> Iterable[Problem]:
    """Yield why Fabric Manager cannot be on hosts with this GPU."""
    needed = gpu.fabric_manager
    if why := catalogue.explain_absence(gpu):
        severity = "warning" if needed.confidence == "unconfirmed" else "error"
        message = f"fabric_manager has nothing to manage: {why}"
        fix = "switch it off for these hosts: fabric_manager: false"
        yield Problem(path=(HERE,), message=message, fix=fix, severity=severity)  # type: ignore[arg-type]
    elif version and version != "any" and needed.min_branch:
        branch = drivers.derive_branch(version)
        if int(branch) < int(needed.min_branch):
            message = f": boards of {gpu.key} need branch {needed.min_branch} or newer, the driver is {branch}"
            yield problem("", message, f'nvidia_driver: {{version: "{needed.min_branch}"}} or newer')


def channel_problems(host: HostSpec, block: FabricManager) -> Iterable[Problem]:
    """Yield a problem for a driver without a parameter for channel 0."""
    version = driver_wanted(host)
    if tray.of_tray(block) and block.imex.channel0 and is_whole(version[:1]):
        branch, since = drivers.derive_branch(version), catalogue.IMEX_PARAMETER_SINCE
        if int(branch) < since:
            message = f"fabric_manager.imex.channel0 needs a driver of branch {since} or newer, the driver is {branch}"
            fix = (
                f'nvidia_driver: {{version: "580"}}, or channel0: false and {catalogue.IMEX_CHANNEL} made by '
                "hand at each boot"
            )
            yield Problem(path=(HERE, "imex"), message=message, fix=fix)


def setting_problems(gpu: Gpu | None, block: FabricManager) -> Iterable[Problem]:
    """Yield unknown keys of fabricmanager.cfg, invalid values, and settings without effect."""
    known = catalogue.list_settings()
    ours = [key for key, entry in known.items() if entry.kind != "unit" and key != "FABRIC_MODE"]
    for key, value in block.settings.items():
        path = (HERE, "settings", key)
        entry = known.get(key)
        if key == "FABRIC_MODE":
            word = next((word for word, number in catalogue.MODES.items() if number == written(value)), "bare-metal")
            message = "fabric_manager.settings: FABRIC_MODE has a field of its own"
            yield Problem(path=path, message=message, fix=f"fabric_manager: {{fabric_mode: {word}}}")
        elif entry is None:
            _, message, fix = report_unknown_key((HERE, "settings"), key, ours)
            yield Problem(path=path, message=message, fix=fix)
        elif entry.kind == "unit":
            message = f"fabric_manager.settings: {key} is not to be set: {entry.note}"
            yield Problem(path=path, message=message, fix="leave it out")
        elif allowed := catalogue.explain_refusal(entry, written(value)):
            yield Problem(
                path=path, message=f"fabric_manager.settings.{key} is {show(value)}", fix=f"allowed: {allowed}"
            )
    if written(block.settings.get("FABRIC_MODE_RESTART", 0)) == "1" and block.fabric_mode == "bare-metal":
        fix = "leave it out, or choose shared-nvswitch or vgpu"
        message = "is 1, which has no effect in fabric_mode bare-metal"
        yield problem("settings.FABRIC_MODE_RESTART", message, fix, warning=True)
    switch_gen = gpu.nvswitch.generation if gpu and gpu.nvswitch else None
    if "PARTITION_RAIL_POLICY" in block.settings and gpu and switch_gen and switch_gen < catalogue.BRIDGED_GENERATION:
        needed = catalogue.BRIDGED_GENERATION
        needs = f"PARTITION_RAIL_POLICY is for NVSwitches of generation {needed}, {gpu.key} has {switch_gen}"
        message = f"fabric_manager.settings: {needs}"
        yield Problem(path=(HERE, "settings", "PARTITION_RAIL_POLICY"), message=message, fix="leave it out")


def contribute(host: HostSpec, block: FabricManager) -> Kernel | None:
    """Return ib_umad at boot if the NVSwitches are reached through it; the spec must name the GPU for that to be known.
    On compute trays return the driver's parameter for IMEX channel 0, under every name that its module has on some
    distribution."""
    if tray.of_tray(block):
        options: dict[str, dict[str, Scalar]] = {name: {catalogue.IMEX_PARAMETER: 1} for name in MODULE_NAMES}
        return Kernel(module_options=options) if block.imex.channel0 else None
    gpu = gpus.find_gpu(host.gpu.model) if host.gpu else None
    return Kernel(modules_load=("ib_umad",)) if gpu and gpu.fabric_manager.nvlsm else None


def export(facts: Facts) -> Fragment | None:
    """Return the enabled daemon: its mode, and the settings that differ from the known defaults."""
    state = facts.get(IMEX)
    if state.file == "enabled" and state.nodes:
        return FabricManager(imex=Imex(nodes=state.nodes, channel0=state.parameter == "1"))
    if facts.get(systemd.SYSTEMD_UNITS)[catalogue.UNIT].file != "enabled":
        return None
    settings, known = facts.get(fabric.DAEMON).settings, catalogue.list_settings()
    mode = next((word for word, number in catalogue.MODES.items() if number == settings.get("FABRIC_MODE", "0")), None)
    own_settings = {
        key: int(value) if is_whole(value) else value
        for key, value in settings.items()
        if key in known
        and known[key].kind != "unit"
        and key != "FABRIC_MODE"
        and value != known[key].default
        and not catalogue.explain_refusal(known[key], value)
    }
    fields = {"fabric_mode": mode or "bare-metal", "settings": own_settings}
    # DCGM without it is a choice of that host's, or a fault; as a spec, `auto` would ask for what it does not have.
    if facts.get(dcgm.PACKAGES) and not [
        n for n in facts.get(fabric.PACKAGES) if n.startswith(tuple(LIBRARIES.values()))
    ]:
        fields["query_library"] = "never"
    block, _ = convert(fields, FabricManager)
    return block if isinstance(block, FabricManager) else None


CAPABILITY = Capability(
    name=HERE,
    summary="Fabric Manager for hosts with NVSwitches, nvidia-imex for trays of a rack: of the driver's version, "
    "held with it, alive",
    fragment=FabricManager,
    ends_with_reset=True,
    checks=(
        *map(tray.on_boards, (*now.CHECKS, *library.CHECKS, preflight.hardware, preflight.subnet_modules)),
        preflight.resolvable,
        *imex.CHECKS,
    ),
    rules=rules,
    fleet_rules=imex.fleet_rules,
    contribute=contribute,
    export=export,
    export_probes=(systemd.SYSTEMD_UNITS, fabric.DAEMON, fabric.PACKAGES, dcgm.PACKAGES, IMEX),
    follows=("nvidia_driver",),
    tasks=TASKS,
    desired=DESIRED,
    resources=RESOURCES,
    packages=True,
    presupposes={
        "held": ("fabric_manager.version",),
        **dict.fromkeys(("files", "enabled"), ("fabric_manager.version", "fabric_manager.imex_version")),
        "active": ("fabric_manager.version", "fabric_manager.imex_version", *LOADED),
        "registered": ("fabric_manager.active", *LOADED),
        "imex_held": ("fabric_manager.imex_version",),
        "imex_alive": ("fabric_manager.active", *LOADED),
        "imex_domain": (
            "fabric_manager.files",
            "fabric_manager.active",
            "fabric_manager.imex_alive",
            "fabric_manager.imex_nodes",
        ),
        "imex_channel": LOADED,
    },
)
