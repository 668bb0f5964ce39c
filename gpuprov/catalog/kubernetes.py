"""GPUs in Kubernetes: labels of nodes, limits of sharing, and the files that a node's values are rendered to."""

import re
from collections.abc import Iterable
from functools import partial

from gpuprov.catalog.gpus import Gpu
from gpuprov.catalog.reader import Fact, File, load

DEVICE_PLUGIN = "device-plugin.yaml"
PLUGIN_VALUES = "device-plugin-values.yaml"
OPERATOR_VALUES = "gpu-operator-values.yaml"
MIG_CONFIG = "mig-parted.yaml"
RUNTIME_CLASS = "runtimeclass.yaml"
NODE_LABELS = "node-labels.yaml"
SUMMARY = "allocatable.yaml"
HAMI_VALUES = "hami-values.yaml"
GPUSHARE_VALUES = "gpushare-values.yaml"
DRA_VALUES = "dra-driver-values.yaml"
# Every file that can be rendered; files that a spec does not request are removed.
FILES = (
    *(DEVICE_PLUGIN, PLUGIN_VALUES, OPERATOR_VALUES, MIG_CONFIG, RUNTIME_CLASS, NODE_LABELS, SUMMARY),
    *(HAMI_VALUES, GPUSHARE_VALUES, DRA_VALUES),
)
PLUGIN_CONFIG, MIG_LABEL, MPS_CAPABLE = (
    "nvidia.com/device-plugin.config",
    "nvidia.com/mig.config",
    "nvidia.com/mps.capable",
)
HAMI_NODE, GPUSHARE_NODE, GPU_PRESENT = "gpu", "gpushare", "nvidia.com/gpu.present"
DRA_DRIVER = "gpu.nvidia.com"
# Name of the layout of `mig` in the MIG manager's ConfigMap.
LAYOUT = "gpuprov"
MIN_REPLICAS = 2


class Label(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A label that something in the cluster uses."""

    key: str
    meaning: str


class Replicas(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The replicas that the plugin allows with MPS, from a compute capability on."""

    compute_capability: str
    replicas: int


class Clients(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The clients that MPS supports per device, from a driver branch on."""

    branch: str
    clients: int


class Allowed(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A label under kubernetes.io that a kubelet may set on its own node; `*` stands for any name."""

    key: str


class DraNeeds(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The oldest releases that the DRA driver works with: of Kubernetes, of the GPU's driver, and of that with
    ComputeDomains."""

    kubernetes: str
    driver: str
    domain_driver: str


class Gate(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A feature gate of the DRA driver."""

    key: str
    default: bool = False
    excludes: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()


class KubernetesFile(File, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """data/kubernetes.yaml"""

    labels: tuple[Label, ...]
    plugin_replicas: tuple[Replicas, ...]
    mps_clients: tuple[Clients, ...]
    kubelet_labels: tuple[Allowed, ...]
    dra_needs: tuple[DraNeeds, ...]
    dra_gates: tuple[Gate, ...]


read_kubernetes_file = partial(load, "kubernetes", KubernetesFile)


def parse_number(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text))


def find_replica_limit(gpus: Iterable[Gpu], branch: int = 0) -> tuple[int, str]:
    """Return the maximum number of replicas with the plugin's MPS on all of these GPUs with a driver of this branch (0:
    unknown), and the reason."""
    rows = sorted(read_kubernetes_file().plugin_replicas, key=lambda row: parse_number(row.compute_capability))
    limit, why = rows[-1].replicas, "the device plugin's own limit"
    for gpu in gpus:
        fitting = [row for row in rows if parse_number(row.compute_capability) <= parse_number(gpu.compute_capability)]
        if fitting and fitting[-1].replicas < limit:
            limit, why = fitting[-1].replicas, f"the device plugin's limit for {gpu.key}"
    clients = [row.clients for row in read_kubernetes_file().mps_clients if int(row.branch) <= branch]
    if branch and clients[-1] < limit:
        limit, why = clients[-1], f"the clients that MPS of driver branch {branch} has per GPU"
    return limit, why


def is_settable_by_kubelet(key: str) -> bool:
    """Return whether NodeRestriction lets a kubelet give its own node this label."""
    prefix = key.rpartition("/")[0]
    if prefix == "node-restriction.kubernetes.io" or prefix.endswith(".node-restriction.kubernetes.io"):
        return False
    if not re.search(r"(^|\.)(kubernetes|k8s)\.io\Z", prefix):
        return True
    for allowed in read_kubernetes_file().kubelet_labels:
        if key == allowed.key:
            return True
        room = allowed.key.removesuffix("/*")
        if room != allowed.key and (prefix == room or prefix.endswith(f".{room}")):
            return True
    return False


def name_mig_resource(profile: str) -> str:
    """Return the resource name of MIG devices of a profile with strategy mixed."""
    return f"nvidia.com/mig-{profile.replace('+', '.')}"
