"""Settings of GPUs as nvidia-smi prints them, and those that gpuprov's unit applies at boot: ECC mode, power limit,
clocks, compute mode."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from gpuprov.core.safe_parse import is_whole
from gpuprov.core.safe_parse import parse_json as read_json
from gpuprov.facts.probes.base import Output, Probe, ProbeFailed
from gpuprov.facts.probes.gpus.smi_query import remove_process_blocks
from gpuprov.host_code.gpu_settings import act
from gpuprov.host_code.gpu_settings.compare import Locks

UNIT = "gpuprov-gpu-settings.service"
CONFIG = "/etc/gpuprov/gpu_settings.json"
RECORD = act.RECORD
FOLDER = "/usr/local/lib/gpuprov/gpu_settings"


class GpuSettings(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU's settings; watts and MHz. None, or empty, if the GPU does not have the setting or it was not printed.

    `ecc` now and `ecc_pending` after the next boot: enabled or disabled. `power` is the configured limit,
    `power_enforced` the effective one. `applications`: nvidia-smi's words in place of application clocks, if the GPU
    has none. `reasons`: nvidia-smi's reasons that the clocks are not higher. `mig`: whether it is in MIG mode, None if
    nvidia-smi was not run.
    """

    address: str
    ecc: str = ""
    ecc_pending: str = ""
    power: float | None = None
    power_enforced: float | None = None
    power_default: float | None = None
    power_least: float | None = None
    power_most: float | None = None
    graphics: int | None = None
    memory: int | None = None
    application_graphics: int | None = None
    application_memory: int | None = None
    default_graphics: int | None = None
    default_memory: int | None = None
    applications: str = ""
    compute_mode: str = ""
    reasons: tuple[str, ...] = ()
    mig: bool | None = None


class State(msgspec.Struct, frozen=True, kw_only=True):
    """All GPUs in the order of their PCI addresses, or nvidia-smi's error."""

    gpus: tuple[GpuSettings, ...] = ()
    complaint: str = ""


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """The settings kept for each boot: the unit is `enabled`, and `text` is what it reads."""

    enabled: bool = False
    text: str = ""
    # Clocks by PCI address that its program has locked since the driver was loaded, which NVML does not report.
    locks: dict[str, Locks] = {}


class Confidential(msgspec.Struct, frozen=True):
    """`mode`: enabled, devtools, protected_pcie (nvidia-smi calls its state OFF), or disabled, also where no GPU is
    capable of it; empty if nvidia-smi does not report it; then `complaint` has its output."""

    mode: str = ""
    complaint: str = ""


Values = dict[tuple[str, ...], str]


def parse_settings(output: Output) -> State:
    if output.status == 127:
        return State(complaint="nvidia-smi is not installed")
    gpus = tuple(
        sorted(
            (_parse_gpu(address, values) for address, values in split_gpus(output.text)), key=lambda gpu: gpu.address
        )
    )
    if not gpus:
        return State(complaint=" ".join((output.text or output.error).split())[:300] or "nvidia-smi lists no GPU")
    return State(gpus=gpus)


def split_gpus(text: str) -> Iterator[tuple[str, Values]]:
    """Split the text by GPU: the address as in sysfs, and its lines by the headings above them. Raises ProbeFailed."""
    # GPU 00000000:00:06.0
    parts = re.split(
        r"^GPU ([0-9A-Fa-f]{8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])[ \t]*$",
        remove_process_blocks(text),
        flags=re.MULTILINE,
    )
    for address, block in zip(parts[1::2], parts[2::2], strict=True):
        values: Values = {}
        headings: list[tuple[int, str]] = []
        for line in filter(str.strip, block.splitlines()):
            name, colon, value = line.partition(" : ")
            depth = len(line) - len(line.lstrip())
            headings = [heading for heading in headings if heading[0] < depth]
            if colon:
                values.setdefault((*(heading for _, heading in headings), name.strip()), value.strip())
            headings.append((depth, name.strip()))
        yield normalize_address(address), values


def normalize_address(text: str) -> str:
    """Convert a PCI address with a domain of eight or four digits to the form of sysfs."""
    return (text[4:] if text.startswith("0000") and len(text.partition(":")[0]) == 8 else text).lower()


