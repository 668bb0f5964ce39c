"""AWS's Elastic Fabric Adapter: the installer's versions, devices by instance type, variables that do harm."""

from functools import partial

from gpuprov.catalog.rdma.installers import Installer, Published
from gpuprov.catalog.reader import Fact, load

CACHE = "/var/cache/gpuprov/efa"
# Maximum size of an installer in bytes; AWS's have several hundred MiB.
MOST = 4 << 30
# The folder into which the installer puts aws-ofi-nccl.
PLUGIN = "/opt/amazon/ofi-nccl"


class Instance(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The number of EFA devices that an instance type can have."""

    type: str
    devices: int


class Harmful(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A variable that is harmful with a value of this pattern (empty: any)."""

    name: str
    value: str
    text: str


class EfaFile(Published, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """data/efa.yaml"""

    instances: tuple[Instance, ...]
    harmful: tuple[Harmful, ...]


read_efa_file = partial(load, "efa", EfaFile)


def find_installer(version: str) -> Installer | None:
    """A published version."""
    return read_efa_file().find(version)


def count_devices(instance: str) -> int:
    """Return how many EFA devices an instance of this type can have; 0 if unknown."""
    return next((entry.devices for entry in read_efa_file().instances if entry.type == instance), 0)
