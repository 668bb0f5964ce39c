"""Lines of the kernel's log: messages of several lines, in Python and in a shell alike."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from gpuprov.host_code.kernel_lines import JOINED, join_messages
from tests.rows import run_each

REAL = Path(__file__).parents[1] / "real"
GPU = "NVRM: The NVIDIA GPU 0000:b3:00.0"
ROWS = [
    (
        (REAL / "l40s-off-the-bus/dmesg.txt").read_text(encoding="utf-8"),
        "[ 1843.308145] NVRM: The NVIDIA GPU 0000:b3:00.0 (PCI ID: 10de:26b5) installed in this system has fallen "
        "off the bus and is not responding to commands.",
    ),
    (
        (REAL / "p4-open-580/dmesg.txt").read_text(encoding="utf-8"),
        "[   87.358035] NVRM: The NVIDIA GPU 0000:03:00.0 (PCI ID: 10de:1bb3) installed in this system is not "
        "supported by open nvidia.ko because it does not include the required GPU System Processor (GSP).",
    ),
    (
        (REAL / "ubuntu1604-367-mismatch/journal.txt").read_text(encoding="utf-8"),
        "Aug 26 14:08:07 host kernel: NVRM: API mismatch: the client has the version 367.44, but this kernel module "
        "has the version 367.35.  Please make sure that this kernel module and all NVIDIA driver components have "
        "the same version.",
    ),
    (
        "[    4.1] NVRM: The NVIDIA GPU 0000:01:00.0 (PCI ID: 10de:2b85)\n"
        "[    4.1] NVRM: installed in this system requires use of the NVIDIA open kernel modules.\n"
        "[    4.2] NVRM: None of the NVIDIA devices were initialized.\n",
        "[    4.1] NVRM: The NVIDIA GPU 0000:01:00.0 (PCI ID: 10de:2b85) installed in this system requires use of "
        "the NVIDIA open kernel modules.",
    ),
    (
        "[    4.1] NVRM: The NVIDIA GeForce GTX 580 GPU installed in this system is\n"
        "               NVRM:  supported through the NVIDIA 390.xx Legacy drivers. Please\n"
        "               NVRM:  visit http://www.nvidia.com/object/unix.html for more\n"
        "               NVRM:  information.  The 580.95.05 NVIDIA driver will ignore\n"
        "               NVRM:  this GPU.  Continuing probe...\n",
        "[    4.1] NVRM: The NVIDIA GeForce GTX 580 GPU installed in this system is supported through the NVIDIA "
        "390.xx Legacy "
        "drivers. Please visit http://www.nvidia.com/object/unix.html for more information.  The 580.95.05 NVIDIA "
        "driver will ignore this GPU.  Continuing probe...",
    ),
    (
        "[    4.1] NVRM: This PCI I/O region assigned to your NVIDIA device is invalid:\n"
        "[    4.1] NVRM: BAR1 is 0M @ 0x0 (PCI:0000:02:00.0)\n",
        "[    4.1] NVRM: This PCI I/O region assigned to your NVIDIA device is invalid: BAR1 is 0M @ 0x0 "
        "(PCI:0000:02:00.0)",
    ),
]
APART = [
    "",
    "\n",
    "a\n\n b\n",
    f"[1] {GPU}\n[2] NVRM: Xid (PCI:0000:b3:00): 79, GPU has fallen off the bus.\n",
    f"[1] {GPU}\n[2] mlx5_core 0000:a1:00.0: firmware version: 28.43.2566\n    NVRM: fallen off the bus\n",
    "[1] NVRM: loading NVIDIA UNIX Open Kernel Module\n[1] NVRM: knvlink\n",
]
SHELLS = [["awk"], *([name] for name in ("mawk", "gawk", "original-awk") if shutil.which(name)), ["busybox", "awk"]]


@run_each(("text", "first"), ROWS)
def test_a_message_of_several_lines_is_one(text: str, first: str) -> None:
    assert next(iter(join_messages(text.splitlines()))) == first


@run_each("text", APART)
def test_what_is_no_such_message_stays(text: str) -> None:
    assert list(join_messages(text.splitlines())) == text.splitlines()


@run_each("awk", [row for row in SHELLS if shutil.which(row[0])], ids=" ".join)
def test_the_shell_reads_them_alike(awk: list[str]) -> None:
    for text in (*(row[0] for row in ROWS), *APART):
        command = JOINED.replace("awk", " ".join(awk), 1)
        done = subprocess.run(["sh", "-c", command], input=text, capture_output=True, text=True, check=True)
        assert done.stdout.splitlines() == list(join_messages(text.splitlines()))
        assert not done.stderr
