"""The bootloader's entries that must be rewritten for the kernel command line."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence

from . import command_line
from .failed import Failed

DEFAULTS = "/etc/default/grub.d"
OWN = "90-gpuprov.cfg"
MENU = "/boot/grub/grub.cfg"


def list_outdated(words: Sequence[str], *, by_entry: bool) -> list[str]:
    """Return the entries, or the menu, whose command line differs. Raises Failed."""
    if by_entry:
        try:
            return command_line.check(words)
        except OSError as error:
            raise Failed(f"the kernel command line cannot be changed: {error}") from error
    if not os.path.isfile(MENU) or shutil.which("update-grub") is None:
        return []
    made = os.stat(MENU).st_mtime
    places = [path for path in (DEFAULTS, os.path.join(DEFAULTS, OWN)) if os.path.exists(path)]
    return [MENU] if any(os.stat(path).st_mtime > made for path in places) else []


def rewrite_entries(words: Sequence[str], *, by_entry: bool) -> None:
    """Rewrite them. Raises Failed."""
    if by_entry:
        try:
            problem = command_line.write(words)
        except OSError as error:
            problem = f"the kernel command line cannot be changed: {error}"
        if problem:
            raise Failed(problem)
        return
    done = subprocess.run(
        ["update-grub"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
        check=False,
    )
    if done.returncode:
        raise Failed(f"update-grub failed: {'; '.join(done.stdout.splitlines()[-3:])}")
