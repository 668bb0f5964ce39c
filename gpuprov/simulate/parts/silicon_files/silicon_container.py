#!/usr/bin/python3
"""gpuprov simulation, in a container: /proc/driver/nvidia and device files as on a booted GPU host; `bus` does its
sysfs.

A container has no kernel of its own, so nothing is really loaded. `silicon boot` works out once what a machine with
these files on its disk would load at boot, and that stays until the container restarts; `silicon reload` only switches
faults. The files of MIG instances are kept, not made, here: the stand-in NVML makes them with the instances.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

RUN = Path("/run/gpuprov-sim")
FAULTS = Path("/var/lib/gpuprov-sim/faults")
TABLE = Path("/etc/gpuprov-sim/devices")
PROGRAMS = Path("/usr/lib/gpuprov-sim")
MODULES = Path("/lib/modules")
PROC = Path("/proc/driver")
LOADED = RUN / "loaded.json"
RESTRICT = "RestrictProfilingToAdminUsers"  # /proc/driver/nvidia/params shows it as RmProfilingAdminOnly
BOOTED = RUN / "booted"  # the stand-in NVML knows by its time that all is as after a boot
CAPS, CHANNELS = Path("/dev/nvidia-caps"), Path("/dev/nvidia-caps-imex-channels")
# MIG capabilities and the modes of their files; their minor numbers are 1 and 2, 0 is fabric-mgmt's.
MIG = {"config": 0o400, "monitor": 0o444}
MOST_GPUS, MOST_INSTANCES, MOST_COMPUTE = 32, 15, 8  # as the driver's table of minor numbers has them
NULL = os.makedev(1, 3)
Table = list[list[str]]
State = dict[str, Any]


def main(verb: str) -> None:
    RUN.mkdir(exist_ok=True)
    if verb == "boot":
        LOADED.write_text(json.dumps(booted()))
        loaded_now()
    elif verb != "reload":
        sys.exit("usage: silicon boot|reload")
    state = json.loads(LOADED.read_text())
    if fault("nouveau-bound") is not None:
        state["driver"] = "nouveau"
    if (other := fault("version-mismatch")) is not None and state["version"]:
        state["version"] = other or another(state["version"])
    functions = [line.split("\t") for line in TABLE.read_text().splitlines()]
    again = verb == "reload" and (PROC / "nvidia").exists()
    if (code := subprocess.run([PROGRAMS / "bus", verb, state["driver"]], check=False).returncode) != 0:
        sys.exit(code)
    show_proc(functions, state, again=again)
    show_nodes(functions, state)
    show_capabilities(functions, state, again=again)
    if verb == "reload" and not again and state["driver"] == "nvidia":
        loaded_now()


def loaded_now() -> None:
    """Record the time at which the module was loaded: a freshly loaded module has no MIG instance and no other
    setting."""
    BOOTED.write_text(time.strftime("%Y-%m-%dT%H:%M:%SZ\n", time.gmtime()))


def fault(name: str) -> str | None:
    """Return the parameter of an active fault, else None."""
    file = FAULTS / name
    return file.read_text().strip() if file.exists() else None


def another(version: str) -> str:
    head, _, last = version.rpartition(".")
    return f"{head}.{'98' if last == '99' else '99'}"


def read_output(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout if done.returncode == 0 else ""


def booted() -> State:
    """Return what a machine with this disk loads at boot: driver, version, flavour and parameters."""
    configuration = read_output("modprobe", "-c")
    state: State = {"driver": "", "version": "", "open": False, "parameters": {}}
    kernels = [folder for folder in MODULES.iterdir() if (folder / "build").exists()]
    kernels.sort(key=lambda folder: [int(number) for number in re.findall(r"\d+", folder.name)])
    chosen = re.findall(r"^install nvidia .*modprobe -i (\S+)", configuration, re.MULTILINE)
    for name in [*chosen, "nvidia-current", "nvidia-current-open", "nvidia"] if kernels else []:
        version = read_output("modinfo", "-k", kernels[-1].name, "-F", "version", name).strip()
        if version:
            license_ = read_output("modinfo", "-k", kernels[-1].name, "-F", "license", name)
            state |= {"driver": "nvidia", "version": version, "open": "GPL" in license_}
            state["parameters"] = parameters(configuration, name, version)
            break
    kept_out = r"^(blacklist nouveau|install nouveau /\S*bin/(true|false)|options nouveau .*\bmodeset=0)\b"
    # An alias of modprobe's configuration, which Debian's packages bring, comes before those of the modules.
    first = state["version"] and re.search(r"^alias pci:v000010DE\S+ +nvidia$", configuration, re.MULTILINE)
    if not first and not re.search(kept_out, configuration, re.MULTILINE):
        state["driver"] = "nouveau"
    return state


def parameters(configuration: str, name: str, version: str) -> dict[str, str]:
    """Return parameters as /proc/driver/nvidia/params shows them: the module's defaults, overridden by modprobe's
    options."""
    given: dict[str, str] = {}
    for module in (name, "nvidia"):
        for line in configuration.splitlines():
            words = shlex.split(line, posix=True) if line.startswith("options ") else []
            if words and words[1].replace("-", "_") == module.replace("-", "_"):
                given |= {key: value for key, _, value in (word.partition("=") for word in words[2:])}
    shown: dict[str, str] = {}
    for line in (PROGRAMS / "parameters.txt").read_text().splitlines():
        words = line.split()
        if line.startswith("#") or (len(words) > 2 and int(words[2]) > int(version.partition(".")[0])):
            continue
        taken = RESTRICT if words[0] == "RmProfilingAdminOnly" else words[0]
        value = given.get(f"NVreg_{taken}", words[1].strip('"'))
        shown[words[0]] = f'"{value}"' if words[1] == '""' else number(value, words[1])
    return shown


def number(text: str, default: str) -> str:
    match = re.fullmatch(r"(-?)(0[xX][0-9a-fA-F]+|[0-9]+)", text)
    if not match:
        return default
    digits = match[2]
    base = 16 if digits[1:2] in ("x", "X") else 8 if digits.startswith("0") else 10
    return str(int(match[1] + digits, base) % 2**32)


def show_proc(functions: Table, state: State, *, again: bool) -> None:
    if not os.path.ismount(PROC):
        subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=755", "gpuprov-sim", PROC], check=True)
    folder = PROC / "nvidia"
    if not again or state["driver"] != "nvidia":
        shutil.rmtree(folder, ignore_errors=True)
        shutil.rmtree(PROC / "nvidia-caps", ignore_errors=True)
    if state["driver"] != "nvidia":
        return
    folder.mkdir(exist_ok=True)
    line = (
        "Open Kernel Module for x86_64  {}  Release Build  (gpuprov-stand-in)"
        if state["open"]
        else "x86_64 Kernel Module  {}"
    )
    (folder / "version").write_text(
        f"NVRM version: NVIDIA UNIX {line.format(state['version'])}  Thu Jan  1 00:00:00 UTC 1970\n"
        "GCC version:  gcc version 12.2.0 (gpuprov stand-in)\n"
    )
    (folder / "params").write_text("".join(f"{name}: {value}\n" for name, value in state["parameters"].items()))
    for function in functions:
        role, index, address, name, uuid = *function[:3], *function[7:9]
        if role == "gpu":
            (folder / "gpus" / address).mkdir(parents=True, exist_ok=True)
            (folder / "gpus" / address / "information").write_text(
                f"Model: \t\t {name}\nIRQ:   \t\t 0\nGPU UUID: \t {uuid}\nVideo BIOS: \t ??.??.??.??.??\n"
                "Bus Type: \t PCIe\nDMA Size: \t 47 bits\nDMA Mask: \t 0x7fffffffffff\n"
                f"Bus Location: \t {address}\nDevice Minor: \t {index}\n"
                f"GPU Firmware: \t {state['version']}\nGPU Excluded:\t No\n"
            )


def show_nodes(functions: Table, state: State) -> None:
    """Make character devices that can be opened and held: each is another node of /dev/null."""
    names = ["nvidiactl", "nvidia-modeset", "nvidia-uvm", "nvidia-uvm-tools"]
    names += [f"nvidia{function[1]}" for function in functions if function[0] == "gpu"]
    nodes = {f"/dev/{name}" for name in names} if state["driver"] == "nvidia" else set()
    for path in Path("/dev").glob("nvidia*"):
        if path.is_char_device() and (str(path) not in nodes or path.stat().st_rdev != NULL):
            path.unlink()
    # As udev has it on every host for the device of that number; a container's udev replays no devices of its machine.
    link = Path(f"/dev/char/{os.major(NULL)}:{os.minor(NULL)}")
    link.parent.mkdir(exist_ok=True)
    if not link.is_symlink():
        link.symlink_to("../null")
    shown = state["parameters"]
    for node in nodes:
        if not os.path.exists(node):
            os.mknod(node, 0o020000, NULL)
        os.chmod(node, int(shown["DeviceFileMode"]))
        os.chown(node, int(shown["DeviceFileUID"]), int(shown["DeviceFileGID"]))
    shutil.rmtree(CHANNELS, ignore_errors=True)
    if shown.get("CreateImexChannel0") == "1":
        CHANNELS.mkdir()
        os.mknod(CHANNELS / "channel0", 0o020000, NULL)
        os.chmod(CHANNELS / "channel0", 0o666)


def show_capabilities(functions: Table, state: State, *, again: bool) -> None:
    """Make the capability files that a loaded driver has before any MIG instance exists."""
    # https://docs.nvidia.com/datacenter/tesla/mig-user-guide/device-nodes-and-capabilities.html
    if again and state["driver"] == "nvidia":
        return
    shutil.rmtree(CAPS, ignore_errors=True)
    if state["driver"] != "nvidia":
        return
    folder = PROC / "nvidia" / "capabilities"
    for index in (function[1] for function in functions if function[0] == "gpu"):
        (folder / f"gpu{index}" / "mig").mkdir(parents=True)
    (folder / "mig").mkdir()
    CAPS.mkdir()
    for minor, (name, mode) in enumerate(MIG.items(), start=1):
        (folder / "mig" / name).write_text(f"DeviceFileMinor: {minor}\nDeviceFileMode: {mode}\nDeviceFileModify: 1\n")
        os.chmod(folder / "mig" / name, mode)
        os.mknod(CAPS / f"nvidia-cap{minor}", 0o020000, NULL)
        os.chmod(CAPS / f"nvidia-cap{minor}", mode)
    (PROC / "nvidia-caps").mkdir()
    lines = [f"{name} {minor}\n" for minor, name in enumerate([*MIG, *minors()], start=1)]
    (PROC / "nvidia-caps" / "mig-minors").write_text("".join(lines))


def minors() -> list[str]:
    """Return everything with its own minor number, from 3 on, present or not."""
    instances = [f"gpu{gpu}/gi{number}" for gpu in range(MOST_GPUS) for number in range(MOST_INSTANCES)]
    parts = ["", *(f"/ci{number}" for number in range(MOST_COMPUTE))]
    return [f"{instance}{part}/access" for instance in instances for part in parts]


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) == 2 else "")
