#!/bin/sh
# gpuprov simulation: the PCI functions that QEMU was told of are put on the bus before udev looks for devices.
[ "$1" = prereqs ] && exit 0
modprobe -q qemu_fw_cfg
table=/sys/firmware/qemu_fw_cfg/by_name/opt/gpuprov.devices/raw
[ -e "$table" ] && modprobe -q gpuprov_sim_pci || exit 0
while IFS= read -r line; do
	echo "$line" > /sys/module/gpuprov_sim_pci/parameters/devices
done < "$table"
