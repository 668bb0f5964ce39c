"""Chips by PCI device id: what drives a GPU that is in no list yet. And cards that are no more than their chip and
their name."""

import re
from functools import cache, partial
from typing import Literal

from gpuprov.catalog.models import ARCHITECTURES, Alias, Architecture, FabricManager, Gpu, KernelModules, Mig, PciId
from gpuprov.catalog.reader import BranchFact, Fact, File, load

VENDOR = "10de"
Need = Literal["open-required", "proprietary-required", "either"]


class Generation(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The drivers of a generation of GPUs; a branch that is unset is unknown, or there is none."""

    arch: Literal["Kepler", Architecture, "Rubin"]
    flavour: Need
    first_branch: str = ""
    last_branch: str = ""


class Chip(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Device ids from `first` to `last`, as hex, are of this chip."""

    chip: str
    arch: Literal["Kepler", Architecture, "Rubin"]
    first: str
    last: str
    compute_capability: str = ""


class Card(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A card with a GPU that has neither MIG nor NVSwitches."""

    key: str
    name: str
    ids: tuple[str, ...]


class ChipsFile(File, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """data/chips.yaml"""

    generations: tuple[Generation, ...]
    chips: tuple[Chip, ...]
    cards: tuple[Card, ...]


_file = partial(load, "chips", ChipsFile)


def chip_of(identifier: str) -> Chip | None:
    """Return the chip of a PCI id ("10de:2484"); None if it is not NVIDIA's, or older than Kepler."""
    match = re.fullmatch(rf"{VENDOR}:([0-9a-f]{{4}})", identifier.strip().casefold())
    return next((chip for chip in _file().chips if match and chip.first <= match[1] <= chip.last), None)


def generation_of(identifier: str) -> Generation | None:
    """Return the generation of the GPU with this PCI id."""
    chip = chip_of(identifier)
    return find_generation(chip.arch) if chip else None


def find_chips(name: str) -> tuple[Chip, ...]:
    """Return the chips of the generation with this name in any case (Rubin, also as Vera Rubin), or the chip itself."""
    plain = name.casefold().removeprefix("vera ")
    return tuple(chip for chip in _file().chips if plain in (chip.arch.casefold(), chip.chip.casefold()))


def find_generation(arch: str) -> Generation:
    return next(generation for generation in _file().generations if generation.arch == arch)


def described(identifier: str) -> str:
    """Return a PCI id with its chip, if known: `10de:2484 (GA104, Ampere)`."""
    chip = chip_of(identifier)
    return f"{identifier} ({chip.chip}, {chip.arch})" if chip else identifier


def find_old_card(name: str) -> tuple[Card, Generation] | None:
    """Return a card of a generation that no driver of the catalogue knows: K80, Tesla K80."""
    plain = re.sub(r"[^a-z0-9]", "", name.casefold()).removeprefix("nvidia").removeprefix("tesla")
    for card in _file().cards:
        chip = chip_of(f"{VENDOR}:{card.ids[0]}")
        if chip and chip.arch not in ARCHITECTURES and re.fullmatch(card.key + "[a-z]{0,2}", plain, re.IGNORECASE):
            return card, find_generation(chip.arch)
    return None


@cache
def cards() -> tuple[Gpu, ...]:
    """Return the cards as GPUs: all else that is known of them follows from their chip."""
    return tuple(gpu for card in _file().cards if (gpu := _make_gpu(card)))


def _make_gpu(card: Card) -> Gpu | None:
    ids = [f"{VENDOR}:{device}" for device in card.ids]
    chip = chip_of(ids[0])
    arch = next((name for name in ARCHITECTURES if chip and name == chip.arch), None)
    if chip is None or arch is None:
        return None
    generation = find_generation(chip.arch)
    sources, confidence = generation.source, generation.confidence

    def branch(name: str) -> BranchFact | None:
        return BranchFact(branch=name, source=sources, confidence=confidence) if name else None

    return Gpu(
        key=card.key,
        name=card.name,
        aliases=(Alias(name=card.name, source=card.source),),
        pci_ids=tuple(PciId(id=device_id, source=card.source) for device_id in ids),
        arch=arch,
        chip=chip.chip,
        compute_capability=chip.compute_capability,
        form_factor="PCIe",
        nvlink="unknown",
        fabric_manager=FabricManager(needed="never", source=card.source, confidence="inferred"),
        mig=Mig(capable=False, source=card.source, confidence="inferred"),
        kernel_modules=KernelModules(flavour=generation.flavour, source=sources, confidence=confidence),
        min_branch=branch(generation.first_branch),
        last_branch=branch(generation.last_branch),
        unsure={"form_factor": "inferred"},
        source=card.source,
    )
