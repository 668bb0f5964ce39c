"""Lines of the kernel's log: which of them the kernel says itself. The rest of a line may hold what a user of the host has chosen."""

from __future__ import annotations

import re
from typing import Iterable

STAMP = r"^([0-9.]+ [^ ]+ [^ :]+: |\[ *[0-9.]+\](\[[^]]*\])? )"
"""What is before a line of `journalctl -o short-unix` (`1763848800.123456 host kernel: `), and of dmesg (`[   12.345678] `)."""
OF_A_PROGRAM = r".{1,15}\[[0-9]+\]:? "
"""`NAME[7]: segfault at 0 ip 0 sp 0 error 4 in FILE[...]`: whoever runs the program names it, and its file, as they like."""
PEER_MEMORY = "nvidia.peermem[: ]|nv_peer_mem[: ]|nv_mem(ERR|INFO)? "
"""How lines of the modules for peer memory begin: as the kernel names the module, and as it names itself."""


def said(lines: Iterable[str], begins: str) -> list[str]:
    """What the kernel says that begins so (a regular expression), without the stamps."""
    wanted, program = re.compile(f"{STAMP}(?=({begins}))"), re.compile(STAMP + OF_A_PROGRAM)
    return [line[match.end() :] for line in lines if (match := wanted.match(line)) and not program.match(line)]


def filtered(begins: str) -> str:
    """The same as a filter of a shell, with their stamps."""
    return f"grep -aE '{STAMP}({begins})' | grep -avE '{STAMP}{OF_A_PROGRAM}'"
