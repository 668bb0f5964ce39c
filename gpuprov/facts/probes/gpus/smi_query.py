"""`nvidia-smi -q` without text that users control: it prints process names unescaped, which may contain line breaks.
Processes come last in a GPU's block, so nothing below them is read; the number of GPUs is printed before the first
block."""

import re

from gpuprov.facts.probes.base import ProbeFailed

FORGED = "@forged"
# The first rules of an awk program that reads it; `judge` refuses output with too many GPUs.
OWN = f"""/^Attached GPUs/ && !n {{ n = $NF }}
/^GPU / {{ g++; p = 0 }}
/^    Processes/ {{ p = 1 }}
p {{ next }}
END {{ if (n && g > n) print "{FORGED}" }}"""
# The head and a block of `nvidia-smi -q` (driver 580, tests/real/h200-vm-580-alone); other versions differ in the
# width of the columns:
#     Attached GPUs                                          : 1
#     GPU 00000000:00:06.0
#         Product Name                                       : NVIDIA H200
#         Processes                                          : None
_ATTACHED = re.compile(r"^Attached GPUs *: ([0-9]{1,4})[ \t]*$", re.MULTILINE)
_GPU = re.compile(r"^GPU ", re.MULTILINE)
# Contents of a GPU's block unless `-d` asks for other parts of it.
_ALL = re.compile(r"^    (Product Name|Processes)", re.MULTILINE)
_SECTION = re.compile(r"^    \S.*\n", re.MULTILINE)
_PROCESSES = re.compile(r"^    Processes\b.*\n", re.MULTILINE)


def judge(lines: list[str]) -> None:
    """Raise ProbeFailed if awk has found more GPUs than exist."""
    if FORGED in lines:
        raise ProbeFailed(
            "nvidia-smi -q shows more GPUs than it says are attached: the name of a process on a GPU holds line breaks",
            "nvidia-smi -q names it between the GPUs: end it",
        )


# Its last output if one of the GPUs is lost: https://github.com/NVIDIA/open-gpu-kernel-modules/issues/387
LOST = "Unable to determine the device handle for"


def explain_truncation(text: str) -> str:
    """Explain that the output is truncated: it shows fewer GPUs than it says are attached, with no word about the rest,
    or breaks off in the last one. Empty if it is complete."""
    attached = _ATTACHED.search(text)
    shown = list(_GPU.finditer(text))
    if attached is None or LOST in text:
        return ""
    if len(shown) < int(attached[1]):
        return f"nvidia-smi -q says that {attached[1]} GPUs are attached, and shows {len(shown)}"
    last = text[shown[-1].start() :] if shown else ""
    if shown and not _PROCESSES.search(last) and (_ALL.search(text) or not _SECTION.search(last)):
        return f"nvidia-smi -q breaks off in {last.splitlines()[0][:40]}: it has no Processes there"
    return ""


def remove_process_blocks(text: str) -> str:
    """Return the text without the blocks of processes except their numbers. Raises ProbeFailed as `judge` does."""
    attached = _ATTACHED.search(text)
    if attached and len(_GPU.findall(text)) > int(attached[1]):
        judge([FORGED])
    kept, below = [], False
    for line in text.split("\n"):
        below = not line.startswith("GPU ") and below
        if not below or re.fullmatch(" {5,}Process ID +: [0-9]+", line):
            kept.append(line)
        below = below or line.startswith("    Processes")
    return "\n".join(kept)
