# usage: run.sh UNIT
# Restarts the unit; where it fails, prints what modprobe and the kernel said of it.
before=$(date +%s)
systemctl restart "$1" && exit 0
journalctl -q --no-pager -o cat --since "@$before" -u "$1" | grep -i modprobe
journalctl -q -k -b --no-pager -o cat | grep -E 'nvidia.peermem|peer_mem|nv_mem_client' | tail -n 4
exit 1
