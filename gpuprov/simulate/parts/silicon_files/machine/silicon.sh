#!/bin/sh
# gpuprov simulation, in a machine: switches the faults of simulated PCI functions and makes NVIDIA's device files.
#   boot    what the initramfs did not do, then the faults that are on
#   reload  the faults that are on
#   nodes   device files for what is loaded; udev calls it
faults=/var/lib/gpuprov-sim/faults
parameters=/sys/module/gpuprov_sim_pci/parameters

functions() {
	[ -d "$parameters" ] || modprobe gpuprov_sim_pci || exit 1
	while IFS= read -r line; do
		echo "$line" > "$parameters/devices"
	done < /etc/gpuprov-sim/devices
}

switch() {
	lost=none
	if [ -e "$faults/gpu-lost" ]; then
		index=$(tr -d ' \n' < "$faults/gpu-lost")
		lost=$(awk -F '\t' -v "index_=${index:-0}" '$1 == "gpu" && $2 == index_ { print $3 }' /etc/gpuprov-sim/devices)
	fi
	echo "${lost:-none}" > "$parameters/lost"
	if [ -e "$faults/nouveau-bound" ]; then
		for function in /sys/bus/pci/drivers/nvidia/0001:*; do
			[ -e "$function" ] && echo "${function##*/}" > /sys/bus/pci/drivers/nvidia/unbind
		done
		modprobe -qr nvidia_drm nvidia_modeset nvidia_uvm nvidia_peermem nvidia
		# The way of a host whose initramfs has nouveau, or whose operator loaded it: no blacklist and no option keeps it out.
		modprobe -i nouveau modeset=1
		touch /run/gpuprov-sim/nouveau
	elif [ -e /run/gpuprov-sim/nouveau ]; then
		modprobe -r nouveau
		rm /run/gpuprov-sim/nouveau
		modprobe -q nvidia
		for address in $(awk -F '\t' '$1 == "gpu" { print $3 }' /etc/gpuprov-sim/devices); do
			[ -e "/sys/bus/pci/devices/$address/driver" ] || echo "$address" > /sys/bus/pci/drivers_probe
		done
	fi
}

node() { # path major minor mode
	[ -c "$1" ] && [ "$(stat -c '%t:%T' "$1")" = "$(printf '%x:%x' "$2" "$3")" ] && return
	rm -f "$1"
	mknod -m "$4" "$1" c "$2" "$3"
}

nodes() {
	shown=/proc/driver/nvidia/params
	[ -e "$shown" ] || return
	[ "$(sed -n 's/^ModifyDeviceFiles: //p' "$shown")" = 1 ] || return
	mode=$(printf '%o' "$(sed -n 's/^DeviceFileMode: //p' "$shown")")
	node /dev/nvidiactl 195 255 "$mode"
	for file in /proc/driver/nvidia/gpus/*/information; do
		minor=$(sed -n 's/^Device Minor:[[:space:]]*//p' "$file" 2> /dev/null)
		[ -n "$minor" ] && node "/dev/nvidia$minor" 195 "$minor" "$mode"
	done
	grep -q '^nvidia_modeset ' /proc/modules && node /dev/nvidia-modeset 195 254 "$mode"
	for _ in 1 2 3 4 5 6 7 8 9 10; do # udev tells of a module before its initialization has run
		major=$(sed -n 's/^ *\([0-9]*\) nvidia-uvm$/\1/p' /proc/devices)
		[ -n "$major" ] || ! grep -q '^nvidia_uvm ' /proc/modules && break
		sleep 0.2
	done
	if [ -n "$major" ]; then
		node /dev/nvidia-uvm "$major" 0 "$mode"
		node /dev/nvidia-uvm-tools "$major" 1 "$mode"
	fi
}

mkdir -p /run/gpuprov-sim
case "$1" in
boot)
	functions
	switch
	date -u +%FT%TZ > /run/gpuprov-sim/booted
	;;
reload) switch ;;
nodes) nodes ;;
*)
	echo "usage: silicon boot|reload|nodes" >&2
	exit 2
	;;
esac
