"""health: what the kernel log and the GPUs say, what NVIDIA says is to be done, and whether the host is fit for
work."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gpuprov.capabilities.base import Context
from gpuprov.capabilities.gpu_settings.fragment import ApplicationClocks, Entry, GpuSettings, LockedClocks
from gpuprov.capabilities.health import CAPABILITY, rules, watched
from gpuprov.capabilities.health.fragment import FirmwareVersions, Health
from gpuprov.catalog.health import read_health_file
from gpuprov.explain import all_checks
from gpuprov.facts.probes.base import Output, ProbeFailed
from gpuprov.simulate import faults
from gpuprov.spec.build import convert
from gpuprov.spec.model import GpuSpec, HostSpec
from gpuprov.spec.problem import SpecError
from tests.capabilities.asking import Row, ask, facts, judge
from tests.capabilities.health_host import (
    BOOT,
    GPU,
    GSP,
    NEEDS_NOTHING,
    NEEDS_RESET,
    NOW,
    OFF_THE_BUS,
    WELL,
    boards,
    both,
    files,
    flaps,
    hardware,
    log,
    nvlinks,
    ports,
    readings,
    real,
    smi,
    xid,
)  # fmt: skip
from tests.facts.probes import captured
from tests.rows import run_each

LOG, XID, PROGRAMS, SXID, GPUS, RECOVERY = (
    f"health.{name}" for name in ("kernel_log", "xid", "programs", "sxid", "gpus", "recovery")
)
MODE, ERRORS, ROWS_, PAGES, SLOW, HEAT, POWER, CLOCKS = (
    f"health.{name}"
    for name in (
        "ecc_mode",
        "ecc_errors",
        "remapped_rows",
        "retired_pages",
        "slowdown",
        "temperature",
        "power",
        "clocks",
    )
)
SWITCH = "nvidia-nvswitch1: SXid (PCI:0000:06:00.0): {}"
A10, RTX, TITAN = real("a10-gpud-535"), real("rtx4090-gpud-535"), real("titan-v-560")
LOST = "@present 8\n@smi\nUnable to determine the device handle for GPU0000:19:00.0: GPU is lost.  Reboot the system\n"


def said(*lines: str, **given: Any) -> dict[str, str]:
    return {"kernel_log": log(*lines, **given)}


def gpus(text: str = "", **changed: Any) -> dict[str, str]:
    return {"gpu_health": text or smi(**changed)}


def silent_links(name: str) -> dict[str, str]:
    """Two GPUs of a model, of whose NVLinks nvidia-smi prints nothing."""
    text = both().replace("NVIDIA H100 80GB HBM3", name)
    assert text.count(name) == 2
    return {"gpu_health": text, "nvlink_errors": "@status 0\n"}


def lower(graphics: int) -> dict[str, str]:
    """Application clocks below the highest, as `smi` takes lines by their names."""
    return {"Applications Clocks\n        Graphics": f"{graphics} MHz"}


def busy(graphics: int, percent: int = 100, **changed: Any) -> str:
    """A GPU that computes at this clock."""
    text = re.sub(r"(\n    Clocks\n +Graphics +: )\d+", rf"\g<1>{graphics}", smi(Gpu=f"{percent} %", **changed))
    assert f": {graphics} MHz" in text
    return text


def repairs(channel: str = "No", tpc: str = "No", past: str = "No") -> str:
    """The lines that drivers from 570 on have at the end of ECC Errors, as an 595 prints them."""
    lines = {"Channel Repair Pending": channel, "TPC Repair Pending": tpc, "Unrepairable Memory": past}
    told = "".join(f"        {name:<34}: {value}\n" for name, value in lines.items())
    return smi(text=WELL.replace("    Retired Pages\n", f"{told}    Retired Pages\n", 1))


def draws(average: str, instantaneous: str) -> str:
    """The lines of drivers from 550 on in place of Power Draw."""
    lines = f"Average Power Draw : {average}\n        Instantaneous Power Draw : {instantaneous}"
    return smi(text=re.sub(r"(?m)Power Draw +: .*$", lines, WELL, count=1))


def twice(line: str) -> str:
    """A GPU that is slowed down at the first look, with what the second one shows of it."""
    later = f"GPU {GPU.upper().replace('0000:', '00000000:', 1)}\n    Clocks Event Reasons\n        {line}\n"
    return smi(HW_Slowdown="Active").replace("@smi\n", f"@again\n{later}@smi\n")


UNDRIVEN = {"gpu_health": "@present 8\n@smi\nNVIDIA-SMI has failed\n", "container": "podman\n", "loaded_driver": ""}
NO_ECC = {"ECC_Mode\n        Current": "Disabled"}
IDLES = "    Processes                             : None\n"
WORKS = (
    "    Processes\n        GPU instance ID                   : N/A\n        Process ID                        : 7\n"
)
DEPRECATED = r"\g<1>Requested functionality has been deprecated"
GONE = re.sub(
    r"((?:Default )?Applications Clocks\n +Graphics +: ).*\n( +Memory +: ).*", rf"{DEPRECATED}\n\g<2>N/A", smi()
)
NO_CLOCKS = re.sub(r"(Max Clocks\n +Graphics +: ).*", r"\g<1>N/A", WELL)
ROWS = [
    Row("a whole log", LOG, None, {}, "pass", "journal, since 2025-11-22 08:26 UTC"),
    Row("refused until a reset", "health.driver_log", None, said("NVRM: Reset required [NV_ERR_RESET_REQUIRED]"),
        "fail", "RESET"),
    Row("no log", LOG, None, said(source=""), "fail", "neither the journal nor dmesg", "run as root"),
    Row("a log that was cut off", LOG, None, said(first=NOW - 7200), "skip", "what was said before"),
    Row("a container's own log is short", LOG, None, {**said(first=NOW - 7200), "container": "podman\n"}, "pass"),
    Row("compute modes", "health.compute_mode", None, {}, "pass"),
    Row("a GPU on which nobody may compute", "health.compute_mode", None,
        {"gpu_health": smi(Compute_Mode="Prohibited")}, "fail",
        "0000:19:00.0 is in mode Prohibited", "nvidia-smi -c 0"),
    Row("no Xid", XID, None, {}, "pass", "none since"),
    Row("off the bus", XID, None, said(OFF_THE_BUS), "fail", "RESTART_BM, restart the host", "gpuprov explain 79"),
    Row("twice", XID, None, said(OFF_THE_BUS, OFF_THE_BUS), "fail", "Xid 79 on 0000:19:00, 2 times, last"),
    Row("of a MIG instance", XID, None, said(xid(95, "pid=7062, Uncontained: LTC TAG (0x2,0x0)",
                                                 bus="0000:19:00 GPU-I:05 GPU-CI:00")),
        "fail", "Xid 95 on 0000:19:00,", "reset the GPU"),
    Row("the most severe first", XID, None, said(OFF_THE_BUS, GSP), "fail", "Xid 79 on 0000:19:00", "restart the host"),
    Row("the driver says what it needs", XID, None, said(NEEDS_RESET), "fail", "reset the GPU",
        "nvidia-smi --gpu-reset"),
    Row("the driver says that it needs nothing", XID, None, said(GSP, NEEDS_RESET, NEEDS_NOTHING), "pass",
        "let pass: Xid 154; past: Xid 119 on 0000:19:00"),
    Row("another GPU still does", XID, None, said(GSP.replace("19:", "3b:"), NEEDS_NOTHING), "fail",
        "Xid 119 on 0000:3b:00"),
    Row("a need that nobody knows", XID, None, said(NEEDS_RESET.replace("GPU Reset", "Exorcism")), "fail",
        "does not know"),
    Row("from before the boot", XID, Health(since="7d"), said(OFF_THE_BUS, since=BOOT - 9000, at=BOOT - 500,
                                                              first=BOOT - 99999),
        "pass", "; past: Xid 79 on 0000:19:00"),
    Row("which a boot does not fix", XID, Health(since="7d"),
        said(xid(54, "x"), since=BOOT - 9000, at=BOOT - 500, first=BOOT - 99999), "fail", "CHECK_MECHANICALS"),
    Row("an Xid that asks for nothing", XID, None, said(xid(43)), "pass", "noted and let pass: Xid 43"),
    Row("an Xid without an action", XID, None, said(xid(167)), "skip", "names nothing"),
    Row("an Xid that nobody knows", XID, None, said(xid(999)), "skip", "names nothing"),
    Row("one that is ignored", XID, Health(ignored_xids=(79,)), said(OFF_THE_BUS), "pass", "let pass: Xid 79"),
    Row("NVLink 5, fatal", XID, None, said(xid(149, "NETIR_LINK_EVT Fatal XC0 i0 Link 08 (0x004505c6)")), "fail",
        "reset the GPU"),
    Row("NVLink 5, fatal, and then not", XID, None, said(xid(149, "NETIR_LINK_EVT Fatal XC0 i0 Link 08 (0x0)"),
        xid(149, "NETIR_BER_EVENT Nonfatal XC0 i0 Link 03 (0x0)")), "fail", "NETIR_LINK_EVT Fatal", "reset the GPU"),
    Row("NVLink 5, not fatal", XID, None, said(xid(149, "NETIR_BER_EVENT Nonfatal XC0 i0 Link 03 (0x0)")), "pass"),
    Row("NVLink 5, a link that software took down", XID, None,
        said(xid(149, "NETIR_LINK_EVT Fatal XC0 i0 Link 00 (0x026001c6 0x00000000)")), "pass"),
    Row("NVLink 5, one of the host, from R575 on", XID, None,
        said(xid(149, "NETIR_LINK_DOWN Fatal XC0 i0 Link 00 (0x02800011 0x00000000)")), "pass"),
    *(Row(bits, XID, None, said(xid(149, f"NETIR_LINK_EVT Fatal XC0 i0 Link 00 ({bits} 0x00000000)")), "fail",
          "RESET_GPU")
      for bits in ("0x025001c6", "0x016415c6", "0x021425c6", "0x025525c6")),
    Row("NVLink 5, promoted", XID, None, said(xid(145, "RLW_RXPIPE Nonfatal XC0 i0 Link 00 (0x00000086 0x00000002)")),
        "fail", "RESET_GPU"),
    Row("NVLink 5, not promoted", XID, None,
        said(xid(145, "RLW_RXPIPE Nonfatal XC0 i0 Link 00 (0x0409a0c2 0x00000002)")), "pass"),
    Row("NVLink 5, fatal by its word", XID, None, said(xid(145,
                                                           "RLW_RXPIPE Fatal XC0 i0 Link 00 (0x0409a0c2 0x00000002)")),
                                                           "fail"),
    Row("NVLink 5, a program's", PROGRAMS, Health(program_errors="fail"),
        said(xid(145, "RLW_REMAP Nonfatal XC1 i0 Link 07 (0x00000004 0x00000004)")), "fail", "XID_154_EVAL"),
    Row("the link to the CPU", XID, None, said(xid(159)), "fail", "CHECK_UVM", "reset the GPU"),
    Row("a program's", XID, None, said(xid(31)), "pass", "let pass: Xid 31"),
    Row("a program's is told", PROGRAMS, None, said(xid(31)), "pass", "reported only: Xid 31"),
    Row("a program's fails", PROGRAMS, Health(program_errors="fail"), said(xid(94)), "fail", "RESTART_APP",
        "explain 94"),
    Row("no program's", PROGRAMS, None, said(OFF_THE_BUS), "pass", "none since"),
    Row("no SXid", SXID, None, {}, "pass", "none since"),
    Row("a fatal SXid", SXID, None, said(SWITCH.format("20034, Fatal, Link 48 LTSSM Fault Up")), "fail", "SXid 20034",
        "reset all"),
    Row("only a restart fixes it", SXID, None, said(SWITCH.format("22003, Fatal, Link 3 Minion Halt")), "fail",
        "restart the host"),
    Row("one that is not fatal", SXID, None,
        said(SWITCH.format("22013, Non-fatal, Link 57 Minion Link DLREQ interrupt")), "pass",
        "1 that ask for nothing"),
    Row("its further lines", SXID, None, said(SWITCH.format("20034, Severity 1 Engine instance 60")), "pass", "none"),
    Row("all GPUs answer", GPUS, None, {}, "pass", "1 GPU"),
    Row("a GPU is lost", GPUS, None, gpus(LOST), "fail", "GPU is lost", "explain 79"),
    Row("one of two is missing", GPUS, None, gpus(smi(2)), "fail", "1 GPU: 0000:19:00.0", "restart the host"),
    Row("as the driver tells of one that fell off the bus", GPUS, None,
        gpus("@present 8\n@smi\nUnable to determine the device handle for GPU0000:3B:00.0: Unknown Error\n"), "fail",
        "device handle",
        "restart the host"),
    Row("the driver did not start one", GPUS, None,
        gpus("@present 8\n@smi\nUnable to determine the device handle for GPU 0000:D8:00.0: Not Found\n"), "fail",
        "Not Found",
        "the driver did not start it"),
    Row("its device file may not be opened", GPUS, None,
        gpus("@present 8\n@smi\nUnable to determine the device handle for gpu 0000:D8:00.0: Insufficient Permissions\n"), "fail",
        "Insufficient Permissions", "run as root"),
    Row("one is lost, and listed", GPUS, None, gpus(both(Current="GPU is lost")), "fail",
        "0000:3b:00.0 says: GPU is lost", "restart"),
    Row("one asks for a reset in place of values", GPUS, None, gpus(both(Pending="[GPU requires reset]")), "fail",
        "0000:3b:00.0 says: GPU requires reset", "gpu-reset"),
    Row("a counter that is not a number of errors", "health.ecc_errors", None,
        gpus(DRAM_Uncorrectable="18446744073709551615"),
        "skip", "values of 0000:19:00.0 cannot be read: ECC Errors"),
    Row("nor is another check's", GPUS, None, gpus(DRAM_Uncorrectable="18446744073709551615"), "skip", "ECC Errors"),
    Row("rows in words", "health.remapped_rows", None, gpus(Remapping_Failure_Occurred="Perhaps"),
        "skip", "cannot be read: Remapped Rows"),
    Row("a reason in other words", "health.slowdown", None, gpus(HW_Thermal_Slowdown="Unknown Error"), "skip",
        "Reasons"),
    Row("what cannot be read is not absent", GPUS, None, gpus(DRAM_Uncorrectable="Unknown Error",
                                                              Double_Bit_ECC="[Unknown Error]"),
        "skip", "cannot tell for an error: ECC Errors, Retired Pages"),
    Row("it hangs", GPUS, None, {"gpu_health": Output("@present 8\n@smi\n", 124)}, "fail", "does not answer within 50"),
    Row("one of the machine's GPUs in a container", GPUS, None, {**gpus(smi(8)), "container": "docker\n"}, "pass",
        "1 GPU"),
    Row("in a container whose machine has no driver loaded", GPUS, None, UNDRIVEN, "skip", "none is loaded there"),
    Row("nor does anything else say something of them", MODE, None, UNDRIVEN, "skip", "none is loaded there"),
    Row("GPUs that answer in a container without it", GPUS, None, {**UNDRIVEN, **gpus()}, "pass", "1 GPU"),
    Row("no nvidia-smi", GPUS, None, gpus("@present 1\n@smi\nsh: nvidia-smi: no\n"), "fail", "no",
        "nvidia_driver.user_space"),
    Row("no GPU", GPUS, None, gpus("@present 0\n@smi\nNo devices were found\n"), "n/a", "no NVIDIA GPU"),
    Row("in virtual machines", GPUS, None, gpus("@present 0\n@given 8\n@smi\nNo devices were found\n"), "n/a",
        "8 GPUs with"),
    Row("some of them", GPUS, None, gpus(smi().replace("@smi", "@given 3\n@smi")), "pass",
        "1 GPU; 3 GPUs with vfio-pci"),
    Row("none to have ECC", MODE, None, gpus("@present 0\n@smi\nNo devices were found\n"), "n/a", "no NVIDIA GPU"),
    Row("the driver is content", RECOVERY, None, {}, "pass", "1 GPU"),
    Row("a reset is required", RECOVERY, None, gpus(Reset_Required="Yes"), "fail", "needs a reset", "gpu-reset"),
    Row("a reset is advised", RECOVERY, None, gpus(Drain_and_Reset_Recommended="Yes"), "fail",
        "to be drained and reset", "gpu-reset"),
    Row("ECC on", MODE, None, {}, "pass", "1 GPU"),
    Row("ECC off, on a real RTX 4090, which comes so", MODE, None, gpus(RTX), "n/a",
        "NVIDIA GeForce RTX 4090 comes with ECC off"),
    Row("ECC off, where it has to be on", MODE, Health(ecc="enabled"), gpus(RTX), "fail", "has it off", "gpu_settings"),
    Row("ECC off, on an H100", MODE, None, gpus(**NO_ECC), "fail", "has it off", "gpu_settings"),
    Row("ECC off on a card for desks beside it", MODE, None, gpus(both(Product_Brand="NVIDIA RTX", **NO_ECC)), "pass",
        "off in 1"),
    Row("ECC off, and it may be", MODE, Health(ecc="any"), {}, "n/a", "any"),
    Row("one of two of a model tells no temperature", HEAT, None, gpus(both(**{"GPU_T.Limit_Temp": "N/A"})), "skip",
        "not reported by 0000:3b:00.0, unlike others"),
    Row("a GPU without ECC", MODE, None, gpus(TITAN), "n/a", "has no ECC"),
    Row("whose errors nobody counts", ERRORS, None, gpus(TITAN), "n/a", "has no ECC"),
    Row("no errors", ERRORS, None, {}, "pass", "0 corrected"),
    Row("errors of memory", ERRORS, None, gpus(DRAM_Uncorrectable="3"), "fail", "has 3", "gpu-reset"),
    Row("errors of SRAM", ERRORS, None, gpus(SRAM_Uncorrectable_Parity="1"), "fail", "has 1"),
    Row("errors that are let pass", ERRORS, Health(uncorrected_errors=3), gpus(DRAM_Uncorrectable="3"), "pass"),
    Row("SRAM worn out", ERRORS, None, gpus(SRAM_Threshold_Exceeded="Yes"), "fail", "threshold", "return the card"),
    Row("corrected ones", ERRORS, None, gpus(DRAM_Correctable="7"), "pass", "7 corrected"),
    Row("rows are right", ROWS_, None, {}, "pass", "0 rows remapped"),
    Row("a row waits, on a real A10", ROWS_, None, gpus(A10), "fail", "0000:07:00.0 has one pending (4",
        "takes effect then"),
    Row("a remapping failed", ROWS_, None, gpus(Remapping_Failure_Occurred="Yes"), "fail", "failed", "return the card"),
    Row("rows worn out", ROWS_, None, gpus(Uncorrectable_Error="512"), "fail", "has 512", "return the card"),
    Row("rows worn out by the spec", ROWS_, Health(remapped_rows=4), gpus(A10), "fail", "has 4", "return the card"),
    Row("repairs of a Blackwell that wait for nothing", ROWS_, None, gpus(repairs()), "pass", "0 rows remapped"),
    Row("a repair waits", ROWS_, None, gpus(repairs(tpc="Yes")), "fail", "says: TPC Repair Pending",
        "takes effect then"),
    Row("past repair", ROWS_, None, gpus(repairs(channel="Yes", past="Yes")), "fail", "cannot be repaired",
        "return the card"),
    Row("no rows to remap", ROWS_, None, gpus(TITAN), "n/a", "has no row remapping"),
    Row("no pages to retire", PAGES, None, {}, "n/a", "has no retired pages"),
    Row("pages", PAGES, None, gpus(Single_Bit_ECC="2", Double_Bit_ECC="1", Pending_Page_Blacklist="No"), "pass",
        "3 pages"),
    Row("a page waits", PAGES, None, gpus(Single_Bit_ECC="2", Pending_Page_Blacklist="Yes"), "fail", "pending",
        "retired then"),
    Row("pages worn out", PAGES, None, gpus(Double_Bit_ECC="63"), "fail", "has 63", "return the card"),
    Row("not slowed down", SLOW, None, {}, "pass", "1 GPU"),
    Row("a power brake, on a real H100", SLOW, None, gpus(real("h100-power-brake-535")), "fail", "HW Power Brake",
        "power supplies"),
    Row("slowed down by what it does not name", SLOW, None, gpus(HW_Slowdown="Active"), "fail", "is slow: HW Slowdown"),
    Row("and at the second look", SLOW, None, gpus(twice("HW Slowdown : Active")), "fail", "is slow: HW Slowdown"),
    Row("while a clock changed", SLOW, None, gpus(twice("HW Slowdown : Not Active")), "pass", "1 GPU"),
    Row("hot", SLOW, None, gpus(HW_Thermal_Slowdown="Active"), "fail", "HW Thermal Slowdown", "air flow"),
    Row("the power limit counts not", SLOW, None, gpus(SW_Power_Cap="Active"), "pass"),
    Row("slow as it may be", SLOW, Health(slowdown="any"), {}, "n/a", "any"),
    Row("cool", HEAT, None, {}, "pass", "the hottest is 58 C below"),
    Row("an A10 with a temperature", HEAT, None, gpus(A10), "pass", "65 C below"),
    Row("too hot", HEAT, None, gpus(**{"GPU_T.Limit_Temp": "-2 C"}), "fail", "is 0 C below it, at 29 C", "air flow"),
    Row("hotter than asked for", HEAT, Health(temperature_margin=60), {}, "fail", "58 C below"),
    Row("not held", POWER, None, {}, "pass", "at most 67.74 W drawn"),
    Row("held down", POWER, None, gpus(Current_Power_Limit="350.00 W"), "fail", "held at 350 W of 700 W", "BMC"),
    Row("held down as it may be", POWER, Health(power_cap="any"), {}, "n/a", "any"),
    Row("nothing said of what it draws", POWER, None, gpus(Power_Draw="[Unknown Error]"), "skip",
        "no power draw is reported"),
    Row("no average, as before Ampere and of A100", POWER, None, gpus(draws("N/A", "52.10 W")), "pass", "52.1 W drawn"),
    Row("a laptop that has no word of it", POWER, None, gpus(draws("N/A", "N/A")), "pass", "no word of what it draws"),
    Row("newer drivers' words for what cannot be read", POWER, None, gpus(draws("N/A", "Unknown Error")), "skip",
        "no power draw"),
    Row("clocks alike", CLOCKS, None, gpus(both()), "pass", "2 GPUs; at most 1980 MHz"),
    Row("another model's clocks", CLOCKS, None, gpus(both(Product_Name="NVIDIA A10", **lower(1695))), "pass",
        "at most 1980 MHz"),
    Row("two makers' clocks", CLOCKS, None, gpus(both(Sub_System_Id="0x16C210DE", **lower(1755))), "pass"),
    Row("lower than its like", CLOCKS, None, gpus(both(**lower(1755))), "fail",
        "0000:3b:00.0 has application clocks 1755 MHz, memory 2619 MHz, its like 1980 MHz", "nvidia-smi -rac"),
    Row("lower, as the job that is there may have asked", CLOCKS, None, gpus(both(**lower(1755)) + WORKS), "pass"),
    Row("clocks that newer drivers do not tell", CLOCKS, None, gpus(GONE), "pass"),
    Row("unlike as they may be", CLOCKS, Health(clocks="any"), gpus(both(**lower(1755))), "n/a", "any"),
    Row("locked by somebody", CLOCKS, None, gpus(busy(345)), "fail", "0000:19:00.0 computes at 345 of 1980 MHz",
        "nvidia-smi -rgc"),
    Row("locked, with a program that computes", CLOCKS, None, gpus(busy(345, Persistence_Mode="Disabled") + WORKS),
        "fail", "at 345"),
    Row("busy with its start alone", CLOCKS, None, gpus(busy(345, Persistence_Mode="Disabled") + IDLES), "pass"),
    Row("busy, and fast", CLOCKS, None, gpus(busy(1755)), "pass"),
    Row("busy, under its power limit", CLOCKS, None, gpus(busy(345, SW_Power_Cap="Active")), "pass"),
    Row("about to idle", CLOCKS, None, gpus(busy(345, percent=60)), "pass"),
    Row("in a vGPU without clocks", CLOCKS, None, gpus(smi(text=NO_CLOCKS)), "n/a", "highest clock"),
    Row("one of two GPUs", ROWS_, None, gpus(both(Remapping_Failure_Occurred="Yes")), "fail",
        "0000:3b:00.0 has a remapping"),
]  # fmt: skip

(
    NVLINK,
    AER,
    REPLAYS,
    PORTS,
    FLAPS,
    RATES,
    RDMA,
    FIRMWARE,
    BASELINE,
    CPUS,
    MEMORY,
    DEVICES,
    FILE_SYSTEMS,
    OPEN_FILES,
    KERNEL,
) = (
    f"health.{name}"
    for name in (
        "nvlink_errors",
        "pcie_errors",
        "pcie_replays",
        "ports",
        "link_flaps",
        "link_error_rates",
        "rdma_log",
        "firmware",
        "firmware_baseline",
        "cpus",
        "memory",
        "devices",
        "file_systems",
        "open_files",
        "kernel",
    )
)
DECLARED = {
    "ignored_xids", "pcie_replays", "link_downed", "port_errors", "transport_errors", "sockets", "cores", "memory",
    "nvme", "mounts",
    "interfaces", "cuda_user", "firmware_versions",
}  # fmt: skip
"""Fields without a default: what they say is judged only where somebody says it."""
CORRUPT = "WARNING: infoROM is corrupted at gpu 0000:19:00.0"
BLACKWELL = """GPU 0: NVIDIA B200 (UUID: x)
\t Link 0: Tx packets: 12345
\t Link 0: Malformed packet Errors: 0
\t Link 0: Buffer overrun Errors: {}
\t Link 0: Link recovery failed events: {}
\t Link 0: Symbol Errors: 9
\t Link 0: Effective BER: 15e-255
"""
NCCL = (
    "pt_main_thread[2536443]: segfault at 7f797fe00000 ip 00007f7c7ac69996 sp 00007f7c12fd7c30 error 4 "
    "in libnccl.so.2[7f7c7ac00000+d3d3000]"
)
AER_CORRECTED = "pcieport 0000:00:1c.5: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)"
AER_FATAL = "pcieport 0000:15:01.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer, (Receiver ID)"
SLOT = "mlx5_core 0000:5c:00.0: mlx5_pcie_event:299:(pid 268269): Detected insufficient power on the PCIe slot (27W)."
HOT = (
    "mlx5_core 0000:5c:00.0: mlx5_port_module_event:1131:(pid 0): Port module event[error]: module 0, Cable "
    "error, High Temperature"
)
REFUSED = (
    "mlx5_core 0000:d2:00.0: mlx5_cmd_out_err:838:(pid 268269): ACCESS_REG(0x805) op_mod(0x1) failed, status "
    "bad resource(0x5)"
)


def has(probe: str, text: str) -> dict[str, str]:
    return {probe: text}


H100, PART = "NVIDIA H100 80GB HBM3", "692-2G520-0200-000"


def declared(**versions: dict[str, str]) -> Health:
    return Health(firmware_versions=FirmwareVersions(**versions))


REST = [
    Row("NVLinks without errors", NVLINK, None, {}, "pass", "1 GPU; 0 CRC errors"),
    Row("replays", NVLINK, None, has("nvlink_errors", nvlinks(replays=3)), "fail", "GPU 0 has 3 replays", "explain 74"),
    Row("recoveries", NVLINK, None, has("nvlink_errors", nvlinks(recoveries=1)), "fail", "1 recoveries"),
    Row("as many as are let pass", NVLINK, Health(nvlink_errors=3), has("nvlink_errors", nvlinks(replays=3)), "pass"),
    Row("CRC errors are told", NVLINK, None, has("nvlink_errors", nvlinks(crc=9)), "pass", "9 CRC errors"),
    Row("no NVLink", NVLINK, None, has("nvlink_errors", nvlinks(links=0)), "n/a", "no GPU has NVLinks"),
    Row("cards of which nothing is printed", NVLINK, None, silent_links("NVIDIA GeForce RTX 4090"), "n/a", "nothing"),
    Row("errors that are not told", NVLINK, None, has("nvlink_errors", nvlinks(2).replace(": 0", ": N/A")), "skip",
        "by GPU 0"),
    Row("a Blackwell", NVLINK, None, has("nvlink_errors", BLACKWELL.format(0, 0)), "pass", "1 GPU"),
    Row("a Blackwell with errors", NVLINK, None, has("nvlink_errors", BLACKWELL.format(2, 1)), "fail",
        "GPU 0 has 3 errors", "reset"),
    Row("no PCIe error", AER, None, {}, "pass", "none since"),
    Row("a corrected one", AER, None, said(AER_CORRECTED), "pass", "corrected: 1 line"),
    Row("an uncorrected one", AER, None, said(AER_CORRECTED, AER_FATAL), "fail", "severity=Uncorrected", "reseat"),
    Row("one that the firmware handed on", AER, None,
        said("pcieport 0000:15:01.0: AER: aer_uncor_severity: 0x00062030"), "fail",
        "aer_uncor_severity", "reseat"),
    Row("a corrected one of those", AER, None,
        said("pcieport 0000:15:01.0: AER: aer_status: 0x00000040, aer_mask: 0x00000000"),
        "pass"),
    Row("replays not declared", REPLAYS, None, {}, "n/a", "not in the spec"),
    Row("67 replays, on a real H100", REPLAYS, Health(pcie_replays=10), {}, "fail", "0000:19:00.0 has 67", "reseat"),
    Row("as many as declared", REPLAYS, Health(pcie_replays=67), {}, "pass", "at most 67"),
    Row("replays that are not told", REPLAYS, Health(pcie_replays=1), gpus(Replays_Since_Reset="N/A"), "skip",
        "not reported"),
    Row("ports not declared", PORTS, None, {}, "n/a", "is in the spec"),
    Row("a flapping port", PORTS, Health(link_downed=2), has("port_errors", ports(link_downed=14)), "fail",
        "down 14 times", "cable"),
    Row("port errors", PORTS, Health(port_errors=0), has("port_errors", ports(symbol_error=7)), "fail",
        "symbol_error 7", "perfquery"),
    Row("good ports", PORTS, Health(link_downed=2, port_errors=0), has("port_errors", ports(link_downed=2)), "pass",
        "1 port"),
    Row("a port that does not tell", PORTS, Health(link_downed=2), has("port_errors", ports(link_downed="")), "skip",
        "not reported"),
    Row("no ports", PORTS, Health(link_downed=2), has("port_errors", ""), "n/a", "no RDMA device"),
    Row("errors of the transport", "health.rdma_counters", Health(transport_errors=0),
        has("port_errors", "hw|mlx5_0|1|local_ack_timeout_err|3\n"), "fail", "local_ack_timeout_err 3", "switches"),
    Row("counters that stand still", RATES, None, {}, "pass", "1 port, over 2.0 h"),
    Row("symbol errors of a dying cable", RATES, None, {**has("port_errors", ports(symbol_error=500)),
        **has("counter_readings", readings(10, 200))}, "fail",
        "symbol_error +300 in 1.0 h until 2025-11-23 12:13 UTC (at most 120 an hour)", "cable"),
    Row("a burst that is over", RATES, None, {**has("port_errors", ports(symbol_error=500)),
        **has("counter_readings", readings(0, 500, 500, 500))}, "fail", "symbol_error +500 in 1.0 h"),
    Row("as many errors over a day", RATES, None, {**has("port_errors", ports(symbol_error=500)),
        **has("counter_readings", readings(*range(0, 500, 25)))}, "pass", "over 20.0 h"),
    Row("a burst of the day before", RATES, None, {**has("port_errors", ports(symbol_error=500)),
        **has("counter_readings", readings(0, *[500] * 25))}, "pass", "over 24.0 h"),
    Row("a burst before the boot", RATES, None, {**has("port_errors", ports(symbol_error=3)),
        **has("counter_readings", readings(0, 500, 0, 2))}, "pass", "over 4.0 h"),
    Row("a burst after the boot", RATES, None, {**has("port_errors", ports(symbol_error=400)),
        **has("counter_readings", readings(0, 9, 0, 2))}, "fail", "symbol_error +398"),
    Row("a burst before `since`", RATES, Health(since="90m"), {**has("port_errors", ports(symbol_error=500)),
        **has("counter_readings", readings(0, 500, 500))}, "pass", "over 1.0 h"),
    Row("a burst after `since`", RATES, Health(since="5h"), {**has("port_errors", ports(symbol_error=500)),
        **has("counter_readings", readings(0, 500, 500))}, "fail", "symbol_error +500"),
    Row("a counter that was set to zero", RATES, None, {**has("port_errors", ports(symbol_error=3)),
        **has("counter_readings", readings(9000, 9000))}, "pass"),
    Row("one overrun", RATES, None, {**has("port_errors", "counter|mlx5_0|1|excessive_buffer_overrun_errors|1\n"),
        **has("counter_readings", readings(0, 0, name="excessive_buffer_overrun_errors"))}, "fail", "none is normal"),
    Row("quick readings", RATES, None, {**has("port_errors", ports(symbol_error=70)),
        **has("counter_readings", readings(*range(0, 70, 7), minutes=5))}, "pass"),
    Row("readings too new", RATES, None, has("counter_readings", readings(0, minutes=10)), "n/a",
        "no readings of its counters"),
    Row("no readings", RATES, None, has("counter_readings", readings()), "n/a", "no readings of its counters"),
    Row("rates that nobody asks for", RATES, Health(link_error_rates="any"), {}, "n/a", "link_error_rates: any"),
    Row("no ports that count", RATES, None, has("port_errors", ""), "n/a", "no RDMA device"),
    Row("links that stay", FLAPS, None, {}, "pass", "2 interfaces; none went down"),
    Row("a link that flaps, of Ethernet", FLAPS, None, has("link_flaps", flaps("ens1np0", 3)), "fail",
        "ens1np0 of mlx5_0 went down and came back 3 times", "cable"),
    Row("a link that flaps, of InfiniBand", FLAPS, None, has("link_flaps", flaps("ib0", 14)), "fail",
        "ib0 of mlx5_1 went down and came back 14 times"),
    Row("a switch that was rebooted", FLAPS, None, has("link_flaps", flaps("ib0", 1)), "pass",
        "2 interfaces; 1 went down"),
    Row("flaps that are let pass", FLAPS, Health(link_flaps=4), has("link_flaps", flaps("ib0", 3)), "pass"),
    Row("flaps that nobody asks for", FLAPS, Health(link_flaps=0), has("link_flaps", flaps("ib0", 3)), "n/a",
        "link_flaps: 0"),
    Row("flaps of yesterday", FLAPS, None, has("link_flaps", flaps("ib0", 9, ago=86400)), "pass", "none went down"),
    Row("flaps before `since`", FLAPS, None, has("link_flaps", flaps("ib0", 9, since=NOW - 60)), "pass",
        "none went down"),
    Row("a driver loaded anew", FLAPS, None, has("link_flaps", flaps("ens1np0", 3, loaded=True)), "pass",
        "none went down"),
    Row("no interface", FLAPS, None, has("link_flaps", f"now|{NOW}\nsince|0\njournal|1\n"), "n/a",
        "no RDMA device has"),
    Row("no journal", FLAPS, None, has("link_flaps", flaps("ib0", 0).replace("journal|1", "journal|0")), "skip",
        "no readable journal"),
    Row("HCAs are content", RDMA, None, {}, "pass", "none since"),
    Row("an HCA whose slot tells little power", RDMA, None, said(SLOT), "pass", "insufficient power"),
    Row("a hot transceiver", RDMA, None, said(HOT), "pass", "High Temperature"),
    Row("a hot HCA", RDMA, None,
        said("mlx5_core 0000:5c:00.0: temp_warn:194:(pid 0): High temperature on sensors with bit set 0x0 0x1."),
        "fail", "High temperature", "air flow"),
    Row("registers that firmware keeps", RDMA, None, said(REFUSED), "pass", "told: 1 line"),
    Row("one firmware", FIRMWARE, None, {}, "pass", "VBIOS 96.00.74.00.0D"),
    Row("two VBIOS", FIRMWARE, None, gpus(both(VBIOS_Version="96.00.89.00.01")), "fail",
        "96.00.89.00.01 on 0000:3b:00.0", "vendor"),
    Row("two InfoROMs", FIRMWARE, None, gpus(both(Image_Version="G520.0200.00.07")), "fail",
        "InfoROM: G520.0200.00.05 on"),
    Row("as they may be", FIRMWARE, Health(firmware="any"), gpus(both(VBIOS_Version="96.00.89.00.01")), "n/a", "any"),
    Row("two makers' cards", FIRMWARE, None,
        gpus(both(VBIOS_Version="1", Image_Version="2", Sub_System_Id="0x16C210DE")), "pass"),
    Row("another model", FIRMWARE, None, gpus(both(VBIOS_Version="1", Image_Version="2", Product_Name="NVIDIA A10")),
        "pass"),
    Row("a corrupt InfoROM", FIRMWARE, Health(firmware="any"), gpus(f"{smi()}{CORRUPT}\n"), "fail", "corrupted at gpu",
        "support"),
    Row("a GPU that does not tell", FIRMWARE, None, gpus(VBIOS_Version="N/A", Image_Version="N/A"), "skip",
        "no GPU reports"),
    Row("firmware of boards not declared", BASELINE, None, {}, "n/a", "is in the spec"),
    Row("as declared, by product name, in small letters", BASELINE, declared(vbios={H100: "96.00.74.00.0d"}), {},
        "pass",
        "VBIOS 96.00.74.00.0D of NVIDIA H100 80GB HBM3 (692-2G520-0200-000)"),
    Row("a board's part number goes before its model", BASELINE,
        declared(vbios={H100: "96.00.74.00.0D", PART: "96.00.89.00.01"}), {},
        "fail", f"VBIOS of {H100} ({PART}): 96.00.74.00.0D", "nvfwupd"),
    Row("an adapter's PSID goes before its type", BASELINE, declared(adapter={"MT4129": "1.2.3",
                                                                              "MT_0000000838": "28.39.1002"}), {},
        "pass", "adapter 28.39.1002 of MT_0000000838 (MT4129)"),
    Row("an old adapter", BASELINE, declared(adapter={"MT4129": "28.39.1002"}),
        has("board_firmware", boards("28.35.1012")),
        "fail", "adapter of MT_0000000838 (MT4129): 28.35.1012", "mstflint -d ADDRESS"),
    Row("an old NVSwitch", BASELINE, declared(nvswitch={"10de:22a3": "96.10.6D.00.01"}), {}, "fail",
        "10de:22a3: 96.10.57"),
    Row("one of two GPUs as declared", BASELINE, declared(vbios={H100: "96.00.74.00.0D"}),
        gpus(both(VBIOS_Version="96.00.89.00.01")), "fail", ": 96.00.89.00.01"),
    Row("boards that are not here", BASELINE, declared(vbios={"NVIDIA B200": "1"}), {}, "skip",
        "other boards; not here: VBIOS"),
    Row("another board's beside", BASELINE, declared(vbios={"NVIDIA B200": "1"}, adapter={"MT4129": "28.39.1002"}), {},
        "pass",
        "not here: VBIOS NVIDIA B200"),
    Row("a host by itself", BASELINE, Health(firmware="fleet"), {}, "n/a", "compared with other hosts"),
    Row("a host that tells nothing", BASELINE, Health(firmware="fleet"),
        {**gpus(VBIOS_Version="N/A", Image_Version="N/A"), "board_firmware": ""}, "skip",
        f"VBIOS of {H100} ({PART}) at 0000:19:00.0 does not show its version"),
    Row("GPUs without an InfoROM", BASELINE, Health(firmware="fleet"), gpus(Image_Version="N/A"), "n/a",
        "compared with other hosts"),
    Row("an adapter that does not tell", BASELINE, declared(adapter={"MT4129": "28.39.1002"}),
        has("board_firmware", boards("")),
        "skip", "adapter of MT_0000000838 (MT4129) at 0000:18:00.0 does not show its version"),
    Row("one that is not declared does not tell", BASELINE, declared(nvswitch={"10de:22a3": "96.10.57.00.01"}),
        has("board_firmware", boards("N/A")), "pass", "NVSwitch 96.10.57.00.01"),
    Row("no board at all", BASELINE, declared(adapter={"MT4129": "28.39.1002"}), has("board_firmware", ""), "skip",
        "no GPU, NVSwitch or network adapter"),
    Row("GPUs that cannot be read", BASELINE, Health(firmware="fleet"),
        gpus("@present 1\n@smi\nNo devices were found\n"), "skip",
        "nvidia-smi shows no GPU"),
    Row("a crash in NCCL", PROGRAMS, Health(program_errors="fail"), said(NCCL), "fail", "in libnccl",
        "restart the program"),
    Row("a crash in NCCL is told", PROGRAMS, None, said(NCCL), "pass", "reported only: 1 ended otherwise"),
    Row("killed for want of memory", PROGRAMS, Health(program_errors="fail"),
        said("Out of memory: Killed process 4711 (python3) total-vm:1kB"), "fail", "Out of memory"),
    Row("CPUs not declared", CPUS, None, {}, "n/a", "is in the spec"),
    Row("CPUs as declared", CPUS, Health(sockets=2, cores=8), {}, "pass", "2 sockets, 8 cores"),
    Row("a socket is off", CPUS, Health(sockets=2), has("hardware", hardware(sockets=1)), "fail", "1 sockets",
        "event log"),
    Row("cores are off", CPUS, Health(cores=16), {}, "fail", "8 cores"),
    Row("memory not declared", MEMORY, None, {}, "n/a", "is in the spec"),
    Row("memory as declared", MEMORY, Health(memory=2000), {}, "pass", "2015.6 GiB"),
    Row("a module is off", MEMORY, Health(memory=2048), {}, "fail", "2015.6 GiB", "event log"),
    Row("no swap", MEMORY, Health(swap="none"), {}, "pass", "0 MiB swap"),
    Row("swap that should not be", MEMORY, Health(swap="none"), has("hardware", hardware(swap=2097152)), "fail", "2048",
        "swapoff"),
    Row("swap that should be", MEMORY, Health(swap="present"), {}, "fail", "0 MiB swap", "swapon"),
    Row("devices not declared", DEVICES, None, {}, "n/a", "is in the spec"),
    Row("devices as declared", DEVICES, Health(nvme=8, interfaces=("eth0",)), {}, "pass", "8 NVMe drives, eth0 up"),
    Row("a drive is gone", DEVICES, Health(nvme=8), has("hardware", hardware(nvme=7)), "fail", "7 NVMe drives", "seat"),
    Row("an interface is down", DEVICES, Health(interfaces=("eth1",)), has("hardware", hardware(eth1="down")), "fail",
        "eth1 is down"),
    Row("an interface is not there", DEVICES, Health(interfaces=("eth9",)), {}, "fail", "eth9 is not there"),
    Row("mounts not declared", FILE_SYSTEMS, None, {}, "n/a", "is not in the spec"),
    Row("mounts as declared", FILE_SYSTEMS, Health(mounts=("/", "/home")), {}, "pass",
        "/: 44 % free; /home: 60 % free"),
    Row("a server that is away", FILE_SYSTEMS, Health(mounts=("/home",)), has("file_systems", files(home="nfs4|||||")),
        "fail",
        "/home (nfs4) does not answer within 5 s", "file server"),
    Row("nothing mounted", FILE_SYSTEMS, Health(mounts=("/home",)),
        has("file_systems", files(home="|1000|500|440|100|60")), "fail",
        "nothing is mounted at /home", "drain"),
    Row("a full disk", FILE_SYSTEMS, Health(mounts=("/home",)),
        has("file_systems", files(home="ext4|1000|100|40|100|60")), "fail",
        "/home has 4 % of its space free", "du -xh"),
    Row("no inodes", FILE_SYSTEMS, Health(mounts=("/home",)),
        has("file_systems", files(home="ext4|1000|500|440|100|4")), "fail",
        "/home has 4 % of its inodes free", "du -xh"),
    Row("a file system without inodes", FILE_SYSTEMS, Health(mounts=("/home",)),
        has("file_systems", files(home="btrfs|10|9|9|0|0")), "pass"),
    Row("CephFS, which counts no free inodes", FILE_SYSTEMS, Health(mounts=("/home",)),
        has("file_systems", files(home="ceph|1000|500|440|1234|18446744073709551615")), "pass", "/home: 47 % free"),
    Row("a capture, of whose file systems nobody was asked", FILE_SYSTEMS, Health(mounts=("/home",)),
        has("file_systems", "handles|1|100\nunasked|\n"), "skip", "a capture holds no file systems"),
    Row("room that is not asked for", FILE_SYSTEMS, Health(mounts=("/home",), free_space=0),
        has("file_systems", files(home="ext4|1000|100|40|100|60")), "pass"),
    Row("few open files", OPEN_FILES, None, {}, "pass", "1000 of 100000 open files"),
    Row("too many open files", OPEN_FILES, None, has("file_systems", files(opened=80000)), "fail", "80000 of 100000",
        "lsof"),
    Row("many, as declared", OPEN_FILES, Health(open_files=90), has("file_systems", files(opened=80000)), "pass"),
    Row("a quiet kernel", KERNEL, None, {}, "pass", "none since"),
    Row("a file system", KERNEL, None, said("EXT4-fs (nvme0n1p2): Remounting filesystem read-only"), "fail",
        "read-only", "fsck"),
    Row("EL's XFS", KERNEL, None, said("XFS (dm-0): Log I/O Error Detected.  Shutting down filesystem"), "fail", "XFS",
        "fsck"),
    Row("a newer XFS", KERNEL, None,
        said("XFS (nvme0n1p3): Filesystem has been shut down due to log error (0x2)."), "fail", "XFS"),
    Row("SUSE's Btrfs", KERNEL, None, said("BTRFS info (device vda2: state EA): forced readonly"), "fail", "BTRFS"),
    Row("a lock-up", KERNEL, None, said("watchdog: BUG: soft lockup - CPU#18 stuck for 27s! [python3:2254956]"), "fail",
        "stuck for"),
]  # fmt: skip


@run_each("row", REST, ids=lambda row: str(row.name))
def test_links_and_the_rest(row: Row) -> None:
    judge(row)


def test_cpus_that_the_kernel_does_not_tell_are_no_pass() -> None:
    with pytest.raises(ProbeFailed, match="does not tell its CPUs"):
        ask(CPUS, Health(cores=8), hardware=hardware(sockets=0))


def test_a_program_s_name_says_nothing_of_a_gpu() -> None:
    """nvidia-smi prints its newlines as they are."""
    name = (
        "a\n    GPU Recovery Action : Reboot\n    ECC Errors\n        Unrepairable Memory : Yes\n    Note : GPU is lost"
    )
    text = f"{smi(Attached_GPUs='1').partition('@smi')[2]}{WORKS}            Name : {name}\n"
    for check in (GPUS, RECOVERY, ROWS_):
        assert ask(check, None, **gpus(smi(text=text))).status == "pass"
    with pytest.raises(ProbeFailed, match="more GPUs than it says are attached"):
        ask(GPUS, None, **gpus(smi(text=f"{text}GPU 00000000:3B:00.0\n    GPU Recovery Action : Reboot\n")))


@run_each(
    ("count", "found", "container", "status"),
    [
        (4, 4, "none\n", "pass"),
        (1, 1, "none\n", "pass"),
        (8, 7, "none\n", "fail"),
        (None, 0, "none\n", "fail"),
        (8, 0, "none\n", "fail"),
        (8, 0, "podman\n", "n/a"),
        (9, 8, "podman\n", "fail"),
    ],
)
def test_gpus_that_the_spec_names_are_on_the_bus(count: int | None, found: int, container: str, status: str) -> None:
    """One that has gone since the boot is on no list of nvidia-smi's: the host would look fit for work."""
    told = f"@present {found}\n@smi\nNo devices were found\n"
    if status == "pass":
        told = smi(1).replace("@smi", f"@given {found - 1}\n@smi")
    spec = HostSpec(name="gpu1", gpu=GpuSpec(model="H100-SXM5-80GB", count=count))
    check, driver = {one.id: one for one in all_checks()}[GPUS], captured("loaded_driver", "proprietary")
    outcome = check.run(Context(spec, Health(), facts(gpu_health=told, container=container, loaded_driver=driver)))
    assert outcome.status == status, outcome
    if status == "fail":
        assert (outcome.action, outcome.found) == ("drain", f"{found} on the PCI bus")


