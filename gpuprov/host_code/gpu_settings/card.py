"""The settings of one GPU as NVML reports them."""

from __future__ import annotations

from typing import Any, NamedTuple

from .compare import State
from .nvml import DEPRECATED, FUNCTION_NOT_FOUND, NOT_FOUND, NOT_SUPPORTED, UINT, Failed, Nvml
from .selection import Gpu

GRAPHICS, MEMORY = UINT(0), UINT(2)  # NVML_CLOCK_GRAPHICS, NVML_CLOCK_MEM
# Names in the order of NVML_COMPUTEMODE_*.
MODES = ("default", "exclusive_thread", "prohibited", "exclusive_process")
SWITCH = ("disabled", "enabled")
LACKING = (NOT_SUPPORTED, FUNCTION_NOT_FOUND, DEPRECATED)


class Power(NamedTuple):
    """Limits in milliwatts."""

    # The configured one, whatever another limiter makes of it.
    limit: int
    default: int
    least: int
    most: int


class Card(NamedTuple):
    """A GPU. Missing features are None."""

    gpu: Gpu
    handle: Any
    # Now, and after the next boot.
    ecc: tuple[bool, bool] | None
    power: Power | None
    # `applications`, `defaults`: memory and graphics in MHz.
    applications: tuple[int, int] | None
    defaults: tuple[int, int] | None
    # NVML's word for missing application clocks.
    no_applications: str
    # Graphics and memory now.
    clocks: tuple[int | None, int | None]
    mode: str
    mig: bool
    computing: list[int]

    @property
    def state(self) -> State:
        """The settings as they are compared."""
        return State(
            None if self.ecc is None else (SWITCH[self.ecc[0]], SWITCH[self.ecc[1]]),
            self.power.limit if self.power else None,
            self.power.default if self.power else None,
            self.applications,
            self.defaults,
            self.no_applications,
            self.mode,
            self.mig,
            *self.clocks,
            (self.power.least, self.power.most) if self.power else None,
        )


def read_cards(nvml: Nvml) -> list[Card]:
    """Return all GPUs, in the order of their PCI addresses. Raises Failed for a GPU that does not answer."""
    addresses = sorted((nvml.address(handle), number) for number, handle in enumerate(nvml.devices()))
    handles = nvml.devices()
    return [read_card(nvml, place, address, handles[number]) for place, (address, number) in enumerate(addresses)]


def read_card(nvml: Nvml, place: int, address: str, handle: Any) -> Card:
    applications, why = read_applications(nvml, "DeviceGetApplicationsClock", handle)
    return Card(
        Gpu(place, address, nvml.text("DeviceGetUUID", handle)),
        handle,
        read_ecc(nvml, handle),
        read_power(nvml, handle),
        applications,
        read_applications(nvml, "DeviceGetDefaultApplicationsClock", handle)[0],
        why,
        (read_clock(nvml, handle, GRAPHICS), read_clock(nvml, handle, MEMORY)),
        MODES[nvml.number("DeviceGetComputeMode", handle)],
        read_mig(nvml, handle),
        list_computing(nvml, handle),
    )


def list_memory_clocks(nvml: Nvml, handle: Any) -> list[int]:
    """Return memory clocks that can be set; none if NVML does not list them."""
    return call_listing(nvml, "DeviceGetSupportedMemoryClocks", handle)


def list_graphics_clocks(nvml: Nvml, handle: Any, memory: int) -> list[int]:
    """Return graphics clocks that go with a memory clock."""
    return call_listing(nvml, "DeviceGetSupportedGraphicsClocks", handle, UINT(memory))


def call_listing(nvml: Nvml, name: str, *arguments: Any) -> list[int]:
    try:
        return nvml.listed(name, *arguments)
    except Failed as failed:
        if failed.number in (*LACKING, NOT_FOUND):
            return []
        raise


def read_ecc(nvml: Nvml, handle: Any) -> tuple[bool, bool] | None:
    try:
        now, then = nvml.numbers(2, "DeviceGetEccMode", handle)
    except Failed as failed:
        if failed.number in LACKING:
            return None
        raise
    return bool(now), bool(then)


def read_power(nvml: Nvml, handle: Any) -> Power | None:
    try:
        limit = nvml.number("DeviceGetPowerManagementLimit", handle)
        default = nvml.number("DeviceGetPowerManagementDefaultLimit", handle)
        least, most = nvml.numbers(2, "DeviceGetPowerManagementLimitConstraints", handle)
    except Failed as failed:
        if failed.number in LACKING:
            return None
        raise
    return Power(limit, default, least, most)


def read_applications(nvml: Nvml, name: str, handle: Any) -> tuple[tuple[int, int] | None, str]:
    try:
        return (nvml.number(name, handle, MEMORY), nvml.number(name, handle, GRAPHICS)), ""
    except Failed as failed:
        if failed.number in LACKING:
            return None, str(failed)
        raise


def read_clock(nvml: Nvml, handle: Any, kind: Any) -> int | None:
    try:
        return nvml.number("DeviceGetClockInfo", handle, kind)
    except Failed:
        return None


def read_mig(nvml: Nvml, handle: Any) -> bool:
    try:
        return bool(nvml.numbers(2, "DeviceGetMigMode", handle)[0])
    except Failed as failed:
        if failed.number in LACKING:
            return False
        raise


def list_computing(nvml: Nvml, handle: Any) -> list[int]:
    try:
        return nvml.computing(handle)
    except Failed as failed:
        if failed.number in LACKING:
            return []
        raise
