"""Instance types of clouds, and cards of other vendors: names written in place of a GPU model."""

import re
from difflib import get_close_matches
from functools import cache, partial
from typing import Literal

from gpuprov.catalog.reader import Fact, File, load

Fabric = Literal["", "infiniband", "roce", "efa", "erdma"]
_TYPE = re.compile(
    r"(ml\.)?[a-z][a-z0-9]*(-[a-z0-9]+)?\.[a-z0-9-]+|gx\d[a-z]*-\d+x\d+x.+|ecs\..+|standard_.+|"
    r"[a-z]\d[a-z]*-[a-z]+-\d+g?(-metal)?|(bm|vm)\.gpu.+|gpu_\d+x_.+"
)
# SageMaker HyperPod's, before EC2's instance type in the label node.kubernetes.io/instance-type:
# https://github.com/aws-samples/awsome-distributed-training/tree/main/1.architectures/7.sagemaker-hyperpod-eks/slinky-slurm
_HYPERPOD = "ml."
# Azure's, which people leave out.
_PREFIX = "standard_"


class InstanceTypes(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Instance types with the same GPUs."""

    types: tuple[str, ...]
    # A key of gpus.yaml.
    model: str
    count: int
    # As rdma.fabric, empty if there is none or unknown.
    fabric: Fabric = ""


class Labels(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Values of a cloud's label that name the same GPU."""

    values: tuple[str, ...]
    # A key of gpus.yaml.
    model: str


class Vendor(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Another vendor."""

    vendor: str
    pci: str
    # Prefixes of the names of its cards and of instance types with them, squeezed.
    begins: tuple[str, ...]


class InstancesFile(File, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """data/instances.yaml"""

    instances: tuple[InstanceTypes, ...]
    labels: tuple[Labels, ...]
    vendors: tuple[Vendor, ...]


# Suffixes that GPU feature discovery adds to a product name:
# https://github.com/NVIDIA/k8s-device-plugin/blob/main/internal/lm/resource.go
_SHARED = re.compile(r"(?:-mig-[0-9]+g\.[0-9a-z.+]+)?(?:-shared)?\Z")


# What kubectl and node selectors put before a product name.
LABEL = "nvidia.com/gpu.product="


# The key of any label, as of cloud.google.com/gke-accelerator=nvidia-l4.
_LABEL_KEY = re.compile(r"\A[a-z0-9.-]+/[a-z0-9._-]+=")


def parse_label(text: str) -> str:
    """Return a product name as words, from the label nvidia.com/gpu.product, from Slurm or from nvidia-smi of any
    branch."""
    value = _LABEL_KEY.sub("", text.strip().casefold().removeprefix(LABEL))
    return " ".join(re.sub(r"[-_]", " ", _SHARED.sub("", value)).split())


read_instances_file = partial(load, "instances", InstancesFile)


@cache
def index_by_type() -> dict[str, InstanceTypes]:
    return {name.casefold(): row for row in read_instances_file().instances for name in row.types}


@cache
def index_by_cloud_label() -> dict[str, str]:
    """Return keys of gpus.yaml by the value of a cloud's label, in lower case."""
    return {value.casefold(): row.model for row in read_instances_file().labels for value in row.values}


def find_labelled_model(text: str) -> str:
    """Return the model that a cloud's label names, with or without the label's key; empty if it is none."""
    return index_by_cloud_label().get(text.strip().casefold().rpartition("=")[2], "")


def fold_type(text: str) -> str:
    """Return an instance type as it is compared: without case and SageMaker's prefix."""
    return text.strip().casefold().removeprefix(_HYPERPOD)


def find_instance(text: str) -> InstanceTypes | None:
    """The row of an instance type, in any case; None if it is not known."""
    return index_by_type().get(fold_type(text))


def is_type(text: str) -> bool:
    """Return whether a text looks like an instance type."""
    return bool(_TYPE.fullmatch(text.strip().casefold()))


def find_nearest_types(text: str) -> list[str]:
    """Return instance types that a text is near to, with at most one other figure, or without Azure's prefix; may be
    empty."""
    if prefixed := index_by_type().get(_PREFIX + text.strip().casefold()):
        return [name for name in prefixed.types if name.casefold() == _PREFIX + text.strip().casefold()]
    if not is_type(text):
        return []
    names = {name.casefold(): name for row in read_instances_file().instances for name in row.types}
    family = text.strip().casefold().rpartition(".")[0]
    if family.startswith("ecs."):  # gn8ia is not a gn8is: one letter tells families with other GPUs apart
        names = {name: full for name, full in names.items() if name.rpartition(".")[0] == family}
    near = get_close_matches(text.strip().casefold(), names, n=3, cutoff=0.85)
    figures = set(re.findall(r"\d+", text))
    return [names[name] for name in near if len(figures - set(re.findall(r"\d+", name))) < 2]


def count_most(model: str) -> int:
    """Return the largest number of these GPUs that an instance type has; 0 if none has them."""
    return max((row.count for row in read_instances_file().instances if row.model == model), default=0)


def find_vendor(text: str) -> str:
    """Return the vendor of a card that is not NVIDIA's, by its name, its PCI id or an instance type with it; "" if
    there is none."""
    plain = fold_type(text)
    squeezed = re.sub(r"[^a-z0-9]", "", plain)
    for row in read_instances_file().vendors:
        by_name = any(squeezed.startswith(begin) for begin in row.begins)
        if by_name or re.match(rf"{row.pci}:[0-9a-f]{{4}}", plain):
            return row.vendor
    return ""
