"""The `fabric_manager` block, and what follows from it on a given host."""

from typing import Annotated, Literal

import msgspec

from gpuprov.catalog import fabric as catalogue
from gpuprov.catalog.distributions import list_managed
from gpuprov.catalog.drivers.any import find_installed_driver
from gpuprov.facts.probes.base import Facts, ProbeFailed
from gpuprov.facts.probes.driver import nvidia
from gpuprov.facts.probes.gpus import fabric
from gpuprov.facts.probes.host import pci, system
from gpuprov.facts.probes.software.packages import PACKAGES, Package
from gpuprov.rules import followers, resolve
from gpuprov.rules.package_lists import Rule
from gpuprov.spec.described import describe
from gpuprov.spec.model import Fragment, HostSpec

SettingName = Annotated[str, describe("a key of fabricmanager.cfg: letters, digits and _", pattern=r"^[A-Za-z0-9_]+$")]
SettingValue = (
    bool | int | Annotated[str, msgspec.Meta(pattern=r"^[^\s\"'#|]*$", description="text without spaces and quotes")]
)


class Imex(Fragment, frozen=True):
    """The IMEX domain of a compute tray whose NVLink switches are in its rack (GB200, GB300): there is no Fabric
    Manager on it."""

    ONE_OF = ("nodes", "service")

    nodes: Annotated[
        tuple[Annotated[str, describe('an IP address in quotes: "192.0.2.17"', pattern=r"^[0-9A-Fa-f:.]+$")], ...],
        describe(
            "IP addresses of all members, this host among them; the same list in the same order on each; empty: none"
        ),
    ] = ()
    service: Annotated[
        Literal["enabled", "disabled"],
        describe(
            "disabled: nvidia-imex is installed and held, and its unit off, as Kubernetes' ComputeDomains want it, "
            "which start a daemon of their own in a container; then there are no nodes"
        ),
    ] = "enabled"
    channel0: Annotated[
        bool, describe("whether the driver makes IMEX channel 0, which every user may open, when it is loaded")
    ] = True


class FabricManager(Fragment, frozen=True):
    """NVIDIA Fabric Manager of exactly the driver's version, enabled and running; with NVLSM if the NVSwitches need it.

    On compute trays of a rack, nvidia-imex is installed, held, enabled and running instead of Fabric Manager.

    Hosts without NVSwitches are refused, and compute trays without an IMEX domain. A running daemon is replaced or
    restarted only while no user's process holds a GPU.
    """

    fabric_mode: Annotated[
        Literal["bare-metal", "shared-nvswitch", "vgpu"],
        describe(
            "FABRIC_MODE of fabricmanager.cfg. bare-metal is also for full passthrough; shared-nvswitch and "
            "vgpu are for hosts of virtual machines that share the NVSwitches"
        ),
    ] = "bare-metal"
    settings: Annotated[
        dict[SettingName, SettingValue],
        describe(
            "further keys of fabricmanager.cfg with their values, e.g. FM_STAY_RESIDENT_ON_FAILURES; those "
            "that are not named stay as the package has them"
        ),
    ] = {}
    query_library: Annotated[
        Literal["auto", "always", "never"],
        describe(
            "the library by which DCGM reads NVSwitches, of the driver's version: libnvidia-nscq for A100, H100 and "
            "H200, libnvsdm for B200 and B300; auto: where the spec has dcgm"
        ),
    ] = "auto"
    imex: Annotated[
        Imex,
        describe(
            "the members of the IMEX domain of a compute tray of a GB200 or GB300 rack. With nodes, nvidia-"
            "imex takes the place of Fabric Manager"
        ),
    ] = Imex()


HARDWARE_PROBES = (pci.NVIDIA_FUNCTIONS, fabric.BRIDGES)
DRIVER_PROBES = (system.OS_RELEASE, PACKAGES, nvidia.DRIVER)


def generation(facts: Facts) -> int:
    """Return the generation of the host's NVSwitches; 0 if it has none."""
    functions = [function.identifier for function in facts.get(pci.NVIDIA_FUNCTIONS)]
    return catalogue.find_generation(functions, bridged=bool(facts.get(fabric.BRIDGES)))


def wanted_settings(fragment: FabricManager) -> dict[str, str]:
    """Return the lines that fabricmanager.cfg should have."""
    own_settings = {key: written(value) for key, value in fragment.settings.items()}
    return {"FABRIC_MODE": catalogue.MODES[fragment.fabric_mode]} | own_settings


def written(value: object) -> str:
    """Return a setting's value as fabricmanager.cfg has it: 1 and 0 for true and false."""
    return str(int(value)) if isinstance(value, bool) else str(value)


def rules(facts: Facts, part: str = "fabric-manager") -> tuple[Rule, ...]:
    """Return the package's names on this host's distribution; `part` imex: nvidia-imex's; nscq, nvsdm: the
    library's."""
    release = facts.get(system.OS_RELEASE)
    matched = catalogue.build_rules(release.id, release.version, part)
    if not matched:
        what = {"imex": "nvidia-imex", **followers.LIBRARIES}.get(part, "Fabric Manager")
        known = ", ".join(
            entry.key for entry in list_managed() if catalogue.build_rules(entry.id, entry.version_id, part)
        )
        message = f"no {what} packages are known for {release.name or release.id}"
        raise ProbeFailed(message, f"take fabric_manager out of the spec; known for: {known}")
    return matched


def package(facts: Facts, part: str = "fabric-manager") -> Package | None:
    """Return the installed Fabric Manager, nvidia-imex, or library for DCGM; the highest version if there are
    several."""
    present = facts.get(fabric.PACKAGES)
    names = resolve.other_names(rules(facts, part), {name: package.version for name, package in present.items()})
    return max((present[name] for name in names), key=lambda candidate: resolve.order(candidate.version), default=None)


def driver_version(facts: Facts) -> str:
    """Return the version of the installed driver: of its kernel modules' package, else of the loaded module; empty if
    there is none."""
    release = facts.get(system.OS_RELEASE)
    installed = {name: package.version for name, package in facts.get(PACKAGES).items()}
    version = find_installed_driver(release.id, release.version, installed)
    return resolve.upstream(version) if version else facts.get(nvidia.DRIVER).version


def library_part(host: HostSpec, facts: Facts) -> str:
    """Return the part of the catalogue with the library that the host should have for DCGM: nscq or nvsdm; empty for
    none."""
    block = host.capabilities.get(followers.FABRIC_MANAGER)
    if not followers.wants_library(str(getattr(block, "query_library", "never")), host.capabilities):
        return ""
    on_bus = [gpu.identifier for gpu in pci.gpus(facts.get(pci.NVIDIA_FUNCTIONS))]
    return catalogue.find_library(on_bus)


def held_packages(facts: Facts, part: str) -> dict[str, Package]:
    """Return Fabric Manager, NVLSM, and the library that DCGM needs (`part`), none of which may move without the
    driver."""
    present = facts.get(fabric.PACKAGES)
    names = [candidate.name for candidate in (package(facts), package(facts, part) if part else None) if candidate]
    return {name: present[name] for name in [*names, "nvlsm"] if name in present}


def hold(host: HostSpec) -> bool:
    """Return whether the driver's set is held; Fabric Manager is part of it."""
    return bool(getattr(host.capabilities.get("nvidia_driver"), "hold", True))


def driver_wanted(host: HostSpec) -> str:
    """Return the driver version that the spec asks for; empty if it asks for none."""
    return str(getattr(host.capabilities.get("nvidia_driver"), "version", ""))