@run_each("row", ROWS, ids=lambda row: str(row.name))
def test_check(row: Row) -> None:
    judge(row)


@run_each(
    ("check", "changed", "action"),
    [
        (XID, said(OFF_THE_BUS, GSP), "reboot"),
        (XID, said(GSP), "reset"),
        (XID, said(xid(142)), "drain"),
        (XID, said(xid(78)), "update"),
        (PROGRAMS, said(xid(13)), "restart"),
        (SXID, said(SWITCH.format("20034, Fatal, x")), "reset"),
        (SXID, said(SWITCH.format("23001, Fatal, x")), "reboot"),
        (GPUS, gpus(LOST), "reboot"),
        (RECOVERY, gpus(Reset_Required="Yes"), "reset"),
        (ERRORS, gpus(SRAM_Threshold_Exceeded="Yes"), "return"),
        (ROWS_, gpus(A10), "reset"),
        (ROWS_, gpus(Remapping_Failure_Occurred="Yes"), "return"),
        (SLOW, gpus(HW_Thermal_Slowdown="Active"), "drain"),
    ],
)
def test_what_is_to_be_done(check: str, changed: dict[str, str], action: str) -> None:
    assert ask(check, None, **changed).action == action


@run_each("check", [XID, PROGRAMS, SXID])
def test_a_log_that_cannot_be_read_is_no_pass(check: str) -> None:
    with pytest.raises(ProbeFailed, match="cannot be read"):
        ask(check, None, **said(source=""))


