"""What is known of each GPU, and how to find one by key, product name or PCI id."""

from __future__ import annotations

import re
from difflib import get_close_matches
from functools import cache
from typing import Literal

import msgspec

from gpuprov.catalog.reader import BranchFact, Confidence, Fact, Note, Source, load, weakest
from gpuprov.errors import GpuprovError

Flavour = Literal["open", "proprietary"]
_VENDOR = "10de"


class Alias(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A product name, as the driver and nvidia-smi print it."""

    name: str


class PciId(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`id` is vendor:device, lower-case hex ("10de:2330"); `subsystems` are those seen, same form, not a closed list."""

    id: str
    subsystems: tuple[str, ...] = ()
    note: str = ""


class NvSwitch(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Boards that join this GPU by NVSwitch. `pci_id` of the switch is unset where it is no PCI function of the host."""

    generation: int | None = None
    boards: tuple[str, ...] = ()
    switches_per_board: int | None = None
    pci_id: str = ""


class FabricManager(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which fabric services a host with this GPU needs.

    `nvswitch-boards` means: only where the GPU sits on an NVSwitch board, which the host must tell.
    `nvlsm` goes with Fabric Manager, `imex` is asked of the host without it. `min_kernel` is a Linux version.
    """

    needed: Literal["never", "nvswitch-boards"]
    min_branch: str = ""
    nvlsm: bool = False
    imex: bool = False
    min_kernel: str = ""
    also_needs: tuple[str, ...] = ()


class Vbios(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The oldest VBIOS that has MIG, for the device with this PCI id."""

    pci_id: str
    version: str


class Mig(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """MIG: `max_instances` is per GPU, `min_driver` a full version, `profile_class` a class of mig.yaml."""

    capable: bool
    max_instances: int | None = None
    min_driver: str = ""
    profile_class: str = ""
    min_vbios: tuple[Vbios, ...] = ()


class KernelModules(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which kernel modules can drive the GPU."""

    flavour: Literal["open-required", "proprietary-required", "either"]


class Gpu(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One GPU model. What is unset is unknown.

    `memory_gb`: GB as in the product name, one per variant. `min_branch`, `last_branch`: driver branches.
    `first_listed`: the first open-module release whose README lists one of its ids: evidence, not a minimum
    (T4 works long before it is listed). `unsure`: fields that are less sure than the entry.
    """

    key: str
    name: str
    aliases: tuple[Alias, ...] = ()
    pci_ids: tuple[PciId, ...]
    arch: Literal["Volta", "Turing", "Ampere", "Ada", "Hopper", "Blackwell"]
    chip: str
    compute_capability: str
    memory_gb: tuple[int, ...] = ()
    form_factor: str
    nvlink: Literal["yes", "no", "bridge", "c2c", "unknown"]
    nvlink_note: str = ""
    nvswitch: NvSwitch | None = None
    fabric_manager: FabricManager
    mig: Mig
    kernel_modules: KernelModules
    min_branch: BranchFact | None = None
    last_branch: BranchFact | None = None
    first_listed: str = ""
    unsure: dict[str, Confidence] = {}
    notes: tuple[str, ...] = ()

    def sure(self, field: str) -> Confidence:
        """How sure a field is: its own mark, else that of its part, never more than the entry."""
        part = getattr(self, field)
        own = self.unsure.get(field) or (part.confidence if isinstance(part, Fact) else "confirmed")
        return weakest(own, self.confidence)


class GpusFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """data/gpus.yaml"""

    sources: dict[str, Source]
    gpus: tuple[Gpu, ...]
    notes: tuple[Note, ...] = ()


def gpus() -> tuple[Gpu, ...]:
    """All GPUs, in the order of the file: by generation."""
    return load("gpus", GpusFile).gpus


def _fold(text: str) -> str:
    return " ".join(text.split()).casefold()


@cache
def _names() -> dict[str, Gpu]:
    found: dict[str, Gpu] = {}
    for gpu in gpus():
        for name in {_fold(gpu.key), *(_fold(alias.name) for alias in gpu.aliases)}:
            if name in found:
                raise GpuprovError(f"catalogue: {name!r} names both {found[name].key} and {gpu.key}")
            found[name] = gpu
    return found


@cache
def _ids() -> dict[str, Gpu]:
    return {pci.id: gpu for gpu in gpus() for pci in gpu.pci_ids}


def by_pci_id(vendor_device: str) -> Gpu | None:
    """The GPU with this PCI id: '10de:2330', '0x233010DE' (device, then vendor), '0x2330' or '2330'.

    A subsystem suffix is ignored. The id of A16 and A2 is one, and so is the entry.
    """
    text = vendor_device.strip().casefold()
    match = re.fullmatch(rf"(?:{_VENDOR}:)?(?:0x)?([0-9a-f]{{4}})", text) or re.fullmatch(
        rf"0x([0-9a-f]{{4}}){_VENDOR}(?::0x[0-9a-f]{{8}})?", text
    )
    return _ids().get(f"{_VENDOR}:{match[1]}") if match else None


def find_gpu(text: str) -> Gpu | None:
    """The GPU with this key, product name (both in any case) or PCI id; None when nothing is exactly it."""
    return _names().get(_fold(text)) or by_pci_id(text)


def _squeeze(text: str) -> str:
    return re.sub(r"[^a-z0-9]", "", text.casefold().removeprefix("nvidia"))


def nearest_gpu(text: str) -> list[str]:
    """Up to three keys that resemble the text, best first."""
    wanted = _squeeze(text)
    inside = [gpu.key for gpu in gpus() if wanted and wanted in _squeeze(gpu.key)]
    squeezed = {_squeeze(name): gpu.key for name, gpu in _names().items()}
    close = get_close_matches(wanted, squeezed, n=6, cutoff=0.5)
    return list(dict.fromkeys([*inside, *(squeezed[name] for name in close)]))[:3]
