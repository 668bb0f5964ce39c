"""The health that each GPU reports: ECC, row remapping, retired pages, slowdown, temperature, power, clocks, memory in
use, PCIe replays, firmware."""

import re

import msgspec

from gpuprov.facts.probes.base import Output, Probe, ProbeFailed
from gpuprov.facts.probes.gpus.gpu_settings import OLD_POWER, POWER, Values, split_gpus
from gpuprov.facts.probes.gpus.gpu_state import Clocks, Ecc, GpuHealth, State
from gpuprov.facts.probes.gpus.smi_query import explain_truncation
from gpuprov.facts.probes.host.pci import VFIO

# Slowdown reasons other than settings and the power limit, which every busy GPU reaches.
SLOW = ("HW Slowdown", "HW Thermal Slowdown", "HW Power Brake Slowdown", "SW Thermal Slowdown")
# In place of values: NVML_ERROR_GPU_IS_LOST, _RESET_REQUIRED
# (https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceEnumvs.html).
BROKEN = ("GPU is lost", "GPU requires reset")
ERRORS = ("Unknown Error", "[Unknown Error]")
# Headings below which an error would hide values that checks need.
JUDGED = ("ECC Mode", "Ecc Mode", "ECC Errors", "Remapped Rows", "Retired Pages", "GPU Recovery Action")
# What stands below these headings where the GPU tells it; a recovery action is a word of NVIDIA's.
#         Max                                            : 3072 bank(s)
#         Remapping Failure Occurred                     : No
TOLD = re.compile(r"\d{1,18}(?: bank\(s\))?|\[?N/A\]?|Yes|No|None|Enabled|Disabled")
REPAIRS = ("Channel Repair Pending", "TPC Repair Pending")  # with Unrepairable Memory, from driver 570 on
REASONS = ("Clocks Event Reasons", "Clocks Throttle Reasons")


def parse(output: Output) -> State:
    head, _, text = output.text.partition("@smi\n")
    match = re.search(r"^@present (\d{1,4})$", head, re.MULTILINE)
    present, bus = int(match[1]) if match else 0, match is not None
    match = re.search(r"^@given (\d{1,4})$", head, re.MULTILINE)
    given = int(match[1]) if match else 0
    gone = tuple(re.findall(r"^@gone (\S{7,16})$", head, re.MULTILINE))
    if output.status == 127:
        return State(present=present, given=given, complaint="nvidia-smi is not installed")
    if output.status == 124 and (problem := explain_truncation(text)):
        raise ProbeFailed(f"{problem} within 50 s", "run nvidia-smi -q on the host: it may hang; dmesg")
    later = {address: _list_slowdowns(values) for address, values in split_gpus(head.partition("@again\n")[2])}
    healths = [
        _confirm_slowdown(_parse_gpu(address, values), later.get(address)) for address, values in split_gpus(text)
    ]
    gpus = tuple(sorted(healths, key=lambda gpu: gpu.address))
    warnings = tuple(line.strip() for line in text.splitlines() if line.startswith("WARNING:"))
    message = " ".join((text or output.error).split())[:300]
    listed = "it says that no GPU is attached" if NO_GPUS in message else message or "nvidia-smi lists no GPU"
    complaint = "" if gpus else listed
    if complaint and output.status == 124 and not message:
        complaint = "nvidia-smi does not answer within 50 s"
    return State(gpus=gpus, present=present, given=given, gone=gone, warnings=warnings, complaint=complaint, bus=bus)


def _confirm_slowdown(gpu: GpuHealth, later: tuple[str, ...] | None) -> GpuHealth:
    """Replace a lone HW Slowdown by the reasons of the `later` reading, if any: without heat or power brake it may be a
    clock change, which is over three seconds later."""
    # https://docs.nvidia.com/deploy/nvml-api/group__nvmlClocksEventReasons.html
    if gpu.slow != SLOW[:1] or later is None:
        return gpu
    return msgspec.structs.replace(gpu, slow=later)