@run_each("check", [RECOVERY, MODE, ERRORS, ROWS_, PAGES, SLOW, HEAT, POWER, CLOCKS])
def test_gpus_that_do_not_answer_are_no_pass(check: str) -> None:
    with pytest.raises(ProbeFailed, match="GPU is lost"):
        ask(check, None, **gpus(LOST))


def test_ecc_that_the_spec_wants_off_is_no_fault() -> None:
    host = HostSpec(name="gpu1", capabilities={"gpu_settings": GpuSettings(ecc="disabled")})
    check = {one.id: one for one in all_checks()}[MODE]
    for block, status in ((Health(), "n/a"), (Health(ecc="enabled"), "fail")):
        assert check.run(Context(host, block, facts(**gpus(**NO_ECC)))).status == status


LOWER = ApplicationClocks(memory=2619, graphics=1755)


@run_each(
    ("settings", "changed", "status"),
    [
        (GpuSettings(power_limit=500), both(**lower(1755)), "fail"),
        (GpuSettings(per_gpu=(Entry(gpus=(1,), application_clocks=LOWER),)), both(**lower(1755)), "pass"),
        (GpuSettings(application_clocks="default"), busy(345), "fail"),
        (GpuSettings(locked_clocks=LockedClocks(graphics=(345, 345))), busy(345), "pass"),
    ],
)  # fmt: skip
def test_clocks_that_gpu_settings_asks_for_are_its_own_to_judge(
    settings: GpuSettings, changed: str, status: str
) -> None:
    host = HostSpec(name="gpu1", capabilities={"gpu_settings": settings})
    check = {one.id: one for one in all_checks()}[CLOCKS]
    assert check.run(Context(host, Health(), facts(**gpus(changed)))).status == status


