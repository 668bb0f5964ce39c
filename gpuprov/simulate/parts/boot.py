"""A container has no bootloader: a stand-in `update-grub` writes grub.cfg from the real /etc/default/grub and grub.d.
On the dnf family a stand-in `grubby` edits real boot loader entries.

A machine has a real GRUB and gets nothing from here.
"""

from __future__ import annotations

from pathlib import Path

from gpuprov.simulate.description import Description
from gpuprov.simulate.parts.base import PROGRAMS, File, Part, text

ASSETS = Path(__file__).with_name("identity_files")

UPDATE_GRUB = """#!/bin/sh
# A stand-in of gpuprov's simulated hosts: a container has no bootloader. Nothing ever boots from what this writes.
set -e
GRUB_CMDLINE_LINUX=
for file in /etc/default/grub /etc/default/grub.d/*.cfg; do [ -f "$file" ] && . "$file"; done
mkdir -p /boot/grub
{
  echo "# written by the stand-in update-grub of a gpuprov simulated host"
  for kernel in $(ls /lib/modules | sort -rV); do
    echo "menuentry 'Debian $kernel (simulated)' {"
    echo "        linux   /boot/vmlinuz-$kernel root=/dev/simulated ro $GRUB_CMDLINE_LINUX $GRUB_CMDLINE_LINUX_DEFAULT"
    echo "}"
  done
} > /boot/grub/grub.cfg.new
mv /boot/grub/grub.cfg.new /boot/grub/grub.cfg
"""
GRUB2_MKCONFIG = """#!/bin/sh
# A stand-in of gpuprov's simulated hosts: a container has no bootloader. Nothing ever boots from what this writes.
set -e
[ "$1" = -o ] && [ -n "$2" ] || { echo "usage: grub2-mkconfig -o FILE" >&2; exit 1; }
GRUB_CMDLINE_LINUX=
GRUB_CMDLINE_LINUX_DEFAULT=
. /etc/default/grub
{
  echo "# written by the stand-in grub2-mkconfig of a gpuprov simulated host"
  for kernel in $(ls /lib/modules | sort -rV); do
    echo "menuentry 'SLES $kernel (simulated)' {"
    echo "        linux   /boot/vmlinuz-$kernel root=/dev/simulated $GRUB_CMDLINE_LINUX $GRUB_CMDLINE_LINUX_DEFAULT"
    echo "}"
  done
} > "$2.new"
mv "$2.new" "$2"
"""
ENTRY = """# of a gpuprov simulated host: nothing ever boots from this
title {name} ({kernel}) {version}
version {kernel}
linux /boot/vmlinuz-{kernel}
initrd /boot/initramfs-{kernel}.img
options root=/dev/simulated ro quiet
grub_users $grub_users
grub_arg --unrestricted
grub_class {id}
"""
EL_DEFAULTS = """# of a gpuprov simulated host; read and written by its stand-in grubby
GRUB_DEFAULT=saved
GRUB_CMDLINE_LINUX="quiet"
GRUB_ENABLE_BLSCFG=true
"""
DEFAULTS = """# of a gpuprov simulated host; read by its stand-in update-grub
GRUB_CMDLINE_LINUX_DEFAULT="quiet"
GRUB_CMDLINE_LINUX=""
"""


def part(_name: str, description: Description) -> Part:
    """Return the stand-in bootloader of a container."""
    if description.kind == "machine":
        return Part()
    if description.known.family == "redhat":
        return _loader_entries(description)
    if description.known.family == "suse":
        files = {"/usr/sbin/grub2-mkconfig": text(GRUB2_MKCONFIG, 0o755), "/etc/default/grub": text(DEFAULTS)}
        return Part(files=files, script="mkdir -p /boot/grub2; grub2-mkconfig -o /boot/grub2/grub.cfg")
    return Part(
        files={"/usr/sbin/update-grub": text(UPDATE_GRUB, 0o755), "/etc/default/grub": text(DEFAULTS)},
        script="mkdir -p /etc/default/grub.d; update-grub",
    )


def _loader_entries(description: Description) -> Part:
    known = description.known
    entry = ENTRY.format(name=known.name, kernel=known.kernel, version=known.version, id=known.id)
    return Part(
        files={
            "/usr/sbin/grubby": File((ASSETS / "grubby").read_bytes(), 0o755),
            "/etc/default/grub": text(EL_DEFAULTS),
            f"{PROGRAMS}/loader-entry.conf": text(entry),
        },
        script="mkdir -p /boot/loader/entries /boot/grub2; entry=/boot/loader/entries/$(cat "
        f"/etc/machine-id)-{known.kernel}.conf\n"
        f"[ -e $entry ] || cp {PROGRAMS}/loader-entry.conf $entry",
    )