def _parse_gpu(address: str, values: Values) -> GpuHealth:
    power = POWER if any(path[0] == POWER for path in values) else OLD_POWER
    ecc = "ECC Mode" if ("ECC Mode", "Current") in values else "Ecc Mode"
    mode = values.get((ecc, "Current"), "")
    draws = [values.get((power, f"{kind}Power Draw"), "") for kind in ("", "Average ", "Instantaneous ")]
    return GpuHealth(
        address=address,
        name=values.get(("Product Name",), ""),
        serial=_parse_text(values.get(("Serial Number",))),
        uuid=_parse_text(values.get(("GPU UUID",))),
        brand=_parse_text(values.get(("Product Brand",))),
        board=_parse_text(values.get(("PCI", "Sub System Id"))),
        part=_parse_text(values.get(("Board Part Number",))),
        ecc=mode.lower() if mode in ("Enabled", "Disabled") else "",
        volatile=_parse_ecc(values, "Volatile"),
        aggregate=_parse_ecc(values, "Aggregate"),
        sram_exceeded=_parse_yes_no(values.get(("ECC Errors", "Aggregate", "SRAM Threshold Exceeded"))),
        remapped=_parse_integer(values.get(("Remapped Rows", "Uncorrectable Error"))),
        remapped_corrected=_parse_integer(values.get(("Remapped Rows", "Correctable Error"))),
        remap_pending=_parse_yes_no(values.get(("Remapped Rows", "Pending"))),
        remap_failed=_parse_yes_no(values.get(("Remapped Rows", "Remapping Failure Occurred"))),
        repairs=tuple(name for name in REPAIRS if values.get(("ECC Errors", name)) == "Yes"),
        unrepairable=_parse_yes_no(values.get(("ECC Errors", "Unrepairable Memory"))),
        retired=_sum(values.get(("Retired Pages", f"{kind} Bit ECC")) for kind in ("Single", "Double")),
        retired_pending=_is_retirement_pending(values),
        slow=_list_slowdowns(values),
        degrees=_parse_integer(values.get(("Temperature", "GPU Current Temp"))),
        below=_compute_margin(values, "GPU"),
        memory_below=_compute_memory_margin(values),
        draw=next((watts for draw in draws if (watts := _parse_watts(draw)) is not None), None),
        draw_hidden=any(draw in ERRORS for draw in draws),
        limit=_parse_watts(_get_either(values, power, "Requested Power Limit", "Power Limit")),
        enforced=_parse_watts(_get_either(values, power, "Current Power Limit", "Enforced Power Limit")),
        replays=_parse_integer(values.get(("PCI", "Replays Since Reset"))),
        width=_parse_integer((values.get(("PCI", "GPU Link Info", "Link Width", "Current")) or "").removesuffix("x")),
        vbios=_parse_text(values.get(("VBIOS Version",))),
        inforom=_parse_text(values.get(("Inforom Version", "Image Version"))),
        recovery=_parse_text(values.get(("GPU Recovery Action",))),
        reset_required=_parse_yes_no(values.get(("GPU Reset Status", "Reset Required"))),
        reset_advised=_parse_yes_no(values.get(("GPU Reset Status", "Drain and Reset Recommended"))),
        broken=_find_broken(values),
        untold=tuple(dict.fromkeys(path[0] for path, value in values.items() if _is_untold(path, value))),
        clocks=_parse_clocks(values),
        used=_parse_used_memory(values),
        processes=_has_processes(values),
        coherent=values.get(("Addressing Mode",)) == "ATS",
        prohibited=values.get(("Compute Mode",)) == "Prohibited",
    )


def _is_untold(path: tuple[str, ...], value: str) -> bool:
    """Return whether a value that checks need is none: an error, or nothing that can be read."""
    if path[0] in REASONS:
        return path[-1] in SLOW and value not in ("Active", "Not Active", "N/A", "[N/A]")
    return value in ERRORS if path == ("GPU Recovery Action",) else path[0] in JUDGED and not TOLD.fullmatch(value)


def _find_broken(values: Values) -> str:
    texts = {value.strip("[]") for path, value in values.items() if path[0] != "Processes"}
    return next((words for words in BROKEN if words in texts), "")


def _get_either(values: Values, heading: str, *names: str) -> str | None:
    """Return the first of these lines that exists under the heading; the names differ between driver versions."""
    return next((values[heading, name] for name in names if (heading, name) in values), None)