def test_each_default_has_a_source() -> None:
    known = {one.key: one.value for one in read_health_file().defaults}
    defaults = msgspec.structs.asdict(Health())
    assert {name for name, value in defaults.items() if value in (None, (), FirmwareVersions())} == DECLARED
    defaults = {name: value for name, value in defaults.items() if name not in DECLARED}
    assert defaults == known
    assert all(read_health_file().sources[key].url for one in read_health_file().defaults for key in one.source)


@run_each(
    ("value", "words"),
    [
        ({"since": "yesterday"}, "since"),
        ({"since": "24h\n"}, "since"),
        ({"remapped_rows": 513}, "remapped_rows"),
        ({"slowdown": "maybe"}, "slowdown"),
        ({"ignored_xids": [0]}, "ignored_xids"),
        ({"clocks": "high"}, "clocks"),
        ({"left_processes": True}, "left_processes"),
        ({"stray_memory": -1}, "stray_memory"),
        ({"link_flaps": -1}, "link_flaps"),
        ({"ecc": "off"}, "ecc"),
        ({"cuda_user": "root"}, "cuda_user"),
        ({"firmware": "majority"}, "firmware"),
        ({"firmware_versions": {"bios": {}}}, "bios"),
        ({"firmware_versions": {"vbios": {"NVIDIA A10": "$(id)"}}}, "firmware_versions.vbios"),
        ({"firmware_versions": {"adapter": {"MT4129\n": "1"}}}, "firmware_versions.adapter"),
        ({"firmware_versions": {"adapter": {"MT4129": 28.39}}}, "firmware_versions.adapter"),
        ({"cuda_user": "a b"}, "cuda_user"),
        ({"sins": 1}, "sins"),
    ],
)
def test_what_is_not_allowed_is_refused_once(value: dict[str, Any], words: str) -> None:
    block, problems = convert(value, Health, ("health",))
    assert block is None
    assert len(problems) == 1
    assert words in str(problems[0])


