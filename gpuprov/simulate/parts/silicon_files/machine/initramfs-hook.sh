#!/bin/sh
# gpuprov simulation: puts the module of the simulated PCI functions into the initramfs, and the one that reads QEMU's configuration.
[ "$1" = prereqs ] && exit 0
. /usr/share/initramfs-tools/hook-functions
manual_add_modules gpuprov_sim_pci qemu_fw_cfg