def _parse_text(value: str | None) -> str:
    return "" if value in (None, "N/A", "[N/A]", "Unknown Error", "[Unknown Error]") else str(value)


def _parse_integer(value: str | None) -> int | None:
    """Parse an integer with or without a unit; None for N/A."""
    # GPU T.Limit Temp                               : 46 C
    # GPU Shutdown T.Limit Temp                      : -8 C
    # Replays Since Reset                            : 0
    match = re.match(r"(-?\d{1,18})(?: C)?\Z", value or "")
    return int(match[1]) if match else None


def _parse_watts(value: str | None) -> float | None:
    # Average Power Draw                             : 80.25 W
    match = re.fullmatch(r"(\d{1,6}(?:\.\d+)?) W", value or "")
    return float(match[1]) if match else None


def _parse_yes_no(value: str | None) -> bool | None:
    return {"Yes": True, "No": False}.get(value or "")


def _is_retirement_pending(values: Values) -> bool | None:
    """Return whether a page waits for retirement by either name of the line; None if neither says."""
    # Retired Pages (H100, driver 535: it remaps rows, and retires none)
    #     Single Bit ECC                    : N/A
    #     Double Bit ECC                    : N/A
    #     Pending Page Blacklist            : N/A
    names = ("Pending Page Blacklist", "Pending")
    words = [_parse_yes_no(values.get(("Retired Pages", name))) for name in names]
    return True if True in words else False if False in words else None


def _sum(counts: object) -> int | None:
    known = [number for value in counts if (number := _parse_integer(value)) is not None]  # type: ignore[attr-defined]
    return sum(known) if known else None


def _parse_ecc(values: Values, when: str) -> Ecc:
    """Parse ECC counters: since Turing by SRAM and DRAM, with several lines for uncorrectable errors; before that by
    bits, with a total."""
    # ECC Errors (H200, driver 580)
    #     Volatile
    #         SRAM Correctable                           : 0
    #         SRAM Uncorrectable Parity                  : 0
    #         SRAM Uncorrectable SEC-DED                 : 0
    #         DRAM Correctable                           : 0
    #         DRAM Uncorrectable                         : 0
    counters = {path[2:]: value for path, value in values.items() if path[:2] == ("ECC Errors", when)}
    if any(path[0] in ("Single Bit", "Double Bit") for path in counters):
        return Ecc(
            corrected=_parse_integer(counters.get(("Single Bit", "Total"))),
            uncorrected=_parse_integer(counters.get(("Double Bit", "Total"))),
        )
    return Ecc(
        corrected=_sum(value for path, value in counters.items() if path[0].endswith(" Correctable")),
        uncorrected=_sum(value for path, value in counters.items() if " Uncorrectable" in path[0]),
    )


def _list_slowdowns(values: Values) -> tuple[str, ...] | None:
    # H100 under a power brake, driver 535 (https://github.com/leptonai/gpud, its testdata):
    #     Clocks Event Reasons
    #         HW Slowdown                       : Active
    #             HW Thermal Slowdown           : Not Active
    #             HW Power Brake Slowdown       : Active
    reasons = {path[-1]: value for path, value in values.items() if path[0] in REASONS}
    known = [name for name in SLOW if reasons.get(name) in ("Active", "Not Active")]
    return tuple(name for name in known if reasons[name] == "Active") if known else None


def _parse_clocks(values: Values) -> Clocks:
    reasons = {path[-1]: value for path, value in values.items() if path[0] in REASONS}
    known = [name for name, value in reasons.items() if value in ("Active", "Not Active")]
    return Clocks(
        graphics=_parse_with_unit(values.get(("Clocks", "Graphics")), "MHz"),
        most_graphics=_parse_with_unit(values.get(("Max Clocks", "Graphics")), "MHz"),
        most_memory=_parse_with_unit(values.get(("Max Clocks", "Memory")), "MHz"),
        set_graphics=_parse_with_unit(values.get(("Applications Clocks", "Graphics")), "MHz"),
        set_memory=_parse_with_unit(values.get(("Applications Clocks", "Memory")), "MHz"),
        held=tuple(name for name in known if reasons[name] == "Active")
        if {"Idle", "SW Power Cap"} <= set(known)
        else None,
        busy=_parse_utilization(values),
    )