@run_each("since", ["2026-13-40", "2999-01-01"])
def test_times_that_are_none_are_refused(since: str) -> None:
    (problem,) = rules(HostSpec(name="gpu1"), Health(since=since))
    assert since in problem.message
    with pytest.raises(SpecError, match=f"--since is {since}"):
        watched(HostSpec(name="gpu1"), since)


def test_since_of_the_command_line_takes_the_place_of_the_specs() -> None:
    spec = HostSpec(name="gpu1", capabilities={"health": Health(since="7d", ecc="any")})
    assert watched(spec, "24h").capabilities["health"] == Health(since="24h", ecc="any")
    assert watched(HostSpec(name="gpu1")).capabilities["health"] == Health()
    with pytest.raises(SpecError, match='--since is "soon"'):
        watched(spec, "soon")


NOT_SIMULATED = {
    LOG: "a container without a journal shows its machine's own dmesg",
    GPUS: "gpu-lost makes it fail, too (tests/e2e/test_health.py); what names that fault is nvidia_driver.user_space",
    "health.cuda": "no simulated host has a libcuda that finds its GPUs; tests/e2e/test_health.py brings a stand-in",
    PAGES: "only GPUs before Ampere retire pages, and none of them is simulated",
    "health.pcie_links": "pcie-link-narrow makes it fail, too; what names that fault is topology.pcie",
    "health.nvlinks": "nvlink-down makes it fail, too; what names that fault is topology.nvlinks",
    "health.port_state": "ib-port-down and ib-rate-low make it fail, too; what names them are rdma.ports and rdma.rate",
    BASELINE: "all simulated boards of a kind have one firmware; tests/verify/test_fleet_wide.py compares hosts",
    "health.fabric": "fabric-manager-dead makes it fail, too; what names that fault is fabric_manager.active",
}
"""Checks of `health` that no fault of a simulated host makes fail, and why."""


