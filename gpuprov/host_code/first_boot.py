"""The first boot after a change, and the fallback if the host does not come up: boot counting by the bootloader.

Before anything is changed, the kernel, the initramfs and the command line in use are kept beside the boot menu. Before
a reboot the boot is counted: the bootloader starts the new state once, and from then on the kept one, until
first_boot_judge, which a unit runs at boot, finds that the boot is complete and the driver answers. The site's default
entry is unchanged.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from typing import Collection, Mapping

from . import first_boot_judge as judge
from . import first_boot_tools as tools
from . import reasons
from .first_boot_tools import BACK, FIRST, KEPT, ROOT

ROLLBACK = ROOT + "/var/lib/gpuprov/checkpoints/target.json"
# A folder with the package gpuprov_boot, which contains the judge and its imports.
PROGRAM = "/usr/local/lib/gpuprov/first_boot"
# The program of the unit of earlier versions.
OLD = "/usr/local/lib/gpuprov/first_boot_judge.py"
UNIT = "gpuprov-first-boot.service"
DRIVER = ("nvidia", "nvidia_uvm", "nvidia_modeset", "nvidia_drm", "nvidia_peermem")
UNIT_TEXT = """# Managed by gpuprov
[Unit]
Description=gpuprov: is the first boot into what was changed a good one
DefaultDependencies=no
After=local-fs.target
Before=shutdown.target
Conflicts=shutdown.target
ConditionKernelCommandLine=|{first}
ConditionPathExists=|/var/lib/gpuprov/first_boot.json
ConditionPathExists=!/proc/vmcore

[Service]
Type=simple
Environment=PYTHONPATH={program}
ExecStart={python} -m gpuprov_boot.first_boot_judge

[Install]
WantedBy=sysinit.target
"""


def keep(run: str) -> str:
    """Keep the state that the host runs, before anything is changed; return the reason why it cannot be kept, or ""."""
    loader = judge.find_loader()
    why = loader.impossible()
    if why:
        return why
    state = judge.read_record()
    if state.get("off") and KEPT in judge.read_words_of_boot(own=True):
        reasons.keep("host", "the host runs as it was before a boot that failed, without the NVIDIA driver")
    if state.get("boot_id") == tools.read_text("/proc/sys/kernel/random/boot_id") or judge.read_choice():
        return ""  # kept in this boot before something was changed, or it is not known to be good
    kernel, words = tools.read_text("/proc/sys/kernel/osrelease"), judge.read_words_of_boot()
    why = loader.odd(words)
    if why:
        return why
    try:
        files, folder = loader.sources(kernel), loader.folder(kernel)
    except LookupError as unknown:
        return str(unknown)
    why = _find_obstacle(files.values(), os.path.dirname(folder))
    if why:
        return why
    loader.drop(state)
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder, 0o700)
    for name, path in files.items():
        shutil.copyfile(path, f"{folder}/{name}.part")
        os.replace(f"{folder}/{name}.part", f"{folder}/{name}")
    record: tools.Record = {
        "run": run,
        "boot_id": tools.read_text("/proc/sys/kernel/random/boot_id"),
        "kernel": kernel,
        "folder": folder,
        "words": words,
        "driver": describe_loaded() or describe_installed(kernel),
        "answers": judge.is_answering(),
        "panic": tools.read_text(judge.PANIC),
    }
    judge.note_state(record)
    return ""


def _find_obstacle(files: Collection[str], folder: str) -> str:
    """Return why the running kernel's files cannot be copied to the folder, or ""."""
    for path in files:
        if not os.path.isfile(path):
            return f"the running kernel's {path} is not there"
        if os.stat(path).st_mtime > time.time() - float(tools.read_text("/proc/uptime").split()[0]):
            return f"{path} was made anew since the host was started: nobody knows yet whether it boots"
    if shutil.disk_usage(folder).free < 2 * sum(os.path.getsize(path) for path in files):
        return f"{folder} has no room for a second kernel and initramfs"
    return ""


def count(programs: Mapping[str, str], python: str) -> str:
    """Count the next boot; return the reason why it is not counted, or "". `programs`: the judge's modules, by name,
    for the unit."""
    state, loader = judge.read_record(), judge.find_loader()
    why = loader.impossible() if state else "what the host ran by was not kept"
    if why:
        return why
    stay = bool(os.path.exists(ROLLBACK) and judge.read_choice() == BACK and judge.has_newer_kernel(state["kernel"]))
    off = not stay and describe_installed(state["kernel"]) != state["driver"]
    for name, text in {"__init__": "", **programs}.items():
        tools.write(f"{ROOT}{PROGRAM}/gpuprov_boot/{name}.py", text, 0o644)
    unit = UNIT_TEXT.format(python=python, program=PROGRAM, first=FIRST[0])
    tools.write(f"{ROOT}/etc/systemd/system/{UNIT}", unit, 0o644)
    tools.call(["systemctl", "daemon-reload"])
    tools.call(["systemctl", "enable", UNIT])
    with contextlib.suppress(FileNotFoundError):
        os.unlink(ROOT + OLD)
    words = [*state["words"], KEPT, *([f"module_blacklist={','.join(DRIVER)}"] if off else [])]
    state["answers"] = state["answers"] and bool(shutil.which("nvidia-smi"))  # it was removed on purpose
    state = {**state, "off": off, "tried": judge.find_newest(), "stays": stay, "settled": False, "found": ""}
    try:
        state.update(loader.prepare(state, words))
        state.update({} if stay else loader.again(state))
    except LookupError as unknown:
        return str(unknown)
    judge.note_state(state)
    loader.arm(state, once=not stay)
    os.sync()
    return ""


def came_up() -> str:
    """Return, after a reboot, why the host differs from the expected state, or ""."""
    state, kept = judge.read_record(), KEPT in judge.read_words_of_boot(own=True)
    if not kept and not judge.read_choice():
        return ""
    if kept:
        if state.get("stays"):  # where a rollback was to go
            judge.settle()
            return ""
        without = ", without the NVIDIA driver, which was another before" if state.get("off") else ""
        details = f"; {state['found']}" if state.get("found") else ""
        kernel = state.get("kernel") or "the kernel that was kept"
        return (
            f"the host did not come up with what this run changed ({state.get('tried') or 'the new kernel'} was to "
            f"start{details}): "
            f"{judge.find_loader().NAME} has started it again as it was before, with {kernel}{without}. Fix: see "
            "its console, and journalctl --boot=-1 if it came so far; then gpuprov rollback, or correct the spec "
            "and apply"
        )
    until = time.monotonic() + judge.PATIENCE
    while time.monotonic() < until:
        if not judge.read_choice():
            return ""
        if tools.run(["systemctl", "is-active", "--quiet", UNIT]).returncode:
            break
        time.sleep(1)
    reason = judge.read_record().get("found") or "it was not judged"
    return f"the boot is not a good one: {reason}. The next one starts what was before"


def no_reboot() -> None:
    """Drop the kept state: nothing was changed that a boot could fail on, or a rollback has undone it."""
    if os.path.exists(ROLLBACK):
        judge.settle()
    judge.drop()


def describe_loaded() -> str:
    return " ".join(tools.read_text(f"/sys/module/nvidia/{name}") for name in ("version", "srcversion")).strip()


def describe_installed(kernel: str) -> str:
    """Describe the driver's module for this kernel, in the format of `describe_loaded`."""
    for name in ("nvidia", "nvidia-current"):
        values = [
            tools.capture_output(["modinfo", "-k", kernel, "-F", field, name]) for field in ("version", "srcversion")
        ]
        if any(values):
            return " ".join(values).strip()
    return ""
