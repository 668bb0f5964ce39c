"""The first boot into what was changed, and the way back if the host does not come up: boot counting with GRUB's environment.

Before anything is changed, the kernel, the initramfs and the command line that the host runs by are kept beside GRUB's menu. Before
a reboot the boot is counted: GRUB notes that it starts the new state for the first time, and from then on starts what was kept, until
first_boot_judge, which a unit runs at boot, has found the boot complete and the driver answering. The site's default stays.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import time

from . import first_boot_judge as judge
from . import reasons
from .first_boot_judge import BACK, ENVIRONMENT, FIRST, FOLDER, GRUB, KEPT, ONCE, ROOT, STATE, VARIABLE

ENTRY = FOLDER + "/boot.cfg"
MENU = GRUB + "/grub.cfg"
HOOK = ROOT + "/etc/grub.d/42_gpuprov"
WORDS = ROOT + "/etc/default/grub.d/99-gpuprov-first-boot.cfg"
ROLLBACK = ROOT + "/var/lib/gpuprov/checkpoints/target.json"
PROGRAM = "/usr/local/lib/gpuprov/first_boot_judge.py"
UNIT = "gpuprov-first-boot.service"
DRIVER = ("nvidia", "nvidia_uvm", "nvidia_modeset", "nvidia_drm", "nvidia_peermem")
PLAIN = re.compile(r"[A-Za-z0-9_.,:;=/@%+~^*?!()\[\]{}<>|&#-]+")
"""A word that stands in GRUB's menu between single quotes and comes out as it was."""
UNWRITABLE = ("btrfs", "cpiofs", "newc", "odc", "romfs", "squash4", "tarfs", "zfs")
"""File systems that GRUB cannot write to: https://www.gnu.org/software/grub/manual/grub/html_node/Environment-block.html"""

HOOK_TEXT = """#!/bin/sh
# Managed by gpuprov: the way back if a first boot fails. Without $prefix/gpuprov/boot.cfg it does nothing.
cat <<'END'
if [ -f $prefix/gpuprov/boot.cfg ]; then
  source $prefix/gpuprov/boot.cfg
fi
END
"""
WORDS_TEXT = """# Managed by gpuprov: GRUB fills this in at the first boot into what was changed; it is empty else.
GRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX \\$gpuprov_first"
"""
ENTRY_TEXT = """# Written by gpuprov before run {run} rebooted the host.
if [ "${variable}" = {once} ]; then
  set {variable}={back}
  save_env {variable}
  set gpuprov_first="{first}"
  export gpuprov_first
elif [ "${variable}" = {back} -a "$boot_once" != true ]; then
  set default=gpuprov-kept
fi
menuentry 'as before run {run} of gpuprov ({kernel})' --id gpuprov-kept {{
  linux $prefix/gpuprov/vmlinuz-{kernel} {words}
  initrd $prefix/gpuprov/initrd.img-{kernel}
}}
"""
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
ExecStart={python} {program}

[Install]
WantedBy=sysinit.target
"""


def impossible() -> str:
    """Why this host cannot go back by itself; empty where it can."""
    return why_not(
        container=judge.run(["systemd-detect-virt", "--container", "--quiet"]).returncode == 0,
        menu=bool(shutil.which("update-grub")) and os.path.isfile(MENU),
        environment=os.path.exists(ENVIRONMENT),
        layers=judge.out(["grub-probe", "--target=abstraction", ENVIRONMENT]),
        system=judge.out(["grub-probe", "--target=fs", ENVIRONMENT]),
    )


def why_not(*, container: bool, menu: bool, environment: bool, layers: str, system: str) -> str:
    """The same of what is known. `menu`: update-grub makes GRUB's menu; `layers`: of the disk, as grub-probe names them."""
    if container:
        return "a container has no bootloader"
    if not menu:
        return "boots are counted with the GRUB of Debian and Ubuntu only"
    if not environment:
        return "GRUB has no environment, /boot/grub/grubenv"
    if layers or not system or system in UNWRITABLE:
        on = layers or system or "a file system that grub-probe does not know"
        return f"GRUB cannot write to /boot, which is on {on}"
    return ""


