"""Judges the boot that the host is in: whether the first boot into what gpuprov changed is a good one. A unit runs it at boot.

Where it is, GRUB counts it no more. Where it is not, or this never runs, the next boot starts what was before: see first_boot.

Usage: first_boot_judge.py. Managed by gpuprov.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from typing import Any, Sequence

ROOT = os.environ.get("GPUPROV_ROOT", "")
GRUB = ROOT + "/boot/grub"
FOLDER = GRUB + "/gpuprov"
ENVIRONMENT = GRUB + "/grubenv"
STATE = ROOT + "/var/lib/gpuprov/first_boot.json"
VARIABLE = "gpuprov_boot"
ONCE, BACK = "once", "back"
"""Of VARIABLE: the next boot starts the new state, for the first time; every boot starts what was kept."""
FIRST = ("gpuprov.first", "panic=30")
"""On the command line of the first boot: without `panic` a kernel that panics, and an initramfs that gives up, wait for ever."""
PANIC = "/proc/sys/kernel/panic"
KEPT = "gpuprov.kept"
"""On the command line of what was kept."""
PATIENCE = 900
"""Seconds for a first boot to be complete; then the host is started again, with what was kept."""


def judge() -> str:
    """The boot that the host is in: a good first boot is not counted any more. What was found."""
    known = record()
    if FIRST[0] in words_of_boot(own=True):
        return _first(known)
    if not counted() or not known:
        return "no boot is counted"
    if KEPT not in words_of_boot(own=True):
        return "this is no first boot: somebody chose the entry"
    if known.get("settled") and not newer(known["kernel"]):
        settle()
        return "the kernel that did not come up is gone: the next boot starts GRUB's own default, and is counted"
    return "started as it was before: what was changed did not come up"


def _first(known: dict[str, Any]) -> str:
    """A boot that does not end is ended, also where /boot and /var, with all that was noted, are what is missing in it.

    A kexec may start a kernel with the first boot's words again, long after it: then GRUB's environment is there, and counts nothing.
    """
    if os.path.exists(ENVIRONMENT) and not counted():
        return "no boot is counted"
    found = _complete()
    if found not in ("running", "degraded"):
        said = f"it was not complete after {PATIENCE} s ({found or 'no answer of systemd'})"
        with contextlib.suppress(OSError):
            _noted(known, said)
        os.sync()
        run(["systemctl", "reboot", "--force"])
        return said
    if not counted() or not known:
        return "no boot is counted"
    if known["answers"] and not answers():
        return _noted(known, "nvidia-smi, which answered before the reboot, does not")
    with contextlib.suppress(OSError):
        _panic_as_before(known)
    _forget()
    return "a good first boot"


def _panic_as_before(known: dict[str, Any]) -> None:
    """kernel.panic as it would be without what was added to the command line: what was applied may have set it, too."""
    if f"panic={text_of(PANIC)}" not in FIRST:
        return
    now, before = ([word for word in words if word.startswith("panic=")] for words in (words_of_boot(), known["words"]))
    by_default = "0" if before else known["panic"]
    with open(ROOT + PANIC, "w", encoding="ascii") as file:
        file.write(now[-1].partition("=")[2] if now else by_default)
    run([ROOT + "/lib/systemd/systemd-sysctl", "--prefix=/kernel/panic"])


def settle() -> None:
    """A rollback has taken back what is booted, while GRUB starts what was kept.

    The next boot, whoever does it, is the first one of GRUB's own default again. Where that is a newer kernel, which did not come up,
    the host stays with what was kept until that kernel is gone.
    """
    known = record()
    if known and counted() == BACK:
        write(STATE, json.dumps({**known, "settled": True, "found": ""}) + "\n", 0o600)
        if not newer(known["kernel"]):
            call(["grub-editenv", ENVIRONMENT, "set", f"{VARIABLE}={ONCE}"])


def _complete() -> str:
    """What systemd says of the boot, once it is complete; what it says last where that does not come."""
    until, found = time.monotonic() + PATIENCE, ""
    while time.monotonic() < until:
        found = run(["systemctl", "is-system-running"]).stdout.strip()
        if found in ("running", "degraded"):
            break
        time.sleep(2)
    return found


def _noted(state: dict[str, Any], found: str) -> str:
    write(STATE, json.dumps({**state, "found": found}) + "\n", 0o600)
    return found


def _forget() -> None:
    call(["grub-editenv", ENVIRONMENT, "unset", VARIABLE])
    drop()


def drop() -> None:
    """What was kept is not needed: nothing was changed that a boot could fail of."""
    if not counted() and os.path.exists(STATE):
        shutil.rmtree(FOLDER, ignore_errors=True)
        os.unlink(STATE)


def counted() -> str:
    """The value of VARIABLE: what GRUB does at the next boot; empty where it starts its own default."""
    for line in out(["grub-editenv", ENVIRONMENT, "list"]).splitlines():
        if line.startswith(VARIABLE + "="):
            return line.partition("=")[2]
    return ""


def record() -> dict[str, Any]:
    """What was kept, and what became of it; empty where nothing is, or its record is damaged."""
    try:
        with open(STATE, encoding="utf-8") as file:
            found = json.load(file)
        return found if isinstance(found, dict) and found.get("kernel") else {}
    except (OSError, ValueError):
        return {}


def words_of_boot(*, own: bool = False) -> list[str]:
    """Of the running kernel's command line, without what GRUB and gpuprov put there; `own`: with what gpuprov put there."""
    words = [word for word in text_of("/proc/cmdline").split() if not word.startswith("BOOT_IMAGE=")]
    return words if own else without_first(words)


def without_first(words: Sequence[str]) -> list[str]:
    """A command line without what GRUB has added for a first boot; the site may have a `panic=30` of its own."""
    left = list(words)
    for word in FIRST if FIRST[0] in left else ():
        if word in left:
            left.remove(word)
    return left


def newer(kernel: str) -> bool:
    """Whether a newer kernel than this one is there, which GRUB would start of its own accord."""
    return newest() not in ("", kernel)


def newest() -> str:
    names = [name[8:] for name in os.listdir(ROOT + "/boot") if name.startswith("vmlinuz-")]
    return max(names, key=lambda name: [int(part) for part in re.findall(r"\d+", name)], default="")


def answers() -> bool:
    try:
        return bool(shutil.which("nvidia-smi")) and run(["nvidia-smi", "-L"], 120).returncode == 0
    except subprocess.TimeoutExpired:
        return False


def text_of(path: str) -> str:
    try:
        with open(ROOT + path, encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return ""


def write(path: str, text: str, mode: int) -> None:
    """Whole, and on the disk before this returns: a kernel may panic next."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    scratch = path + ".gpuprov-new"
    with open(scratch, "w", encoding="utf-8") as file:
        os.chmod(scratch, mode)
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(scratch, path)


def run(words: Sequence[str], limit: float = 600) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            words,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=limit,
        )
    except FileNotFoundError:
        return subprocess.CompletedProcess(words, 127, "", f"{words[0]} is not there")


def out(words: Sequence[str]) -> str:
    ran = run(words)
    return ran.stdout.strip() if ran.returncode == 0 else ""


def call(words: Sequence[str]) -> None:
    ran = run(words)
    if ran.returncode:
        raise OSError(f"{' '.join(words)} failed: {' '.join(ran.stderr.split())[-300:]}")


def main() -> None:
    os.umask(0o022)
    try:
        print(judge())
    except (OSError, ValueError, KeyError, subprocess.SubprocessError) as error:
        sys.exit(f"first boot: not judged: {error}")


if __name__ == "__main__":
    main()
