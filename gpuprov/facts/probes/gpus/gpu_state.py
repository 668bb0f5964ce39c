"""The health that a GPU reports, as one type."""

import msgspec


class Ecc(msgspec.Struct, frozen=True, kw_only=True):
    """Errors that ECC counted, SRAM and DRAM together; None if the GPU does not report them."""

    corrected: int | None = None
    uncorrected: int | None = None


class Clocks(msgspec.Struct, frozen=True, kw_only=True):
    """MHz of the shaders and of the memory: now, at most, and while programs run (`set_...`, which newer drivers do not
    report)."""

    graphics: int | None = None
    most_graphics: int | None = None
    most_memory: int | None = None
    set_graphics: int | None = None
    set_memory: int | None = None
    # The driver's reasons for lower clocks; None if it gives none.
    held: tuple[str, ...] | None = None
    # Percent of the time in which something computes.
    busy: int | None = None


class GpuHealth(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU by its address as sysfs writes it. Empty, or None: the GPU does not have it, or nvidia-smi does not print
    it. `board`: the subsystem's id, assigned by the board's maker.

    `ecc` is enabled or disabled; `volatile` counts since the driver was loaded, `aggregate` all its life;
    `sram_exceeded`: enough SRAM errors that NVIDIA takes the card back. `remapped` rows for uncorrectable errors,
    `remapped_corrected` for correctable ones; `remap_pending`, `remap_failed`. `repairs` of its memory or its shaders
    that wait for a reset, as nvidia-smi names them; `unrepairable`: its memory cannot be repaired any more. `retired`
    pages, of which `retired_pending`. `slow`: reasons for a slowdown other than settings. `degrees` now; `below`:
    degrees to the temperature at which it slows down. Watts: `draw`, the limit in force (`enforced`) and the one that
    was set (`limit`); `draw_hidden`: an error is printed in its place. `recovery`: the action that the driver
    recommends; `reset_required`, `reset_advised`. `width`: lanes of its PCIe link now. `broken`: an error that it
    reports in place of all values; `untold`: nvidia-smi's headings below which an error stands in place of a value.
    `used`: MiB of its memory; `processes`: whether any use it; `coherent`: its memory is part of the host's, which the
    kernel may use as it likes. `serial`, `part`: the board's serial and part number.
    """

    address: str
    name: str = ""
    serial: str = ""
    uuid: str = ""
    brand: str = ""
    board: str = ""
    part: str = ""
    ecc: str = ""
    volatile: Ecc = Ecc()
    aggregate: Ecc = Ecc()
    sram_exceeded: bool | None = None
    remapped: int | None = None
    remapped_corrected: int | None = None
    remap_pending: bool | None = None
    remap_failed: bool | None = None
    repairs: tuple[str, ...] = ()
    unrepairable: bool | None = None
    retired: int | None = None
    retired_pending: bool | None = None
    slow: tuple[str, ...] | None = None
    degrees: int | None = None
    below: int | None = None
    memory_below: int | None = None
    draw: float | None = None
    draw_hidden: bool = False
    limit: float | None = None
    enforced: float | None = None
    replays: int | None = None
    width: int | None = None
    vbios: str = ""
    inforom: str = ""
    recovery: str = ""
    reset_required: bool | None = None
    reset_advised: bool | None = None
    broken: str = ""
    untold: tuple[str, ...] = ()
    clocks: Clocks = Clocks()
    used: int | None = None
    processes: bool | None = None
    coherent: bool = False
    prohibited: bool = False

    @property
    def kind(self) -> tuple[str, str]:
        """Model and board; makers give the same GPU their own clocks and firmware."""
        return self.name, self.board


class State(msgspec.Struct, frozen=True, kw_only=True):
    """All GPUs that nvidia-smi shows in the order of their addresses, how many are on the PCI bus (`present`), not
    counting those that vfio-pci has for virtual machines (`given`), those that no longer answer on the bus (`gone`),
    warning lines, and its error if it shows none."""

    gpus: tuple[GpuHealth, ...] = ()
    present: int = 0
    given: int = 0
    gone: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    complaint: str = ""
    # False in a record without the PCI bus.
    bus: bool = True