def test_every_check_of_health_has_a_fault_or_says_why_not() -> None:
    planted = {fault.caught_by for fault in faults.TABLE}
    mine = {check.id for check in CAPABILITY.checks}
    assert {check for check in mine if check not in planted} == {*NOT_SIMULATED}


def test_every_check_of_health_is_seen_to_fail() -> None:
    from tests.capabilities.test_health_cuda import ROWS as CUDA
    from tests.capabilities.test_health_wiring import ROWS as WIRING
    from tests.facts.probes.gpus.test_gpu_processes import ROWS as PROCESSES

    failing = {row.check for row in (*ROWS, *REST, *PROCESSES, *WIRING, *CUDA) if row.status == "fail"}
    assert {check.id for check in CAPABILITY.checks} == {one for one in failing if one.startswith("health.")}


@run_each(("folder", "right"), [("/", True), ("/home", True), ("/home/", False), ("home", False), ("//", False)])
def test_a_folder_that_nothing_can_be_mounted_at_is_no_spec(folder: str, right: bool) -> None:
    """The kernel lists mounts without a slash at the end: the host would never be fit."""
    try:
        found = msgspec.convert({"mounts": [folder]}, Health).mounts
    except msgspec.ValidationError:
        found = ()
    assert (found == (folder,)) is right


def test_every_row_of_what_fleets_watch_has_a_check_that_exists() -> None:
    page = (Path(__file__).parents[2] / "docs/how-to/health.md").read_text(encoding="utf-8")
    table = page.partition("## What others watch")[2].partition("\n## ")[0]
    rows = [line for line in table.splitlines() if line.startswith("| ") and not line.startswith(("| what", "| ---"))]
    assert len(rows) == 16
    known = {check.id for check in all_checks()}
    for row in rows:
        named = re.findall(r"`([a-z_]+\.[a-z_]+)`", row)
        assert named, row
        assert {*named} <= known, row