def keep(run: str) -> str:
    """Keep what the host runs by, before anything is changed; why it cannot be kept, or nothing."""
    why = impossible()
    if why:
        return why
    state = judge.record()
    if state.get("off") and KEPT in judge.words_of_boot(own=True):
        reasons.keep("host", "the host runs as it was before a boot that failed, without the NVIDIA driver")
    if state.get("boot_id") == judge.text_of("/proc/sys/kernel/random/boot_id") or judge.counted():
        return ""  # kept in this boot before something was changed, or it is not known to be good
    kernel = judge.text_of("/proc/sys/kernel/osrelease")
    files = {name: f"{ROOT}/boot/{name}-{kernel}" for name in ("vmlinuz", "initrd.img")}
    words = judge.words_of_boot()
    odd = [word for word in words if not PLAIN.fullmatch(word)]
    if odd:
        return f"its command line has a word that GRUB's menu cannot hold as it is: {odd[0]}"
    for path in files.values():
        if not os.path.isfile(path):
            return f"the running kernel's {path} is not there"
        if os.stat(path).st_mtime > time.time() - float(judge.text_of("/proc/uptime").split()[0]):
            return f"{path} was made anew since the host was started: nobody knows yet whether it boots"
    if shutil.disk_usage(GRUB).free < 2 * sum(os.path.getsize(path) for path in files.values()):
        return "/boot has no room for a second kernel and initramfs"
    shutil.rmtree(FOLDER, ignore_errors=True)
    os.makedirs(FOLDER, 0o700)
    for name, path in files.items():
        shutil.copyfile(path, f"{FOLDER}/{name}-{kernel}.part")
        os.replace(f"{FOLDER}/{name}-{kernel}.part", f"{FOLDER}/{name}-{kernel}")
    told = {
        "run": run,
        "boot_id": judge.text_of("/proc/sys/kernel/random/boot_id"),
        "kernel": kernel,
        "words": words,
        "driver": _loaded() or _installed(kernel),
        "answers": judge.answers(),
        "panic": judge.text_of(judge.PANIC),
    }
    judge.write(STATE, json.dumps(told) + "\n", 0o600)
    return ""


def count(text: str, python: str) -> str:
    """Count the next boot; why it is not counted, or nothing. `text`: of first_boot_judge, for the unit."""
    state = judge.record()
    why = impossible() if state else "what the host ran by was not kept"
    if why:
        return why
    stay = bool(os.path.exists(ROLLBACK) and judge.counted() == BACK and judge.newer(state["kernel"]))
    off = not stay and _installed(state["kernel"]) != state["driver"]
    judge.write(ROOT + PROGRAM, text, 0o755)
    unit = UNIT_TEXT.format(python=python, program=PROGRAM, first=FIRST[0])
    judge.write(f"{ROOT}/etc/systemd/system/{UNIT}", unit, 0o644)
    judge.call(["systemctl", "daemon-reload"])
    judge.call(["systemctl", "enable", UNIT])
    if (
        not os.path.exists(HOOK)
        or not os.path.exists(WORDS)
        or "gpuprov/boot.cfg" not in judge.text_of("/boot/grub/grub.cfg")
    ):
        judge.write(HOOK, HOOK_TEXT, 0o755)
        judge.write(WORDS, WORDS_TEXT, 0o644)
        judge.call(["update-grub"])
    words = [*state["words"], KEPT, *([f"module_blacklist={','.join(DRIVER)}"] if off else [])]
    judge.write(
        ENTRY,
        ENTRY_TEXT.format(
            run=state["run"], kernel=state["kernel"], variable=VARIABLE, once=ONCE, back=BACK, first=" ".join(FIRST),
            words=" ".join(f"'{word}'" for word in words),
        ),
        0o600,
    )  # fmt: skip
    judge.write(
        STATE,
        json.dumps({**state, "off": off, "tried": judge.newest(), "stays": stay, "settled": False, "found": ""}) + "\n",
        0o600,
    )
    judge.call(["grub-editenv", ENVIRONMENT, "set", f"{VARIABLE}={BACK if stay else ONCE}"])
    os.sync()
    return ""


def came_up() -> str:
    """After a reboot: why the host is not what it was rebooted for, or nothing."""
    state, kept = judge.record(), KEPT in judge.words_of_boot(own=True)
    if not kept and not judge.counted():
        return ""
    if kept:
        if state.get("stays"):  # where a rollback was to go
            judge.settle()
            return ""
        without = ", without the NVIDIA driver, which was another before" if state.get("off") else ""
        found = f"; {state['found']}" if state.get("found") else ""
        kernel = state.get("kernel") or "the kernel that was kept"
        return (
            f"the host did not come up with what this run changed ({state.get('tried') or 'the new kernel'} was to start{found}): "
            f"GRUB has started it again as it was before, with {kernel}{without}. Fix: see its console, and "
            "journalctl --boot=-1 if it came so far; then gpuprov rollback, or correct the spec and apply"
        )
    until = time.monotonic() + judge.PATIENCE
    while time.monotonic() < until:
        if not judge.counted():
            return ""
        if judge.run(["systemctl", "is-active", "--quiet", UNIT]).returncode:
            break
        time.sleep(1)
    return f"the boot is not a good one: {judge.record().get('found') or 'it was not judged'}. The next one starts what was before"


def no_reboot() -> None:
    """Nothing was changed that a boot could fail of, or a rollback has taken it back."""
    if os.path.exists(ROLLBACK):
        judge.settle()
    judge.drop()


def _loaded() -> str:
    return " ".join(judge.text_of(f"/sys/module/nvidia/{name}") for name in ("version", "srcversion")).strip()


def _installed(kernel: str) -> str:
    """Of the driver's module for this kernel, what `_loaded` says of a loaded one."""
    for name in ("nvidia", "nvidia-current"):
        found = [judge.out(["modinfo", "-k", kernel, "-F", field, name]) for field in ("version", "srcversion")]
        if any(found):
            return " ".join(found).strip()
    return ""
