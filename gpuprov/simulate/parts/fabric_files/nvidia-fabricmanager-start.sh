#!/bin/sh
# A stand-in for the script of this name in NVIDIA's package, made by gpuprov for simulated hosts.
# What the real one says: https://github.com/NVIDIA/nvtrust/issues/128
config=/usr/share/nvidia/nvswitch/fabricmanager.cfg
pid=/run/nvidia-fabricmanager/nv-fabricmanager.pid
nvlsm=/opt/nvidia/nvlsm/sbin/nvlsm
mode=start
while [ $# -gt 0 ]; do
	case $1 in
		--mode) mode=$2; shift ;;
		--fm-config-file) config=$2; shift ;;
	esac
	shift
done

if [ "$mode" = stop ]; then
	[ -s "$pid" ] && kill "$(cat "$pid")" 2>/dev/null
	pkill -x nvlsm
	echo 'Stopped "Nvidia Fabric Manager"'
	exit 0
fi
# From NVLink 5 on, the switches are managed through the bridges, by a subnet manager.
if grep -q '^nvlink-bridge	' /etc/gpuprov-sim/devices 2>/dev/null; then
	echo 'Detected NVL5+ system'
	if [ ! -x "$nvlsm" ]; then
		echo "$nvlsm does not exist. Please install \"Nvidia NVLink Subnet Manager\" (nvlsm) package"
		exit 1
	fi
	pgrep -x nvlsm >/dev/null || setsid "$nvlsm" </dev/null >/dev/null 2>&1 &
else
	echo 'Detected Pre-NVL5 system'
fi
/usr/bin/nv-fabricmanager -c "$config"
code=$?
if [ "$code" -ne 0 ]; then
	echo "\"/usr/bin/nv-fabricmanager -c $config\" failed! Exit code: $code"
	exit "$code"
fi
echo 'Started "Nvidia Fabric Manager"'
