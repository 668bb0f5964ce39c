"""The number of NVLinks that a healthy GPU of each model has."""

from gpuprov.catalog.gpus import Gpu
from gpuprov.catalog.reader import Fact, File, load


class ModelLinks(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`links` are up on each GPU of the model; on a card that takes bridges, if it has all of them."""

    model: str
    links: int


class Rate(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """GB/s in one direction: of one NVLink, or of a GPU's PCIe."""

    arch: str
    each_way: float


class Board(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A board by the form factor of its GPUs: the generation of its PCIe, and Gb/s of a slot of 16 lanes in one
    direction."""

    form_factor: str
    generation: int
    slot_gbits: int


class TopologyFile(File, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """data/topology.yaml"""

    nvlinks: tuple[ModelLinks, ...]
    nvlink_rates: tuple[Rate, ...]
    pcie_rates: tuple[Rate, ...]
    pcie_slots: tuple[Board, ...]


def count_nvlinks(gpu: Gpu | None) -> int | None:
    """Return the NVLinks of the model: 0 if it has none, None if unknown."""
    if gpu is None:
        return None
    if gpu.nvlink == "no":
        return 0
    return next((row.links for row in load("topology", TopologyFile).nvlinks if row.model == gpu.key), None)


def always_has_nvlinks(gpu: Gpu | None) -> bool:
    """Return whether each GPU of the model has NVLinks: those of cards hang on a bridge, and unknown models may have
    none."""
    return gpu is not None and gpu.nvlink == "yes"


def find_board(gpu: Gpu | None) -> Board | None:
    """Return the board that GPUs of this form factor are on; None if nothing is known of it."""
    rows = load("topology", TopologyFile).pcie_slots
    return next((row for row in rows if gpu and row.form_factor == gpu.form_factor), None)


def nvlink_limit(gpu: Gpu | None) -> float | None:
    """Return the GB/s of all NVLinks of a GPU in both directions together, above which no bus bandwidth is; None if
    unknown."""
    links = count_nvlinks(gpu)
    if gpu is None or not links:
        return None
    rates = load("topology", TopologyFile).nvlink_rates
    return next((2 * links * row.each_way for row in rates if row.arch == gpu.arch), None)


def pcie_limit(gpu: Gpu | None) -> float | None:
    """Return the GB/s of the PCIe of a GPU without NVLink in one direction; None if it has NVLinks, or if unknown."""
    if gpu is None or gpu.nvlink != "no":
        return None
    return next((row.each_way for row in load("topology", TopologyFile).pcie_rates if row.arch == gpu.arch), None)
