"""Types of what is known of a GPU."""

from typing import Literal, get_args

import msgspec

from gpuprov.catalog.reader import BranchFact, Confidence, Fact, File, find_weakest

Flavour = Literal["open", "proprietary"]
Architecture = Literal["Maxwell", "Pascal", "Volta", "Turing", "Ampere", "Ada", "Hopper", "Blackwell"]
# GPU generations, the oldest first.
ARCHITECTURES: tuple[Architecture, ...] = get_args(Architecture)


class Alias(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A product name, as the driver and nvidia-smi print it."""

    name: str


class PciId(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`id` is vendor:device, lower-case hex ("10de:2330"); `subsystems` are known ones in the same form, not a closed
    list.

    If several models share an id, the subsystem distinguishes them; without a known one it is that of the first model.
    """

    id: str
    subsystems: tuple[str, ...] = ()
    note: str = ""


class NvSwitch(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Boards that connect this GPU by NVSwitch. `pci_id` of the switch is unset if it is not a PCI function of the
    host."""

    generation: int | None = None
    boards: tuple[str, ...] = ()
    switches_per_board: int | None = None
    pci_id: str = ""


class FabricManager(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The fabric services that a host with this GPU needs.

    `nvswitch-boards` means: only if the GPU is on an NVSwitch board, which only the host can show. `nvlsm` goes with
    Fabric Manager, `imex` is requested from the host without it.
    """

    needed: Literal["never", "nvswitch-boards"]
    min_branch: str = ""
    nvlsm: bool = False
    imex: bool = False


class Vbios(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The oldest VBIOS that supports MIG, for the device with this PCI id."""

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
    """The kernel modules that can drive the GPU."""

    flavour: Literal["open-required", "proprietary-required", "either"]


class Gpu(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One GPU model. Unset fields are unknown."""

    key: str
    name: str
    aliases: tuple[Alias, ...] = ()
    pci_ids: tuple[PciId, ...]
    arch: Architecture
    chip: str
    compute_capability: str
    # GB as in the product name, one per variant.
    memory_gb: tuple[int, ...] = ()
    form_factor: str
    nvlink: Literal["yes", "no", "bridge", "c2c", "unknown"]
    nvlink_note: str = ""
    nvswitch: NvSwitch | None = None
    fabric_manager: FabricManager
    mig: Mig
    kernel_modules: KernelModules
    # `min_branch`, `last_branch`: driver branches.
    min_branch: BranchFact | None = None
    last_branch: BranchFact | None = None
    # The first open-module release whose README lists one of its ids: evidence, not a minimum (T4 works long before it
    # is listed).
    first_listed: str = ""
    # Fields with less confidence than the entry.
    unsure: dict[str, Confidence] = {}
    notes: tuple[str, ...] = ()

    @property
    def superchip(self) -> bool:
        """Whether the GPU is one with its processor, NVIDIA's own, which is aarch64."""
        return self.form_factor == "superchip"

    def sure(self, field: str) -> Confidence:
        """Return the confidence of a field: its own mark, else that of its part, never higher than the entry's."""
        part = getattr(self, field)
        confidence = self.unsure.get(field) or (part.confidence if isinstance(part, Fact) else "confirmed")
        return find_weakest(confidence, self.confidence)


class GpusFile(File, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """data/gpus.yaml"""

    gpus: tuple[Gpu, ...]