# From driver 535 on, and before it: https://docs.nvidia.com/deploy/nvidia-smi/index.html
POWER, OLD_POWER = "GPU Power Readings", "Power Readings"


def _parse_gpu(address: str, values: Values) -> GpuSettings:
    power = POWER if any(path[0] == POWER for path in values) else OLD_POWER
    applications = values.get(("Applications Clocks", "Graphics"), values.get(("Applications Clocks",), ""))
    ecc = "ECC Mode" if ("ECC Mode", "Current") in values else "Ecc Mode"
    mig = values.get(("MIG Mode", "Current"))
    return GpuSettings(
        address=address,
        ecc=_parse_switch(values.get((ecc, "Current"), "")),
        ecc_pending=_parse_switch(values.get((ecc, "Pending"), "")),
        power=_parse_number(values.get((power, "Requested Power Limit"), values.get((power, "Power Limit"), "")), "W"),
        power_enforced=_parse_number(
            values.get((power, "Current Power Limit"), values.get((power, "Enforced Power Limit"), "")), "W"
        ),
        power_default=_parse_number(values.get((power, "Default Power Limit"), ""), "W"),
        power_least=_parse_number(values.get((power, "Min Power Limit"), ""), "W"),
        power_most=_parse_number(values.get((power, "Max Power Limit"), ""), "W"),
        graphics=_parse_clock(values, "Clocks", "Graphics"),
        memory=_parse_clock(values, "Clocks", "Memory"),
        application_graphics=_parse_clock(values, "Applications Clocks", "Graphics"),
        application_memory=_parse_clock(values, "Applications Clocks", "Memory"),
        default_graphics=_parse_clock(values, "Default Applications Clocks", "Graphics"),
        default_memory=_parse_clock(values, "Default Applications Clocks", "Memory"),
        applications="" if re.match(r"\d", applications) else applications,
        compute_mode=values.get(("Compute Mode",), "").lower(),
        reasons=tuple(
            path[-1]
            for path, value in values.items()
            if path[0] in ("Clocks Event Reasons", "Clocks Throttle Reasons") and value == "Active"
        ),
        mig=None if mig is None else mig == "Enabled",
    )


def _parse_switch(value: str) -> str:
    return value.lower() if value in ("Enabled", "Disabled") else ""


def _parse_number(value: str, unit: str) -> float | None:
    # Current Power Limit                            : 700.00 W
    # Graphics                                       : 1980 MHz
    match = re.fullmatch(rf"(\d+(?:\.\d+)?) {unit}", value)
    return float(match[1]) if match else None


def _parse_clock(values: Values, heading: str, name: str) -> int | None:
    clock = _parse_number(values.get((heading, name), ""), "MHz")
    return None if clock is None else int(clock)


def parse_kept(output: Output) -> Kept:
    unit, _, rest = output.text.partition("@config\n")
    config, _, record = rest.partition("@record\n")
    module = re.search(r"^@module (\d*)$", unit, re.MULTILINE)
    return Kept(
        enabled=unit.startswith("enabled\n"),
        text=config.strip(),
        locks=_parse_locks(record.strip(), int(module[1] or 0) if module else 0),
    )


def _parse_locks(text: str, module: int) -> dict[str, Locks]:
    """Parse the locked clocks; none if the record predates the present load of the driver, which forgot the locks."""
    if not text:
        return {}
    try:
        record = read_json(text)
        locks: dict[str, Locks] = {address: dict(locked) for address, locked in record["locks"].items()}
        return locks if record["module"] == module else {}
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise ProbeFailed(f"{RECORD} cannot be read ({error})", f"rm {RECORD}; gpuprov apply") from error


