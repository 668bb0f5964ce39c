"""Boot counting with the GRUB of Debian and Ubuntu: a variable of its environment. The site's default is not
touched."""

from __future__ import annotations

import os
import re
import shutil
from typing import Sequence

from . import first_boot_tools as tools
from .first_boot_tools import BACK, FIRST, ONCE, ROOT, Record

NAME = "GRUB"
GRUB = ROOT + "/boot/grub"
FOLDER = GRUB + "/gpuprov"
ENVIRONMENT = GRUB + "/grubenv"
# ONCE or BACK.
VARIABLE = "gpuprov_boot"
ENTRY = FOLDER + "/boot.cfg"
MENU = GRUB + "/grub.cfg"
HOOK = ROOT + "/etc/grub.d/42_gpuprov"
WORDS = ROOT + "/etc/default/grub.d/99-gpuprov-first-boot.cfg"
# A word that can be in single quotes in GRUB's menu and is read unchanged.
PLAIN = re.compile(r"[A-Za-z0-9_.,:;=/@%+~^*?!()\[\]{}<>|&#-]+")
# File systems that GRUB cannot write to:
# https://www.gnu.org/software/grub/manual/grub/html_node/Environment-block.html
UNWRITABLE = ("btrfs", "cpiofs", "newc", "odc", "romfs", "squash4", "tarfs", "zfs")

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


def impossible() -> str:
    return why_not(
        container=tools.is_contained(),
        menu=bool(shutil.which("update-grub")) and os.path.isfile(MENU),
        environment=os.path.exists(ENVIRONMENT),
        layers=tools.capture_output(["grub-probe", "--target=abstraction", ENVIRONMENT]),
        system=tools.capture_output(["grub-probe", "--target=fs", ENVIRONMENT]),
    )


def why_not(*, container: bool, menu: bool, environment: bool, layers: str, system: str) -> str:
    """Return the same from known facts. `menu`: update-grub makes GRUB's menu; `layers`: of the disk, as grub-probe
    names them."""
    if container:
        return "a container has no bootloader"
    if not menu:
        return "boots are counted with systemd-boot, and the GRUB of Debian and Ubuntu, only"
    if not environment:
        return "GRUB has no environment, /boot/grub/grubenv"
    if layers or not system or system in UNWRITABLE:
        on = layers or system or "a file system that grub-probe does not know"
        return f"GRUB cannot write to /boot, which is on {on}"
    return ""


def odd(words: Sequence[str]) -> str:
    refused_words = [word for word in words if not PLAIN.fullmatch(word)]
    return (
        f"its command line has a word that GRUB's menu cannot hold as it is: {refused_words[0]}"
        if refused_words
        else ""
    )


def sources(kernel: str) -> dict[str, str]:
    return {f"{name}-{kernel}": f"{ROOT}/boot/{name}-{kernel}" for name in ("vmlinuz", "initrd.img")}


def folder(_kernel: str) -> str:
    return FOLDER


def prepare(known: Record, words: Sequence[str]) -> Record:
    if (
        not os.path.exists(HOOK)
        or not os.path.exists(WORDS)
        or "gpuprov/boot.cfg" not in tools.read_text("/boot/grub/grub.cfg")
    ):
        tools.write(HOOK, HOOK_TEXT, 0o755)
        tools.write(WORDS, WORDS_TEXT, 0o644)
        tools.call(["update-grub"])
    tools.write(
        ENTRY,
        ENTRY_TEXT.format(
            run=known["run"],
            kernel=known["kernel"],
            variable=VARIABLE,
            once=ONCE,
            back=BACK,
            first=" ".join(FIRST),
            words=" ".join(f"'{word}'" for word in words),
        ),
        0o600,
    )
    return {}


def again(_known: Record) -> Record:
    return {}


def arm(_known: Record, *, once: bool) -> None:
    tools.call(["grub-editenv", ENVIRONMENT, "set", f"{VARIABLE}={ONCE if once else BACK}"])


def counted() -> str:
    for line in tools.capture_output(["grub-editenv", ENVIRONMENT, "list"]).splitlines():
        if line.startswith(VARIABLE + "="):
            return line.partition("=")[2]
    return ""


def readable() -> bool:
    return os.path.exists(ENVIRONMENT)


def forget(_known: Record) -> None:
    tools.call(["grub-editenv", ENVIRONMENT, "unset", VARIABLE])


def drop(_known: Record) -> None:
    shutil.rmtree(FOLDER, ignore_errors=True)


def kernels() -> list[str]:
    return [name[8:] for name in os.listdir(ROOT + "/boot") if name.startswith("vmlinuz-")]


def words_of(line: Sequence[str]) -> list[str]:
    return [word for word in line if not word.startswith("BOOT_IMAGE=")]
