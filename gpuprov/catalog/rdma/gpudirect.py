"""GPUDirect RDMA: its three methods and their requirements, the modules and their parameters, messages of the kernel,
gdrcopy."""

from __future__ import annotations

import re
from functools import partial
from typing import Literal

from gpuprov.catalog import gpus
from gpuprov.catalog.drivers import sets
from gpuprov.catalog.reader import Fact, File, load

Name = Literal["dmabuf", "nvidia_peermem", "nv_peer_mem"]
UNIT = "gpuprov-gpudirect.service"
UNIT_FILE = f"/etc/systemd/system/{UNIT}"
DROP_IN = "/etc/systemd/system/openibd.service.d/10-nvidia-peermem.conf"
OVERRIDE = "NVreg_GrdmaPciTopoCheckOverride"
# Names of the driver's module, by distribution; an option for a name that a host does not have has no effect.
DRIVER_MODULES = sets.MODULE_NAMES


class Method(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A method of access to a GPU's memory. Empty fields require nothing."""

    key: Name
    modules: tuple[str, ...] = ()
    first_branch: str = ""
    first_kernel: str = ""
    first_cuda: str = ""
    flavour: Literal["", "open", "proprietary"] = ""
    deprecated_since_cuda: str = ""
    deprecated_since_branch: str = ""


class Parameter(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A module's parameter, the first driver branch that has it, and the first that no longer has it."""

    key: str
    first_branch: str
    gone_branch: str = ""


class Platform(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The needs of GPUs of some models with a fabric.

    `first_driver`: the oldest version that works; `gone_branch`: the first that no longer does. Not `required`: some
    machines of the kind need it.
    """

    key: str
    models: tuple[str, ...]
    fabrics: tuple[str, ...]
    topology_check: Literal["allow", "deny"]
    first_driver: str = ""
    gone_branch: str = ""
    required: bool = False
    text: str


class Excluded(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """GPUs without GPUDirect RDMA by any method: of these models, or with this brand in the product name."""

    key: str
    models: tuple[str, ...] = ()
    brand: str = ""
    text: str
    # The alternative.
    way: str = ""


class KernelOption(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An option of the kernel's configuration without which dma-buf does not work."""

    key: str


class Message(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The kernel's messages about a module (`signatures`, text as printed), the cause, a command that shows more, and
    the fix."""

    key: str
    signatures: tuple[str, ...]
    cause: str
    check: str
    way: str

    @property
    def text(self) -> str:
        """Return a regular expression that matches it in a line of the kernel's log."""
        return "|".join(re.escape(signature) for signature in self.signatures)


class Gdrcopy(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """gdrcopy's packages on one family of distributions."""

    family: Literal["debian", "redhat"]
    packages: tuple[str, ...]
    tests: tuple[str, ...]
    service: str


class GpudirectFile(File, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """data/gpudirect.yaml"""

    methods: tuple[Method, ...]
    parameters: tuple[Parameter, ...]
    platforms: tuple[Platform, ...]
    excluded: tuple[Excluded, ...]
    kernel_options: tuple[KernelOption, ...]
    messages: tuple[Message, ...]
    bad_context: Message
    gdrcopy: tuple[Gdrcopy, ...]


read_gpudirect_file = partial(load, "gpudirect", GpudirectFile)


def get_method(name: Name) -> Method:
    """Return the facts about a method."""
    return next(entry for entry in read_gpudirect_file().methods if entry.key == name)


def find_first_branch(parameter: str) -> int:
    """The first driver branch whose modules have a parameter."""
    return next(int(entry.first_branch) for entry in read_gpudirect_file().parameters if entry.key == parameter)


def find_gone_branch(parameter: str) -> int:
    """Return the first driver branch whose modules no longer have a parameter; 0 if all newer ones have it."""
    return next(int(entry.gone_branch or 0) for entry in read_gpudirect_file().parameters if entry.key == parameter)


def find_platform(model: str, fabric: str) -> Platform | None:
    """Return the facts about a GPU's model with a fabric."""
    known = read_gpudirect_file().platforms
    return next((entry for entry in known if model in entry.models and fabric in entry.fabrics), None)


def find_excluded(gpu: gpus.Gpu) -> Excluded | None:
    """Return the reason why a GPU has no GPUDirect RDMA by any method; None if it may have it."""
    return next(
        (
            entry
            for entry in read_gpudirect_file().excluded
            if gpu.key in entry.models or (entry.brand and gpus.is_of(gpu, entry.brand))
        ),
        None,
    )


def find_gdrcopy(family: str) -> Gdrcopy | None:
    """Return gdrcopy on a family of distributions; None if unknown."""
    return next((entry for entry in read_gpudirect_file().gdrcopy if entry.family == family), None)


def find_message(log: tuple[str, ...]) -> Message | None:
    """Return the kernel log's message about a module that does not load, from the last known line."""
    for line in reversed(log):
        for message in read_gpudirect_file().messages:
            if re.search(message.text, line):
                return message
    return None


def parse_kernel_order(release: str) -> tuple[int, int]:
    """Return the numbers for comparing kernels: (5, 14) of `5.14.0-570.12.1.el9_6.x86_64`."""
    match = re.match(r"(\d+)\.(\d+)", release)
    return (int(match[1]), int(match[2])) if match else (0, 0)
