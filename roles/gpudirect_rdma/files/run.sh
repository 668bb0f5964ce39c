# usage: run.sh UNIT MODULE
# Restarts the unit; where it fails, prints what modprobe and the kernel said of it.
before=$(date +%s)
# A unit that did not run has nothing to stop: a module that something else loaded would stay, with its parameters.
systemctl is-active -q "$1" || rmmod "$2" 2> /dev/null
systemctl restart "$1" && exit 0
journalctl --sync > /dev/null 2>&1
journalctl -q --no-pager -o cat --since "@$before" -u "$1" | grep -i modprobe
journalctl -q -k -b --no-pager -o cat | grep -E 'nvidia.peermem|peer_mem|nv_mem_client' | tail -n 4
exit 1
