"""The typed model of a host spec. A fragment is the configuration of one capability; defaults live here and nowhere
else."""

import re
from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal, TypeAlias

import msgspec

from gpuprov.spec.described import describe
from gpuprov.spec.problem import Origin, Path

SECRET = re.compile(
    r"pass(word|wd|phrase)?\Z|_pass_|secret|token|private_key(?!_file)|_key_content|credential", re.IGNORECASE
)
Reboot = Literal["never", "if-needed"]
OnFailure = Literal["nothing", "rollback"]

# SHA-256 of a file that the spec names.
Sha256 = Annotated[
    str, describe("the 64 hexadecimal digits of sha256sum, required with url and file", pattern=r"^([0-9A-Fa-f]{64})?$")
]


class Fragment(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of every block in a spec: immutable, closed (an unknown key is an error). A block inside a block is
    requested as soon as it is present."""

    # By its name, the field beside it that it decides, and how.
    IMPLIES: ClassVar[Mapping[str, tuple[str, str]]] = {}
    # Its value for itself unless set.
    WHEN_PRESENT: ClassVar[Mapping[str, object]] = {}
    # The fields without which it would request nothing.
    ONE_OF: ClassVar[tuple[str, ...]] = ()


class GpuSpec(Fragment, frozen=True):
    """The expected GPUs of the host; lets `check` judge the spec before any host is touched."""

    model: Annotated[
        str,
        describe(
            "a key of `gpuprov catalog gpus`, a product name, an instance type (p5.48xlarge) or a PCI id. An "
            "instance type says the count, and the fabric of an rdma that names none"
        ),
    ]
    count: Annotated[int, describe("How many such GPUs the host has", ge=1, le=64)] | None = None


class HostSpec(msgspec.Struct, frozen=True, kw_only=True):
    """The desired state of one host: the merged `gpuprov` variable, typed.

    `capabilities` holds a fragment for each requested block, in apply order, `kernel` already merged with the other
    capabilities' contributions. `recipe`: the key of the one that `check` compares it with. `origins` says where each
    value was written, `site` which of SITE_VARIABLES are set, `defects` where gpuprov itself failed while judging the
    spec: the message, and what to report.
    """

    name: str
    groups: tuple[str, ...] = ()
    gpu: GpuSpec | None = None
    reboot: Reboot = "never"
    on_failure: OnFailure = "nothing"
    recipe: str = ""
    capabilities: dict[str, Fragment] = {}
    origins: dict[Path, Origin] = {}
    site: dict[str, object] = {}
    defects: tuple[tuple[str, str], ...] = ()


# The SITE_VARIABLES that are set, by name, with their values as Ansible has them.
Site: TypeAlias = Mapping[str, object]
# Variables of a site beside `gpuprov`, outside of any spec: the names in the roles' defaults, compared by a contract
# test.
SITE_VARIABLES = frozenset(
    {
        "cgpu_module_timeout",
        "container_toolkit_repository",
        "container_toolkit_repository_key",
        "host_free_space",
        "host_gpu_services",
        "host_kubernetes_node",
        "host_max_clock_skew",
        "host_package_bundle",
        "host_package_lists_max_age",
        "host_package_lock_timeout",
        "host_reboot_timeout",
        "host_slurm_node",
        "nvidia_driver_manage_repository",
    }
)

# Blocks of a spec: the names of the capabilities, which a contract test compares with the registry.
BLOCKS = frozenset(
    {
        "acceptance",
        "cgpu",
        "container_toolkit",
        "cuda_toolkit",
        "dcgm",
        "fabric_manager",
        "gds",
        "gpu_settings",
        "gpudirect_rdma",
        "health",
        "hpc",
        "kernel",
        "kubernetes",
        "mig",
        "mps",
        "nouveau",
        "nvidia_absent",
        "nvidia_driver",
        "passthrough",
        "pcie",
        "persistence",
        "rdma",
        "readings",
        "scratch",
        "slurm",
        "topology",
        "vgpu_guest",
    }
)

# The site variable for the folder on the host that apt takes packages from, and from nowhere else.
PACKAGE_BUNDLE = "host_package_bundle"

# The site variable for the simulated host that replaces a host in `gpuprov rehearse`: fields of its description.
SIMULATED_HOST = "simulated_host"

# The site variable for a host's rack: pages group hosts by it.
RACK = "gpuprov_rack"


class RawHost(msgspec.Struct, frozen=True, kw_only=True):
    """A host from the inventory: `gpuprov` merged along the groups, nothing judged yet.

    `values` are plain Python values. `origins` maps the path of each key or list item to the place it was written.
    `connection` holds the host's `ansible_*` connection variables, SITE_VARIABLES, SIMULATED_HOST and RACK, templated;
    `places`, where SITE_VARIABLES, addresses, ports and users were written, if known.
    """

    name: str
    groups: tuple[str, ...] = ()
    values: dict[str, object] = {}
    origins: dict[Path, Origin] = {}
    connection: dict[str, object] = {}
    places: dict[str, Origin] = {}


def is_secret(variable: str) -> bool:
    """True if a connection variable's value must not be written to a file or a log, by its name."""
    return SECRET.search(variable) is not None


def is_connection(variable: str) -> bool:
    """True if a host's variable is kept beside its spec."""
    return variable.startswith("ansible_") or variable in (*SITE_VARIABLES, SIMULATED_HOST, RACK)


def select_site_variables(connection: dict[str, object]) -> dict[str, object]:
    """Return the SITE_VARIABLES among a host's variables."""
    return {name: value for name, value in connection.items() if name in SITE_VARIABLES}
