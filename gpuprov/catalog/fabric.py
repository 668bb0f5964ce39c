"""NVSwitch boards and Fabric Manager: the hardware that requires it, its packages, its settings."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from ipaddress import AddressValueError, IPv4Address

from gpuprov.catalog import instances
from gpuprov.catalog.distributions import find_distribution
from gpuprov.catalog.drivers import list_branches
from gpuprov.catalog.drivers.data import Setting, read_drivers_file
from gpuprov.catalog.gpus import Gpu, list_gpus
from gpuprov.catalog.packages import list_origins, list_package_sets
from gpuprov.core.safe_parse import is_whole
from gpuprov.rules import followers
from gpuprov.rules.package_lists import Rule
from gpuprov.rules.resolve import Rules

UNIT = "nvidia-fabricmanager.service"
PROGRAM = "/usr/bin/nv-fabricmanager"
IMEX_UNIT = "nvidia-imex.service"
IMEX_PROGRAM = "/usr/bin/nvidia-imex"
IMEX_CONFIG, IMEX_NODES = "/etc/nvidia-imex/config.cfg", "/etc/nvidia-imex/nodes_config.cfg"
IMEX_DROP_IN = f"/etc/systemd/system/{IMEX_UNIT}.d/90-gpuprov.conf"
# https://docs.nvidia.com/multi-node-nvlink-systems/imex-guide
IMEX_CHANNEL, IMEX_PARAMETER = "/dev/nvidia-caps-imex-channels/channel0", "NVreg_CreateImexChannel0"
# The first branch whose module has it: nv-reg.h of https://github.com/NVIDIA/open-gpu-kernel-modules
IMEX_PARAMETER_SINCE = 565
# Settings in config.cfg that nvidia-imex-ctl needs to report the state of a whole domain; 50005 is the guide's own
# port.
IMEX_SETTINGS = {"IMEX_NODE_CONFIG_FILE": IMEX_NODES, "IMEX_CMD_ENABLED": "1", "IMEX_CMD_PORT": "50005"}
# Names of FABRIC_MODE in a spec: https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide
MODES = {"bare-metal": "0", "shared-nvswitch": "1", "vgpu": "2"}

# From generation 4 on the switches are not PCI functions; the bridges to them are ConnectX-7 functions with this word
# in their VPD, an InfiniBand subnet manager of their own works through them, and it needs these:
# https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide
BRIDGED_GENERATION = 4
SUBNET_PACKAGES = {
    "debian": ("nvlsm", "libibumad3", "infiniband-diags"),
    "redhat": ("nvlsm", "libibumad", "infiniband-diags"),
    "suse": ("nvlsm", "libibumad3", "infiniband-diags"),
}
# mlx5_ib: https://github.com/NVIDIA/gpu-operator/issues/2781
SUBNET_MODULES = ("mlx5_core", "mlx5_ib", "ib_umad")
# The first generation whose GPUs register with the fabric, which nvidia-smi shows, and must be reset when the daemon
# restarts.
REGISTERS_SINCE = 3
# The library through which DCGM reads NVSwitches, by their generation. No document says that NSCQ supports generation
# 1 (HGX-2): https://docs.nvidia.com/datacenter/dcgm/latest/installation.html (NVSwitch on HGX A100 and newer),
# https://docs.nvidia.com/datacenter/tesla/nvsdm/introduction.html (Blackwell)
LIBRARY = {2: "nscq", 3: "nscq", 4: "nvsdm"}
# GPUs on an NVSwitch board.
BOARD = 8
NO_LIMIT = 9999


@cache
def list_switches() -> dict[str, int]:
    """Return the generation of each NVSwitch that is a PCI function, by its id (`10de:22a3`)."""
    ids = (gpu.nvswitch for gpu in list_gpus() if gpu.nvswitch and gpu.nvswitch.pci_id)
    return {switch.pci_id: switch.generation for switch in ids if switch.generation}


def find_generation(pci_ids: list[str], *, bridged: bool) -> int:
    """Return the generation of a host's NVSwitches, from the functions on its bus or its bridges; 0 if it has none."""
    known = [list_switches()[identifier] for identifier in pci_ids if identifier in list_switches()]
    return max(known, default=BRIDGED_GENERATION if bridged else 0)


def count_most(gpu: Gpu) -> int:
    """Return the most of these GPUs that a host is known to have; 0 if unknown."""
    # Boards of older generations come in pairs: https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide
    if gpu.nvswitch and (gpu.nvswitch.generation or 0) >= REGISTERS_SINCE:
        return BOARD
    return instances.count_most(gpu.key) if gpu.fabric_manager.imex else 0