def parse_confidential(output: Output) -> Confidential:
    # `nvidia-smi conf-compute -f` of Azure's confidential GPUs (https://github.com/Azure/az-cgpu-onboarding):
    #     CC status: ON
    # `nvidia-smi conf-compute -q` of several GPUs in protected PCIe mode, which CC State calls OFF
    # (tests/real/h100-ppcie-cc):
    #     CC State                   : OFF
    #     Multi-GPU Mode             : Protected PCIe
    state = re.search(r"CC (?:status|State)\s*: *(ON|OFF)\b", output.text)
    if re.search(r"No CC capable|CC feature status: Not Supported", output.text):
        return Confidential("disabled")
    if not state:
        message = " ".join((output.text or output.error).split())[:200]
        return Confidential(complaint=message or f"nvidia-smi ended with status {output.status}")
    if re.search(r"Multi-GPU Mode\s*: *Protected PCIe", output.text):
        return Confidential("protected_pcie")
    tools = re.search(r"DevTools Mode\s*: *ON\b", output.text)
    return Confidential("disabled" if state[1] == "OFF" else "devtools" if tools else "enabled")


def parse_clocks(output: Output) -> dict[str, dict[int, tuple[int, ...]]]:
    """Parse the supported graphics clocks by PCI address and memory clock; a GPU that lists none is absent."""
    _require_complete(output, "the supported clocks")
    supported: dict[str, dict[int, tuple[int, ...]]] = {}
    for line in output.text.splitlines():
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) == 3 and is_whole(cells[1]) and is_whole(cells[2]):
            clocks = supported.setdefault(normalize_address(cells[0]), {})
            clocks[int(cells[1])] = (*clocks.get(int(cells[1]), ()), int(cells[2]))
    return supported


def parse_computing(output: Output) -> dict[str, tuple[str, ...]]:
    """Parse the compute processes by PCI address: `python3 (pid 17)`."""
    _require_complete(output, "the processes that compute")
    processes: dict[str, tuple[str, ...]] = {}
    for line in output.text.splitlines():
        bus, pid, name = ([cell.strip() for cell in line.split(",", 2)] + ["", ""])[:3]
        if re.fullmatch(r"[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7]", bus) and pid:
            processes[normalize_address(bus)] = (
                *processes.get(normalize_address(bus), ()),
                f"{name.rpartition('/')[2] or 'process'} (pid {pid})",
            )
    return processes


def _require_complete(output: Output, what: str) -> None:
    """Raise ProbeFailed unless nvidia-smi completed: an empty list is an answer only then."""
    if output.text.splitlines()[-1:] != [SEEN]:
        message = " ".join((output.error or output.text).split())[:200]
        raise ProbeFailed(f"{what} could not be listed: {message or 'the host gave no whole answer'}")


SEEN = "looked"
HERE = "command -v nvidia-smi >/dev/null || exit 127; "
QUERY = "nvidia-smi -q -d ECC,POWER,CLOCK,COMPUTE,PERFORMANCE"
SETTINGS = Probe("gpu_settings", f"{HERE}{QUERY} 2>&1", parse_settings, QUERY, speaks=True, knows_missing=True)
CLOCKS_QUERY = "nvidia-smi --query-supported-clocks=gpu_bus_id,mem,gr --format=csv,noheader,nounits"
CLOCKS = Probe(
    "gpu_clocks",
    f"{HERE}{CLOCKS_QUERY} 2>&1 && echo {SEEN}",
    parse_clocks,
    "nvidia-smi -q -d SUPPORTED_CLOCKS",
    blank="looked$",
)
COMPUTING_QUERY = "nvidia-smi --query-compute-apps=gpu_bus_id,pid,name --format=csv,noheader"
COMPUTING = Probe(
    "gpu_computing", f"{HERE}{COMPUTING_QUERY} 2>&1 && echo {SEEN}", parse_computing, COMPUTING_QUERY, blank="looked$"
)
CONFIDENTIAL = Probe(
    "gpu_confidential",
    f"{HERE}nvidia-smi conf-compute -f 2>&1; nvidia-smi conf-compute -d 2>&1; nvidia-smi conf-compute -q 2>&1; true",
    parse_confidential,
    "nvidia-smi conf-compute -q",
)
KEPT = Probe(
    "gpu_settings_kept",
    f"""systemctl is-enabled {UNIT} 2>/dev/null
echo "@module $(stat -c %i /sys/module/nvidia 2>/dev/null)"
echo @config; cat {CONFIG} 2>/dev/null
echo; echo @record; cat {RECORD} 2>/dev/null; true""",
    parse_kept,
    f"systemctl is-enabled {UNIT}; cat {CONFIG} {RECORD}",
    speaks=True,
    blank="@config$",
)
