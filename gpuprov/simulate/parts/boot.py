"""A container has no bootloader: a stand-in `update-grub` writes grub.cfg from the real /etc/default/grub and grub.d.

A machine has a real GRUB and gets nothing from here.
"""

from __future__ import annotations

from gpuprov.simulate.description import Description
from gpuprov.simulate.parts.base import Part, text

UPDATE_GRUB = """#!/bin/sh
# A stand-in of gpuprov's simulated hosts: a container has no bootloader. Nothing ever boots from what this writes.
set -e
GRUB_CMDLINE_LINUX=
for file in /etc/default/grub /etc/default/grub.d/*.cfg; do [ -f "$file" ] && . "$file"; done
mkdir -p /boot/grub
{
  echo "# written by the stand-in update-grub of a gpuprov simulated host"
  for kernel in $(ls /lib/modules); do
    echo "menuentry 'Debian $kernel (simulated)' {"
    echo "        linux   /boot/vmlinuz-$kernel root=/dev/simulated ro $GRUB_CMDLINE_LINUX $GRUB_CMDLINE_LINUX_DEFAULT"
    echo "}"
  done
} > /boot/grub/grub.cfg.new
mv /boot/grub/grub.cfg.new /boot/grub/grub.cfg
"""
DEFAULTS = """# of a gpuprov simulated host; read by its stand-in update-grub
GRUB_CMDLINE_LINUX_DEFAULT="quiet"
GRUB_CMDLINE_LINUX=""
"""


def part(_name: str, description: Description) -> Part:
    """The stand-in bootloader of a container."""
    if description.kind == "machine":
        return Part()
    return Part(
        files={"/usr/sbin/update-grub": text(UPDATE_GRUB, 0o755), "/etc/default/grub": text(DEFAULTS)},
        script="mkdir -p /etc/default/grub.d; update-grub",
    )
