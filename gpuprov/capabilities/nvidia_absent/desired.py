"""The desired state of the role: what goes, and in which steps."""

from collections.abc import Iterable, Iterator

from gpuprov.capabilities.base import Desired, Resources
from gpuprov.capabilities.nvidia_absent.fragment import NvidiaAbsent
from gpuprov.capabilities.nvidia_absent.host import BROUGHT, Ctx, find_family, has_runfile, list_loaded, list_software
from gpuprov.capabilities.nvidia_absent.now import holds_driver
from gpuprov.capabilities.nvidia_absent.tasks import TASKS
from gpuprov.capabilities.package_sources import CONTAINER_TOOLKIT, DRIVER
from gpuprov.capabilities.steps import Step, hand_steps
from gpuprov.catalog import mps
from gpuprov.catalog.software import build_software_pattern, list_beside
from gpuprov.facts.probes.driver.driver_packages import HELD_KERNELS, KERNELS_HELD
from gpuprov.facts.probes.driver.leftovers import UNITS
from gpuprov.facts.probes.driver.runfile import OURS, RUNFILE
from gpuprov.facts.probes.host import system
from gpuprov.facts.probes.host.family import FAMILIES, Family
from gpuprov.facts.probes.kernel import initramfs, modules
from gpuprov.facts.probes.software.packages import PACKAGES
from gpuprov.host_code import sources
from gpuprov.host_code.driver.loaded import STACK
from gpuprov.host_code.json_members import Json
from gpuprov.resources import Absent, Resource, role_values
from gpuprov.spec.model import HostSpec

BACK = "they would bring NVIDIA's software back, for a package that depends on it"
FIX = "remove by hand what stands in the way, as the package manager names it, then apply again"


def _list_paths(kind: Family) -> Iterator[str]:
    for name in (DRIVER, CONTAINER_TOOLKIT):
        yield from (sources.derive_path(name, kind), sources.get_key_path(name, kind))


def desired(ctx: Ctx) -> Iterable[Resource]:
    """Yield gpuprov's own records and package sources of the driver and the container toolkit, which go."""
    return [Absent(path) for path in (HELD_KERNELS, OURS, *_list_paths(find_family(ctx.facts)))]


def list_paths(_host: HostSpec, _block: NvidiaAbsent) -> list[str]:
    """Return the paths of all families."""
    return [HELD_KERNELS, OURS, *(path for kind in FAMILIES for path in _list_paths(kind))]


def make(ctx: Ctx) -> dict[str, Json]:
    """Return the role's values: one transaction that removes all packages, and what is released with it."""
    going, kernels = list_software(ctx.facts), list(ctx.facts.get(KERNELS_HELD))
    known, kind = ctx.facts.get(PACKAGES), find_family(ctx.facts)
    held = [name for name in going if (package := known.get(name)) and package.held]
    return {
        "of": "the removal of NVIDIA's software",
        "fix": FIX,
        "refuse": {"patterns": [build_software_pattern(kind).pattern], "why": BACK, "fix": FIX} if going else {},
        "remove": list(going),
        "may_remove": list(list_beside()) if going else [],
        "release": [*held, *kernels],
        **role_values(desired(ctx), "absent"),
        "tasks": hand_steps(_list_steps(ctx), TASKS),
    }


def _list_steps(ctx: Ctx) -> Iterator[Step]:
    current, loaded = ctx.facts.get(RUNFILE), list_loaded(ctx.facts)
    images = [image.image for image in ctx.facts.get(initramfs.INITRAMFS) if holds_driver(image)]
    container = ctx.facts.get(system.CONTAINER)
    yield Step("unload_first", {}, loaded, needs={"gpus-free": "stop"})
    uninstaller = {"path": next(iter(current.programs), ""), "version": current.version}
    yield Step("uninstall", uninstaller, has_runfile(ctx.facts) and current.programs)
    yield Step("unload", {"modules": [] if container else list(STACK)})
    yield Step("forget", {"wanted": False})
    yield Step("images", {"images": images}, images)
    yield Step("start", {"leave": [*ctx.facts.get(UNITS), mps.UNITS], "tolerant": True})


RESOURCES = Resources(desired, list_paths, (system.OS_RELEASE,))
DESIRED = Desired(
    (*BROUGHT, PACKAGES, KERNELS_HELD, UNITS, modules.LOADED, initramfs.INITRAMFS, system.CONTAINER),
    make,
)