def _parse_utilization(values: Values) -> int | None:
    """Parse the utilization."""
    # Without persistence, nvidia-smi initializes the driver itself, which can count as 100 % without any program:
    # https://github.com/jina-ai/clip-as-service/issues/254
    if values.get(("Persistence Mode",)) != "Enabled" and _has_processes(values) is False:
        return None
    # Utilization, with `GPU` (driver 580) or `Gpu` (560): 0 %
    return _parse_with_unit(_get_either(values, "Utilization", "GPU", "Gpu"), "%")


def _parse_used_memory(values: Values) -> int | None:
    """Parse the memory in use."""
    # Before driver 510, the reserved part of a vGPU (2 GiB of 24) counts as used.
    mode = _get_either(values, "GPU Virtualization Mode", "Virtualization Mode", "Virtualization mode")
    if mode == "VGPU" and ("FB Memory Usage", "Reserved") not in values:
        return None
    return _parse_with_unit(values.get(("FB Memory Usage", "Used")), "MiB")


def _parse_with_unit(value: str | None, unit: str) -> int | None:
    # SM                                             : 345 MHz
    match = re.fullmatch(rf"(\d{{1,9}}) {unit}", value or "")
    return int(match[1]) if match else None


def _has_processes(values: Values) -> bool | None:
    # Processes                                          : None
    if ("Processes",) in values:
        return False if values["Processes",] == "None" else None
    return True if ("Processes", "Process ID") in values else None


def _compute_margin(values: Values, what: str) -> int | None:
    """Return the degrees that T.Limit is above its slowdown threshold, or else the temperature below its own."""
    # Ada and Hopper GPUs show distances from a limit, which shrink as they get hot (H200, driver 580):
    #     GPU Current Temp                               : 41 C
    #     GPU T.Limit Temp                               : 46 C
    #     GPU Slowdown T.Limit Temp                      : -2 C
    # older ones show temperatures, and N/A there (Titan V, driver 560):
    #     GPU Current Temp                  : 44 C
    #     GPU Shutdown Temp                 : 100 C
    left = _parse_integer(values.get(("Temperature", f"{what} T.Limit Temp")))
    mark = _parse_integer(values.get(("Temperature", f"{what} Slowdown T.Limit Temp")))
    if left is not None and mark is not None:
        return left - mark
    now, slowdown = (
        _parse_integer(values.get(("Temperature", f"{what} {name} Temp"))) for name in ("Current", "Slowdown")
    )
    return slowdown - now if now is not None and slowdown is not None else None


def _compute_memory_margin(values: Values) -> int | None:
    now, most = (
        _parse_integer(values.get(("Temperature", f"Memory {name} Temp"))) for name in ("Current", "Max Operating")
    )
    return most - now if now is not None and most is not None else None


QUERY = "nvidia-smi -q"
NO_GPUS = "Attached GPUs : 0"
GPU_HEALTH = Probe(
    "gpu_health",
    f"""n=0 g=0
for d in /sys/bus/pci/devices/*; do
  [ "$(cat "$d/vendor" 2>/dev/null)" = 0x10de ] && [ ! -e "$d/physfn" ] || continue
  case $(cat "$d/class" 2>/dev/null) in 0x0300*|0x0302*) ;; *) continue;; esac
  case $(readlink "$d/driver" 2>/dev/null) in {VFIO}) g=$((g + 1));; *) n=$((n + 1));; esac
done
echo "@present $n"; echo "@given $g"
command -v nvidia-smi >/dev/null || exit 127
o=$(timeout 50 {QUERY} 2>&1); r=$?
# The second reading is printed before the first: a program's name in that one may hold any line.
if printf '%s\\n' "$o" | grep -q 'HW Slowdown  *: Active'; then
  sleep 3; echo @again; timeout -s KILL 20 {QUERY} -d PERFORMANCE 2>/dev/null
fi
echo @smi; printf '%s\\n' "$o"; exit $r""",
    parse,
    QUERY,
    speaks=True,
    knows_missing=True,
    blank="@present 0$",
)