def explain_absence(gpu: Gpu) -> str:
    """Return the reason why hosts with this GPU have nothing that Fabric Manager could manage; "" if they may have."""
    if gpu.fabric_manager.imex:
        return f"the NVLink switches of {gpu.key} are in its rack, not in the host: it needs nvidia-imex instead"
    if gpu.fabric_manager.needed == "never":
        return f"{gpu.key} ({gpu.form_factor}) sits on no NVSwitch board"
    return ""


@cache
def build_rules(os_id: str, version_id: str, part: str = "fabric-manager") -> tuple[Rule, ...]:
    """Return the package's names on a distribution (`part` imex: nvidia-imex's), for `gpuprov.rules.resolve`: `name`
    with {branch}, `min` and `max` branch, and `needs`, a package of the driver of one archive, if it only goes with
    that."""
    distribution = find_distribution(os_id, version_id)
    if distribution is None:
        return ()
    rows: dict[tuple[str, int, int, str], None] = {}
    for origin in list_origins(distribution.key):
        for branch in list_branches():
            for entry in list_package_sets(distribution.key, part, branch.branch, origin=origin.key):
                bounds = int(entry.min_branch or 0), int(entry.max_branch or NO_LIMIT)
                rows |= {(name, *bounds, entry.needs): None for name in entry.packages}
    return tuple(
        Rule(name=n, min=low, max=high, needs=pkg) if pkg else Rule(name=n, min=low, max=high)
        for n, low, high, pkg in rows
    )


def list_names(os_id: str, version_id: str, part: str = "fabric-manager") -> tuple[str, ...]:
    """Return every name that the package has for some branch, for looking it up in an index."""
    known = [int(branch.branch) for branch in list_branches()]
    by_platform = {
        rule["name"].replace("{branch}", str(branch)): None
        for rule in build_rules(os_id, version_id, part)
        for branch in known
        if rule["min"] <= branch <= rule["max"]
    }
    return tuple(by_platform)


@cache
def read_libraries() -> dict[str, str]:
    """Return the catalogue's part with the library through which DCGM reads a board's NVSwitches, by the GPU's PCI
    ID."""
    boards = [(gpu, LIBRARY.get(gpu.nvswitch.generation or 0, "")) for gpu in list_gpus() if gpu.nvswitch]
    return {entry.id: part for gpu, part in boards if part for entry in gpu.pci_ids}


def list_beside(
    capabilities: Mapping[str, object], gpu_ids: Callable[[], Sequence[str]], os_id: str, version_id: str
) -> tuple[tuple[Rules, tuple[str, ...]], ...]:
    """Return the packages with their own names that a spec with these blocks requests in the driver's version, on a
    host with these GPUs: the rules and all names of each."""
    block = capabilities.get(followers.FABRIC_MANAGER)
    if block is None:
        return ()
    imex, query = getattr(block, "imex", None), str(getattr(block, "query_library", "never"))
    parts = ["fabric-manager"]
    if imex and (imex.nodes or imex.service == "disabled"):  # in place of Fabric Manager
        parts = ["imex"]
    elif followers.wants_library(query, capabilities) and (part := find_library(gpu_ids())):
        # A distribution may have no such package. Nobody named it in the spec, so that nothing is missing.
        parts += [part] if query == "always" or build_rules(os_id, version_id, part) else []
    return tuple((build_rules(os_id, version_id, part), list_names(os_id, version_id, part)) for part in parts)


def find_library(gpus: Iterable[str]) -> str:
    """Return the library for boards with these GPUs (`10de:2330`): a key of `followers.LIBRARIES`; empty if none is
    known."""
    known = read_libraries()
    return next((known[gpu] for gpu in gpus if gpu in known), "")


def get_configuration_file() -> str:
    """The path of fabricmanager.cfg."""
    files = (f for f in read_drivers_file().files if (f.component, f.what) == ("fabric-manager", "configuration"))
    return next(files).path


@cache
def list_settings() -> dict[str, Setting]:
    """The keys of fabricmanager.cfg."""
    return {entry.key: entry for entry in read_drivers_file().settings if entry.component == "fabric-manager"}


def explain_refusal(entry: Setting, value: str) -> str:
    """Return the permitted values of this key if this value is not one of them; "" otherwise."""
    if entry.kind == "choice":
        return "" if value in entry.choices else " or ".join(entry.choices)
    if entry.kind == "number":
        fits = is_whole(value) and (entry.max is None or int(value) <= entry.max)
        return "" if fits else f"a whole number from 0{'' if entry.max is None else f' to {entry.max}'}"
    if entry.kind == "path":
        return (
            "" if re.fullmatch(r"(/[^\s#]{0,254})?", value) else "an absolute path of at most 255 characters, or empty"
        )
    try:
        IPv4Address(value)
    except AddressValueError:
        return "an IPv4 address"
    return ""
