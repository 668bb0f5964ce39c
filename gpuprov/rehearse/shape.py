"""Simulated hosts for a fleet: one for each distinct spec, or one for each host. Nothing is contacted."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from gpuprov.capabilities import CAPABILITIES
from gpuprov.capabilities.container_toolkit.fragment import ContainerToolkit
from gpuprov.capabilities.dcgm.fragment import Dcgm
from gpuprov.capabilities.nvidia_driver.fragment import NvidiaDriver
from gpuprov.catalog import drivers
from gpuprov.catalog.gpus import Gpu, find_gpu
from gpuprov.catalog.packages import list_offers
from gpuprov.catalog.recipes import find_recipe
from gpuprov.core.errors import GpuprovError
from gpuprov.core.sanitize import counted
from gpuprov.host_code.json_members import Json
from gpuprov.plan.read import Pair
from gpuprov.rehearse import shape_engines, shape_rdma
from gpuprov.rehearse.left_out import leave_out
from gpuprov.rehearse.model import Options
from gpuprov.rehearse.real_hosts import is_in_domain, replace_driver_sources
from gpuprov.rules.resolve import upstream
from gpuprov.simulate import distributions, faults, nvml_models
from gpuprov.simulate.description import MOST_GPUS, Description, convert
from gpuprov.simulate.distributions import Distribution
from gpuprov.simulate.parts import nvml
from gpuprov.spec.model import SIMULATED_HOST as VARIABLE
from gpuprov.spec.model import GpuSpec, HostSpec, RawHost

# GPUs on a board with NVSwitches; boards of four have none:
# https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide
BOARD = 8
STANDARD_SUITES = ("bookworm", "bookworm-security", "trixie", "trixie-security")
# Simulated if a spec needs a GPU and names none: the first that its driver can run.
STAND_INS = ("L40S", "A100-SXM4-80GB", "T4", "B200")
LONGEST = 42
NEEDS_GPU = frozenset(capability.name for capability in CAPABILITIES if capability.needs_gpu)


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """A simulated host to be made: the real hosts it stands for, its description, its spec; or why it cannot be
    made."""

    name: str
    hosts: tuple[str, ...]
    raw: RawHost
    spec: HostSpec
    description: Description | None = None
    notes: tuple[str, ...] = ()
    # What the real hosts' spec has beyond this one, with reasons; nobody rehearses it.
    left_out: tuple[str, ...] = ()
    problem: str = ""
    fix: str = ""


def plan_shapes(pairs: Sequence[Pair], options: Options, run: str) -> list[Shape]:
    """Plan the simulated hosts, in the order of the inventory. `run` goes into the names, so that two rehearsals never
    meet."""
    alike: dict[object, list[Pair]] = {}
    for raw, spec in pairs:
        alike.setdefault(raw.name if options.all_hosts else compute_likeness(raw, spec), []).append((raw, spec))
    made: list[Shape] = []
    names: set[str] = set()
    for group in alike.values():
        name = make_name(group[0][0].name, len(group), run, names)
        names.add(name)
        made.append(plan_shape(name, group, options))
    return made


def compute_likeness(raw: RawHost, spec: HostSpec) -> bytes:
    """Key that is equal for hosts that a rehearsal cannot distinguish: all of the spec but its name, groups and
    places."""
    parts = [spec.gpu, spec.reboot, spec.capabilities, spec.site, raw.connection.get(VARIABLE)]
    return msgspec.json.encode(parts, order="sorted")


def plan_shape(name: str, group: Sequence[Pair], options: Options) -> Shape:
    raw, spec = group[0]
    hosts = tuple(raw.name for raw, _ in group)
    try:
        values = read_override(raw, spec, options)
        spec, left = leave_out(spec, values)
        description, notes = describe(raw, spec, values)
        if not spec.capabilities and left:
            message = f"{raw.name}: nothing of its spec can be rehearsed: {'; '.join(left)}"
            raise GpuprovError(message, "rehearse the other hosts, with --limit")
    except GpuprovError as error:
        return Shape(name=name, hosts=hosts, raw=raw, spec=spec, problem=error.message, fix=error.fix)
    if spec.gpu and (spec.gpu.count or 0) > MOST_GPUS and description.gpu:
        gpu = GpuSpec(model=spec.gpu.model, count=description.gpu.count)
        spec = msgspec.structs.replace(spec, gpu=gpu)
    spec = shape_rdma.replace_places(spec, notes)
    spec = replace_driver_sources(spec, notes)
    if is_in_domain(spec):
        notes.append("fabric_manager.imex.nodes: the simulated host is alone in its domain, under its own address")
    return Shape(
        name=name,
        hosts=hosts,
        raw=raw,
        spec=spec,
        description=description,
        notes=tuple(notes),
        left_out=tuple(left),
    )


def read_override(raw: RawHost, spec: HostSpec, options: Options) -> dict[str, Any]:
    """Return `kind` and `distribution` of the simulated host, and what else the inventory says of it."""
    override = raw.connection.get(VARIABLE) or {}
    if not isinstance(override, Mapping):
        raise GpuprovError(
            f'{raw.name}: {VARIABLE} is "{override}"', "allowed: a mapping, e.g. simulated_host: {hcas: 8}"
        )
    kind = options.kind or str(override.get("kind", "container"))
    distribution = options.distribution or (find_own_distribution(spec) if kind == "container" else "") or "debian12"
    values: dict[str, Any] = {"kind": options.kind or "container", "distribution": distribution}
    return values | {key: value for key, value in override.items() if not getattr(options, str(key), "")}


def find_own_distribution(spec: HostSpec) -> str:
    """Find the first distribution of the spec's recipe; empty if Debian is near enough to it, whose userland is
    real."""
    recipe = find_recipe(spec.recipe)
    rows = [entry for entry in distributions.TABLE if recipe and entry.catalogue == recipe.distributions[0]]
    return rows[0].key if rows and rows[0].family != "debian" else ""


def describe(raw: RawHost, spec: HostSpec, values: dict[str, Any]) -> tuple[Description, list[str]]:
    """Describe a host of this spec, and list what had to be assumed. Raises GpuprovError if it cannot be simulated."""
    override: Any = raw.connection.get(VARIABLE) or {}
    place = f"{raw.name}: {VARIABLE}"
    values = dict(values)
    known = choose_distribution(raw, str(values["distribution"]))
    if "gpu" in override:
        notes: list[str] = []
    else:
        gpu, notes = plan_gpus(spec)
        values |= {"gpu": gpu} if gpu else {}
        values |= {"nvswitch": plan_nvswitches(spec, notes)} if "nvswitch" not in override else {}
    if "hcas" not in override:
        count = (values.get("gpu") or {}).get("count", 0)
        values = {**shape_rdma.plan_hcas(spec, count, notes), **values}
    values.setdefault("container_toolkit", "container_toolkit" in spec.capabilities)
    values |= shape_engines.plan_engines(spec, override, notes)
    values.setdefault("cgpu", "cgpu" in spec.capabilities)
    values.setdefault("ofed", shape_rdma.needs_ofed(spec) and not known.rpms)
    if "driver" not in override and (driver := plan_driver(spec, str(values["distribution"]))):
        values["driver"] = driver
        if not known.stands_in:
            notes.append(f"driver {driver} is not {known.key}'s: all its packages are stand-ins")
    if "repositories" not in override and (served := plan_repositories(spec, known)):
        values["repositories"] = served
        notes.append(
            "a stand-in of NVIDIA's repository is served beside the distribution's, which lacks what is asked for"
        )
    notes += [f"{VARIABLE} says {key}" for key in override]
    described = convert(values, place if override else raw.name)
    if known.stands_in:
        notes.append(f"{known.key} is simulated on a Debian userland, with its own package manager")
    faults.check(described)
    _ = nvml.part(raw.name, described)  # raises for a GPU that it has no numbers for
    if described.gpu and (borrowed := nvml_models.explain_unpublished(described.gpu.known)):
        notes.append(borrowed)
    return described, notes


def choose_distribution(raw: RawHost, key: str) -> Distribution:
    try:
        return distributions.find(key)
    except GpuprovError as error:
        raise GpuprovError(f"{raw.name}: {error}", error.fix) from None


def plan_gpus(spec: HostSpec) -> tuple[dict[str, Json], list[str]]:
    """Return the `gpu` of a description, and notes."""
    if spec.gpu is None:
        if not NEEDS_GPU & set(spec.capabilities) and not shape_rdma.needs_board(spec):
            return {}, ["the spec needs no GPU: none is simulated"]
        model = choose_gpu(spec)
        return {"model": model.key}, [f"the spec names no GPU: one {model.key} is simulated"]
    known = find_gpu(spec.gpu.model)
    key = known.key if known else spec.gpu.model
    count = spec.gpu.count
    if count is None:
        count = BOARD if known and known.nvswitch and known.nvswitch.generation else 1
        return {"model": key, "count": count}, [f"the spec names no number of GPUs: {count} simulated"]
    if count > MOST_GPUS:
        return {"model": key, "count": MOST_GPUS}, [
            f"{MOST_GPUS} of {counted(count, 'GPU')} are simulated: the simulation has no more"
        ]
    return {"model": key, "count": count}, []


def choose_gpu(spec: HostSpec) -> Gpu:
    driver = spec.capabilities.get("nvidia_driver")
    requested = driver if isinstance(driver, NvidiaDriver) else NvidiaDriver()
    for model in STAND_INS:
        gpu = find_gpu(model)
        if gpu and (requested.version == "any" or not find_refusal(gpu, requested)):
            return gpu
    fix = f"name the GPU in the spec (gpu: {{model: ...}}), or in {VARIABLE}"
    raise GpuprovError(f"{spec.name}: none of {', '.join(STAND_INS)} runs with driver {requested.version}", fix)


def find_refusal(gpu: Gpu, driver: NvidiaDriver) -> str | None:
    flavour = driver.kernel_modules
    chosen = drivers.choose_kernel_modules(gpu, driver.version) if flavour == "auto" else flavour
    return drivers.explain_refusal(gpu, driver.version, chosen)


def plan_nvswitches(spec: HostSpec, notes: list[str]) -> int:
    known = find_gpu(spec.gpu.model) if spec.gpu else None
    if spec.gpu is None or known is None or known.nvswitch is None:
        return 0
    generation = known.nvswitch.generation
    if not generation:
        notes.append(f"the NVSwitches of {known.key} are not PCI functions that could be simulated")
        return 0
    if (spec.gpu.count or BOARD) < BOARD:
        notes.append(
            f"fewer than {BOARD} GPUs: taken for a board without NVSwitches ({VARIABLE}: {{nvswitch: {generation}}})"
        )
        return 0
    return generation


def plan_driver(spec: HostSpec, distribution: str) -> str:
    """Return what the host's repository must offer beyond the distribution's own driver."""
    driver = spec.capabilities.get("nvidia_driver")
    if not isinstance(driver, NvidiaDriver) or driver.version == "any":
        return ""
    matching = [offer for offer in list_offers(distribution, "nvidia-driver") if offer.suite in STANDARD_SUITES]
    versions = {upstream(offer.version) for offer in matching}
    known_versions = versions | {drivers.derive_branch(version) for version in versions}
    return "" if driver.version in known_versions else driver.version


def plan_repositories(spec: HostSpec, known: Distribution) -> list[str]:
    """Return the repositories to serve if the spec takes the driver from another source than a simulated host of this
    distribution has, or what Ubuntu's archive has not."""
    driver = spec.capabilities.get("nvidia_driver")
    from_nvidia = isinstance(driver, NvidiaDriver) and driver.source in ("nvidia", "mirror")
    beside = any(isinstance(block, ContainerToolkit | Dcgm) for block in spec.capabilities.values())
    from_nvidia |= known.id == "ubuntu" and beside
    if not from_nvidia or "nvidia" in known.default_repositories:
        return []
    # a distribution's separate archive of a driver is not there before somebody adds it
    return ["nvidia"] if known.driver_source else [*known.default_repositories, "nvidia"]


def make_name(host: str, count: int, run: str, taken: set[str]) -> str:
    """Make a name such as `re-1f3a-train01-x4`: unique, and a host name."""
    end = f"-x{count}" if count > 1 else ""
    short = re.sub(r"[^a-z0-9]+", "-", host.partition(".")[0].lower()).strip("-") or "host"
    number = 1
    while True:
        tail = end + (f"-{number}" if number > 1 else "")
        name = f"re-{run}-{short}"[: LONGEST - len(tail)].rstrip("-") + tail
        if name not in taken:
            return name
        number += 1
