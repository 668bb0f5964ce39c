"""Settings of two GPUs of a host as nvidia-smi prints them, and the boot unit with what it reads and wrote."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

FIRST, SECOND = "0000:19:00.0", "0000:3b:00.0"
UUIDS = ("GPU-3c1f6d5e-0000-1111-2222-333344445555", "GPU-4d2e7c6f-0000-1111-2222-333344445555")
SMI = "".join(
    f"0000{address.upper()}, NVIDIA H100 80GB HBM3, {uuid}, 535.261.03, {{}}\n"
    for address, uuid in zip((FIRST, SECOND), UUIDS, strict=True)
)
ON, OFF = SMI.format("Enabled", "Enabled"), SMI.format("Enabled", "Disabled")
MODULE = 4711


def gpu(address: str = FIRST, **changed: str) -> str:
    """A GPU's block of nvidia-smi -q; H100 SXM by default, `changed` by the words of `LINES`."""
    values = {
        "ecc": "Enabled",
        "pending": "Enabled",
        "limit": "700.00 W",
        "enforced": "700.00 W",
        "graphics": "345 MHz",
        "memory": "2619 MHz",
        "app_graphics": "1980 MHz",
        "app_memory": "2619 MHz",
        "mode": "Default",
        "idle": "Active",
        "cap": "Not Active",
        **changed,
    }
    return f"""GPU 0000{address.upper()}
    Performance State                     : P0
    Clocks Event Reasons
        Idle                              : {values["idle"]}
        Applications Clocks Setting       : Not Active
        SW Power Cap                      : {values["cap"]}
        HW Slowdown                       : Not Active
            HW Thermal Slowdown           : Not Active
    Compute Mode                          : {values["mode"]}
    ECC Mode
        Current                           : {values["ecc"]}
        Pending                           : {values["pending"]}
    GPU Power Readings
        Power Draw                        : 70.00 W
        Current Power Limit               : {values["enforced"]}
        Requested Power Limit             : {values["limit"]}
        Default Power Limit               : 700.00 W
        Min Power Limit                   : 200.00 W
        Max Power Limit                   : 700.00 W
    Module Power Readings
        Requested Power Limit             : N/A
    Clocks
        Graphics                          : {values["graphics"]}
        SM                                : {values["graphics"]}
        Memory                            : {values["memory"]}
    Applications Clocks
        Graphics                          : {values["app_graphics"]}
        Memory                            : {values["app_memory"]}
    Default Applications Clocks
        Graphics                          : 1980 MHz
        Memory                            : 2619 MHz
    Max Clocks
        Graphics                          : 1980 MHz
        Memory                            : 2619 MHz

"""


HEAD = "==============NVSMI LOG==============\n\nAttached GPUs                             : 2\n"


def smi(first: Mapping[str, str] | None = None, second: Mapping[str, str] | None = None) -> str:
    """Both GPUs, each with its changes."""
    return HEAD + gpu(FIRST, **(first or {})) + gpu(SECOND, **(second or {}))


def both(**changed: str) -> str:
    return smi(changed, changed)


def kept(
    config: Mapping[str, Any] | None = None,
    locks: Mapping[str, Any] | None = None,
    *,
    file: str = "enabled",
    module: int = MODULE,
) -> str:
    """What the probe of what is kept for each boot prints; the record is of the driver's loading `MODULE`."""
    record = json.dumps({"version": 1, "module": MODULE, "locks": locks}) if locks is not None else ""
    text = json.dumps(config) if config is not None else ""
    return "\n".join([file or "not-found", f"@module {module}", "@config", text, "@record", record]) + "\n"


CLOCKS = (
    "".join(f"0000{address.upper()}, 2619, {clock}\n" for address in (FIRST, SECOND) for clock in range(1980, 344, -15))
    + "looked\n"
)
PROBES = {
    "gpu_settings": HEAD + gpu(FIRST),
    "gpu_settings_kept": kept(file=""),
    "gpu_clocks": CLOCKS,
    "gpu_computing": "looked\n",
    "gpu_confidential": "CC status: OFF\nDevTools Mode: OFF\n",
}
