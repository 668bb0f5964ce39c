"""Lines of the kernel's log that come from the kernel itself. The rest of a line may contain text chosen by a user of
the host."""

from __future__ import annotations

import re
from typing import Iterable, Iterator

# Prefix of a line of `journalctl -o short-unix` (`1763848800.123456 host kernel: `), and of dmesg (`[ 12.345678] `).
STAMP = r"^([0-9.]+ [^ ]+ [^ :]+: |\[ *[0-9.]+\](\[[^]]*\])? )"
# `NAME[7]: segfault at 0 ip 0 sp 0 error 4 in FILE[...]`: the user who runs the program chooses its name, and that of
# its file.
OF_A_PROGRAM = r".{1,15}\[[0-9]+\]:? "
# Prefixes of lines from the modules for peer memory: the kernel's name of the module, and the module's own.
PEER_MEMORY = "nvidia.peermem[: ]|nv_peer_mem[: ]|nv_mem(ERR|INFO)? "


# A message of NVIDIA's driver that continues in the next line: nv.c and nv-pci.c in
# https://github.com/NVIDIA/open-gpu-kernel-modules/tree/main/kernel-open/nvidia, os-pci.c and osinit.c below
# src/nvidia.
# It prints such a message line by line, as that about two versions:
#     NVRM: API mismatch: the client has the version 390.25, but
#     NVRM: this kernel module has the version 390.12.  Please
#     NVRM: make sure that this kernel module and all NVIDIA driver
#     NVRM: components have the same version.
_OPEN = r"NVRM: (The NVIDIA |API mismatch: )(.*[^.])?$|NVRM: This PCI I/O region .*:$"
# Beginnings of another message, in case the lines between are missing.
_BEGINS = "(Xid |The NVIDIA |API mismatch|This PCI |GPU |loading )"
# Maximum number of lines in one message; it has at most a hundred times as many characters.
_MOST = 10
# `join_messages` as a shell filter.
JOINED = f"""awk '{{ a = index($0, "NVRM: "); t = substr($0, a + 6)
  if (n && a && n < {_MOST} && length(l) < {100 * _MOST} && t !~ /^{_BEGINS}/ && (/^[ \t]/ || l ~ /{_OPEN.replace("/", "[/]")}/)) {{
    sub(/^[ \t]+/, "", t); sub(/[ \t]+$/, "", l); l = l " " t; n++; next }}
  if (NR > 1) print l
  l = $0; n = a > 0 }} END {{ if (NR) print l }}'"""


def join_messages(lines: Iterable[str]) -> Iterator[str]:
    """Yield the lines, with the lines of one message of NVIDIA's driver joined. dmesg and the journal print the
    following lines indented, or with their own stamp."""
    whole: str | None = None
    count = 0
    for line in lines:
        before, marker, rest = line.partition("NVRM: ")
        room = marker and 0 < count < _MOST and len(whole or "") < 100 * _MOST and not re.match(_BEGINS, rest)
        if whole and room and (before[:1] in (" ", "\t") or re.search(_OPEN, whole)):
            whole, count = f"{whole.rstrip()} {rest.lstrip()}", count + 1
            continue
        if whole is not None:
            yield whole
        whole, count = line, 1 if marker else 0
    if whole is not None:
        yield whole


def list_messages(lines: Iterable[str], begins: str) -> list[str]:
    """List the kernel's messages that begin with a regular expression, without the time stamps."""
    pattern, program = re.compile(f"{STAMP}(?=({begins}))"), re.compile(STAMP + OF_A_PROGRAM)
    return [line[match.end() :] for line in lines if (match := pattern.match(line)) and not program.match(line)]


def make_filter(begins: str) -> str:
    """Return the same as a shell filter, with the stamps."""
    return f"grep -aE '{STAMP}({begins})' | grep -avE '{STAMP}{OF_A_PROGRAM}'"
