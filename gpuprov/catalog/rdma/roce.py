"""RoCE: the location of gpuprov's port settings on a host, and the known facts about each setting."""

from functools import partial

from gpuprov.catalog.reader import Fact, File, load
from gpuprov.host_code.at_boot import roce as program

CONFIG = program.CONFIG

UNIT = "gpuprov-roce.service"
# RoCE v2's, ROCE_V2_UDP_DPORT of include/rdma/ib_verbs.h in the kernel.
UDP_PORT = 4791
# Seconds that the unit waits at boot for the devices and their network interfaces.
WAIT = 60


class Setting(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A setting of the block: the interface that sets it with NVIDIA's OFED, and with the kernel's own drivers (empty:
    none)."""

    key: str
    ofed: str
    inbox: str = ""


class RoceFile(File, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """data/roce.yaml"""

    settings: tuple[Setting, ...]


read_roce_file = partial(load, "roce", RoceFile)


def get_setting(key: str) -> Setting:
    """Return the facts about a setting."""
    return next(entry for entry in read_roce_file().settings if entry.key == key)
