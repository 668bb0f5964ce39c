"""Rebuild initramfs images and rewrite boot entries that are older than their configuration.

Rebuilds every initramfs image that is older than /etc/modprobe.d, with the program that made it.
Rewrites the bootloader's entries whose command line differs, and removes words that an earlier run wrote and that
are no longer wanted.
Compares file times rather than what has just changed, so that the next run completes one that was interrupted.

command_line: Words that every boot entry should have.
entries: How the entries are written. `grub2` uses grubby, or grub2-mkconfig where there is no grubby. `none`
    leaves them alone.
written: Files that were written before this step, or in check mode would have been; check mode counts images and
    menu as older than these.
images: Images that are rebuilt, whatever their age.

Returns:
renewed: The images that were rebuilt, and the entries or the menu that was rewritten.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence

from .. import command_line, initramfs
from ..failed import Failed
from ..module import AnsibleModule

OPTIONS = {
    "command_line": {"type": "list", "elements": "str", "default": []},
    "entries": {"type": "str", "choices": ["update-grub", "grub2", "none"], "default": "none"},
    "written": {"type": "list", "elements": "path", "default": []},
    "images": {"type": "list", "elements": "path", "default": []},
}
DEFAULTS = "/etc/default/grub.d"
OWN = "90-gpuprov.cfg"
MENU = "/boot/grub/grub.cfg"


def run(module: AnsibleModule) -> None:
    words, writer = module.params["command_line"], module.params["entries"]
    by_entry = writer == "grub2"
    images = initramfs.list_stale(module.params["images"])
    entries = list_outdated(words, by_entry=by_entry) if writer != "none" else []
    renewed = [image.path for image in images] + entries
    if module.check_mode:
        later = [path for path in module.params["written"] if path.startswith(initramfs.CONFIGURATION)]
        renewed += [f"initramfs images older than {path}" for path in later if not images]
        menu = [path for path in module.params["written"] if path.startswith(DEFAULTS)]
        renewed += [MENU] if menu and not entries and writer == "update-grub" else []
    else:
        for image in images:
            initramfs.rebuild_image(image)
        if entries:
            rewrite_entries(words, by_entry=by_entry)
    shown = "".join(f"{line}\n" for line in renewed)
    module.exit_json(changed=bool(renewed), renewed=renewed, diff={"prepared": shown} if shown else {})


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
