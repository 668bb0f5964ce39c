"""Judge of the current boot: whether the first boot after gpuprov's change is a good one. A unit runs it at boot.

If it is good, it is no longer counted. If it is not, or this never runs, the next boot starts the kept state: see
first_boot.

Usage: python -m gpuprov_boot.first_boot_judge. Managed by gpuprov.
"""

from __future__ import annotations

import contextlib
import glob
import json
import os
import re
import shutil
import subprocess
import sys
import time
from typing import Sequence

from . import first_boot_grub, first_boot_systemd
from . import first_boot_tools as tools
from .first_boot_tools import BACK, FIRST, KEPT, ROOT, Loader, Record, read_text

STATE = ROOT + "/var/lib/gpuprov/first_boot.json"
PANIC = "/proc/sys/kernel/panic"
# Seconds for a first boot to complete; then the host reboots into the kept state, unless it is in service or at work.
PATIENCE = 900
# Cgroups of services that have GPUs open without working on them.
DAEMONS = re.compile(r"/(nvidia-|nv-|dcgm|gpuprov-)[^/]*\.service(/|\n|\Z)")


def find_loader() -> Loader:
    """Return the bootloader that has started the host."""
    return first_boot_systemd if first_boot_systemd.started() else first_boot_grub


def judge() -> str:
    """Judge the current boot: a good first boot is no longer counted. Return the result."""
    known = read_record()
    if FIRST[0] in read_words_of_boot(own=True):
        return end_first_boot(known)
    if not read_choice() or not known:
        return "no boot is counted"
    if KEPT not in read_words_of_boot(own=True):
        return "this is not a first boot: somebody chose the entry"
    if known.get("settled") and not has_newer_kernel(known["kernel"]):
        settle()
        return (
            f"the kernel that did not come up is gone: the next boot starts {find_loader().NAME}'s own default, "
            "and is counted"
        )
    return "started as it was before: what was changed did not come up"


def end_first_boot(known: Record) -> str:
    """Reboot if a first boot does not end, even if /boot and /var, with all records, are what is missing in it."""
    # A kexec may start a kernel with the first boot's words again, long after it: then the counter can be read, and
    # counts nothing.
    if find_loader().readable() and not read_choice():
        return "no boot is counted"
    state = _complete()
    if state not in ("running", "degraded") and not is_serving():
        problem = f"it was not complete after {PATIENCE} s ({state or 'no answer of systemd'})"
        if works := find_process_at_work():
            problem += f", and is left as it is for process {works}, which has a GPU open"
        with contextlib.suppress(OSError):
            note_finding(known, problem)
        os.sync()
        if not works:
            tools.run(["systemctl", "reboot", "--force"])
        return problem
    if not read_choice() or not known:
        return "no boot is counted"
    if known["answers"] and not is_answering():
        return note_finding(known, "nvidia-smi, which answered before the reboot, does not")
    with contextlib.suppress(OSError):
        reset_panic(known)
    _forget(known)
    return "a good first boot"


def reset_panic(known: Record) -> None:
    """Reset kernel.panic to its value without the added words of the command line: the applied spec may have set it,
    too."""
    if f"panic={read_text(PANIC)}" not in FIRST:
        return
    now, before = (
        [word for word in words if word.startswith("panic=")] for words in (read_words_of_boot(), known["words"])
    )
    by_default = "0" if before else known["panic"]
    with open(ROOT + PANIC, "w", encoding="ascii") as file:
        file.write(now[-1].partition("=")[2] if now else by_default)
    tools.run([ROOT + "/lib/systemd/systemd-sysctl", "--prefix=/kernel/panic"])


def settle() -> None:
    """Settle a rollback that has undone the booted state, while the bootloader starts the kept one.

    The next boot, whoever starts it, is again a first boot of its own default. If that is a newer kernel, which did not
    come up, the host stays with the kept state until that kernel is gone.
    """
    known = read_record()
    if known and read_choice() == BACK:
        note_state({**known, "settled": True, "found": ""})
        if not has_newer_kernel(known["kernel"]):
            again: Record = {**read_record(), **find_loader().again(known)}
            note_state(again)
            find_loader().arm(again, once=True)


def _complete() -> str:
    """Wait for the boot to complete, and return systemd's state of it; the last state if it does not complete."""
    until, state = time.monotonic() + PATIENCE, ""
    while time.monotonic() < until:
        state = tools.run(["systemctl", "is-system-running"]).stdout.strip()
        if state in ("running", "degraded"):
            break
        time.sleep(2)
    return state


def is_serving() -> bool:
    """Return whether the host has reached its default target: a long-running job, such as a script of cloud-init,
    leaves systemd "starting"."""
    return tools.run(["systemctl", "is-active", "--quiet", "default.target"]).returncode == 0


def find_process_at_work() -> str:
    """Return number and name of a process that has a GPU open and is not an NVIDIA daemon: a scheduler that has started
    may have given the host a job."""
    for path in glob.iglob(f"{ROOT}/proc/[0-9]*/fd/*"):
        with contextlib.suppress(OSError):
            pid = path.split("/")[-3]
            if not re.fullmatch("/dev/nvidia[0-9]+", os.readlink(path)):
                continue
            if not DAEMONS.search(read_text(f"/proc/{pid}/cgroup")):
                return f"{pid} ({read_text(f'/proc/{pid}/comm')})"
    return ""


def note_finding(state: Record, finding: str) -> str:
    note_state({**state, "found": finding})
    return finding


def note_state(state: Record) -> None:
    tools.write(STATE, json.dumps(state) + "\n", 0o600)


def _forget(known: Record) -> None:
    find_loader().forget(known)
    drop()


def drop() -> None:
    """Delete the kept state: nothing was changed that could make a boot fail."""
    if not read_choice() and os.path.exists(STATE):
        find_loader().drop(read_record())
        os.unlink(STATE)


def read_choice() -> str:
    """Return the bootloader's choice for the next boot, ONCE or BACK; "" if it starts its own default."""
    return find_loader().counted()


def read_record() -> Record:
    """Return the record of the kept state and its outcome; empty if there is none or it is damaged."""
    try:
        with open(STATE, encoding="utf-8") as file:
            content: Record = json.load(file)
        return content if isinstance(content, dict) and content.get("kernel") else {}
    except (OSError, ValueError):
        return {}


def read_words_of_boot(*, own: bool = False) -> list[str]:
    """Return the running kernel's command line without the words of the bootloader and gpuprov; with `own`, including
    gpuprov's."""
    words = find_loader().words_of(read_text("/proc/cmdline").split())
    return words if own else drop_first_boot_words(words)


def drop_first_boot_words(words: Sequence[str]) -> list[str]:
    """Return a command line without the words for a first boot; the site may have a `panic=30` of its own."""
    remaining = list(words)
    for word in FIRST if FIRST[0] in remaining else ():
        if word in remaining:
            remaining.remove(word)
    return remaining


def has_newer_kernel(kernel: str) -> bool:
    """Return whether a newer kernel than this one is installed, which the bootloader would start by default."""
    return find_newest() not in ("", kernel)


def find_newest() -> str:
    return tools.find_newest(find_loader().kernels())


def is_answering() -> bool:
    try:
        return bool(shutil.which("nvidia-smi")) and tools.run(["nvidia-smi", "-L"], 120).returncode == 0
    except subprocess.TimeoutExpired:
        return False


def main() -> None:
    os.umask(0o022)
    try:
        print(judge())
    except (OSError, ValueError, LookupError, subprocess.SubprocessError) as error:
        sys.exit(f"first boot: not judged: {error}")


if __name__ == "__main__":
    main()
