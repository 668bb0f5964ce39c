"""NCCL's variables, for detecting misspelled ones, and the files that it reads them from."""

import difflib
from functools import partial

from gpuprov.catalog.reader import Fact, File, Note, load

CONFIG = "/etc/nccl.conf"
# Variables that gpuprov writes itself, and the field of `rdma.nccl` for each; NCCL_IB_DISABLE follows from the devices.
FIELDS = {
    "NCCL_IB_HCA": "devices of rdma",
    "NCCL_IB_DISABLE": "",
    "NCCL_IB_GID_INDEX": "gid",
    "NCCL_IB_ADDR_FAMILY": "addr_family",
    "NCCL_IB_ADDR_RANGE": "addr_range",
    "NCCL_IB_ROCE_VERSION_NUM": "roce_version",
    "NCCL_IB_TC": "traffic_class",
    "NCCL_IB_SL": "service_level",
    "NCCL_SOCKET_IFNAME": "socket_ifname",
    "NCCL_NET_GDR_LEVEL": "gdr_level",
    "NCCL_IB_PCI_RELAXED_ORDERING": "relaxed_ordering",
    "NCCL_COLLNET_ENABLE": "sharp",
    "NCCL_NET_PLUGIN": "net_plugin",
    "NCCL_TOPO_FILE": "topo_file",
}

# Values of NCCL_NET that are networks of NCCL's own.
# https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html, NCCL_NET and NCCL_ALGO; that CollNet is looked for
# in the network of that name alone: https://github.com/NVIDIA/nccl/blob/master/src/plugin/net.cc
OWN_NETWORKS = ("IB", "SOCKET")
# How the values of NCCL_ALGO begin that have switches reduce.
SWITCH_ALGORITHMS = ("collnet", "nvls")


class Variables(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Variables for a system's configuration, and those that the documentation lists as for debugging."""

    system: tuple[str, ...]
    debugging: tuple[str, ...]


class NcclFile(File, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """data/nccl.yaml"""

    files: tuple[Note, ...]
    variables: Variables


read_nccl_file = partial(load, "nccl", NcclFile)


def list_documented() -> frozenset[str]:
    """Every variable that NCCL's documentation names."""
    known = read_nccl_file().variables
    return frozenset((*known.system, *known.debugging))


def find_nearest(name: str) -> str:
    """Return the documented variable that was probably meant by an undocumented one; "" if none."""
    if name in list_documented():
        return ""
    return next(iter(difflib.get_close_matches(name, sorted(list_documented()), n=1, cutoff=0.88)), "")
