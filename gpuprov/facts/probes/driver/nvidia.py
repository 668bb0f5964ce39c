"""The running driver: kernel module, user-space libraries, nvidia-smi, and the processes that hold a GPU."""

from __future__ import annotations

import re

import msgspec

from gpuprov.facts.probes.base import Output, Probe, ProbeFailed
from gpuprov.facts.probes.host.systemd import UNIT_OF
from gpuprov.rules.reload import shown_name


class LoadedDriver(msgspec.Struct, frozen=True):
    """The loaded NVIDIA kernel module: its version (empty if none is loaded) and whether it is the open one."""

    version: str
    open: bool


class Smi(msgspec.Struct, frozen=True):
    """Output of nvidia-smi: one row per GPU, or its error."""

    gpus: tuple[SmiGpu, ...] = ()
    complaint: str = ""
    installed: bool = True
    # Lines about GPUs that it reports nevertheless.
    warnings: tuple[str, ...] = ()


class SmiGpu(msgspec.Struct, frozen=True):
    """A GPU by NVML. `bus` as sysfs writes it (`0000:3b:00.0`)."""

    bus: str
    name: str
    uuid: str
    driver: str
    persistence: bool


class Client(msgspec.Struct, frozen=True):
    """A process that has an NVIDIA device file open."""

    pid: int
    command: str
    # Its systemd unit or container scope, empty if unknown.
    unit: str


def parse_loaded(output: Output) -> LoadedDriver:
    # NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.163.01  Tue Apr  8 12:41:17 UTC 2025
    # NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  565.57.01  Release Build  (dvs-builder@U16-A24-9-2)  ...
    # The open module has its version in the middle, and some releases have two numbers only: 555.58.
    match = re.search(r"^NVRM version:.*?\s(\d+(?:\.\d+)+)\s", output.text, re.MULTILINE)
    return LoadedDriver(match[1] if match else "", "Open Kernel Module" in output.text)


def parse_parameters(output: Output) -> dict[str, str]:
    # /proc/driver/nvidia/params, driver 535: `EnableGpuFirmware: 18`
    if strange := [line for line in output.text.splitlines() if line.strip() and not re.match(r"\w+:", line.strip())]:
        raise ProbeFailed(f"the parameters of the driver have a line that is none of them: {strange[0][:80]!r}")
    pairs = (line.partition(":") for line in output.text.splitlines() if ":" in line)
    shown = {key.strip(): value.strip().strip('"') for key, _, value in pairs}
    return {shown_name(key): value for key, value in shown.items()}


def parse_libraries(output: Output) -> dict[str, str]:
    libraries: dict[str, str] = {}
    for line in output.text.splitlines():
        # /usr/lib/x86_64-linux-gnu/libcuda.so.565.57.01
        match = re.search(r"/(lib[\w-]+)\.so\.(\d+(?:\.\d+)+)\Z", line)
        if match:
            libraries.setdefault(match[1], match[2])  # the linker takes the first that its cache lists
    return libraries


# A line that nvidia-smi adds to a complete answer, and its exit status in that case:
# https://docs.nvidia.com/datacenter/cloud-native/gpu-operator/latest/troubleshooting.html
WARNING, WORN = "WARNING: infoROM is corrupted", 14


def parse_smi(output: Output) -> Smi:
    if output.status == 127:
        return Smi(installed=False, complaint="nvidia-smi is not installed")
    rows = []
    for line in output.text.splitlines():
        # 00000000:19:00.0, NVIDIA H100 80GB HBM3, GPU-3c1f6d5e-0f2b-7d77-5b0e-0d5e6d6f4a10, 535.261.03, Enabled
        # A lost GPU has no row, but: Unable to determine the device handle for GPU0000:3B:00.0: Unknown Error
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) == 5 and cells[2].startswith("GPU-"):
            bus = cells[0].lower()
            bus = bus[4:] if len(bus.partition(":")[0]) == 8 else bus
            rows.append(SmiGpu(bus, cells[1], cells[2], cells[3], cells[4] == "Enabled"))
    answers = output.status in (0, WORN) and bool(rows)
    complaint = "" if answers else " ".join((output.text or output.error).split())
    return Smi(
        tuple(rows), complaint, warnings=tuple(line.strip() for line in output.text.splitlines() if WARNING in line)
    )


def parse_clients(output: Output) -> tuple[Client, ...]:
    """Parse the processes. An empty list is an answer only if the tools that look for them worked."""
    *lines, last = output.text.splitlines() or [""]
    if last != SEEN:
        message = " ".join((output.error or output.text).split())[:200]
        raise ProbeFailed(
            f"the processes that hold a GPU could not be listed: {message or 'the host gave no whole answer'}"
        )
    clients = []
    for line in lines:
        pid, _, rest = line.partition("|")
        command, _, unit = rest.rpartition("|")
        clients.append(Client(int(pid), command, unit))
    return tuple(clients)


DRIVER = Probe(
    "loaded_driver",
    "cat /proc/driver/nvidia/version 2>/dev/null; true",
    parse_loaded,
    "cat /proc/driver/nvidia/version",
)
# Parameters of the loaded module, named as modprobe takes them; numbers are unsigned 32-bit decimals.
PARAMETERS = Probe(
    "driver_parameters",
    "cat /proc/driver/nvidia/params 2>/dev/null; true",
    parse_parameters,
    "cat /proc/driver/nvidia/params",
)
# Versions of the user-space libraries that programs load: `libcuda`, `libnvidia-ml`.
LIBRARIES = Probe(
    "driver_libraries",
    "ldconfig -p | sed -n 's/.*=> //p' | grep -E '/lib(cuda|nvidia-ml)\\.so\\.1$' | xargs -r readlink -f",
    parse_libraries,
    "readlink -f $(ldconfig -p | grep -oE '/.*lib(cuda|nvidia-ml).so.1$')",
)
SMI_QUERY = "nvidia-smi --query-gpu=pci.bus_id,name,uuid,driver_version,persistence_mode --format=csv,noheader"
SMI = Probe(
    "nvidia_smi",
    f"command -v nvidia-smi >/dev/null || exit 127; {SMI_QUERY} 2>&1",
    parse_smi,
    SMI_QUERY,
    knows_missing=True,
)
# The last line of a list of clients: find, sort and sed found the script's own process just before.
SEEN = "looked"
# Processes that hold a GPU. In a container sharing the machine's kernel it sees only the container's own.
CLIENTS = Probe(
    "gpu_clients",
    UNIT_OF
    + """find /proc/[0-9]*/fd -lname '/dev/nvidia*' -printf '%h\\n' 2>/dev/null | sort -u | while read -r f; do
  p=${f%/fd}; c=""; u=""
  read -r c < "$p/comm"
  u=$(unit_of "$p/cgroup")
  echo "${p#/proc/}|$c|$u"
done
[ "$(find /proc/$$/cwd -prune -lname '/*' -printf 'x\\n' | sort -u | sed -n 's/x/found/p' | tail -n 1)" = found ] &&
  echo looked""",
    parse_clients,
    "fuser -v /dev/nvidia*",
)
