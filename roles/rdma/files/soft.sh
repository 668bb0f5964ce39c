#!/bin/sh
# usage: soft.sh apply [SECONDS] | remove
# /etc/gpuprov/rdma-soft.conf has lines `DRIVER INTERFACE`: rxe or siw; a network interface's name or MAC address, or default: that of the
# default route.
# apply: waits for interfaces, makes what is missing, removes what it made and what is not asked for any more. remove: removes what it
# made. Devices are found by interface: udev may rename them.
# Managed by gpuprov.
config=/etc/gpuprov/rdma-soft.conf
made=/run/gpuprov/rdma-soft
class=/sys/class/infiniband

refuse() {
  echo "rdma-soft: $*" >&2
  exit 1
}

resolve() {
  case $1 in
    default)
      { ip -4 route show default; ip -6 route show default; } 2>/dev/null | sed -n '/dev /s/.* dev \([^ ]*\).*/\1/p' | head -n 1 ;;
    *:*:*:*:*:*)
      # A VLAN has the address of the interface below it.
      for d in /sys/class/net/*; do
        [ "$(cat "$d/address" 2>/dev/null)" = "$1" ] && [ ! -e "/proc/net/vlan/${d##*/}" ] && echo "${d##*/}"
      done | head -n 1 ;;
    *) [ -e "/sys/class/net/$1" ] && echo "$1" ;;
  esac
}

# rxe, siw, or nothing for hardware: only rxe has the attribute parent, and siw alone of the iWARP drivers has no firmware version.
kind() {
  if [ -e "$class/$1/parent" ]; then
    echo rxe
  elif grep -qs RNIC "$class/$1/node_type" && [ -z "$(cat "$class/$1/fw_ver" 2>/dev/null)" ]; then
    case $(readlink -f "$class/$1/device/driver") in */erdma) ;; *) echo siw ;; esac
  fi
}

# Names of the software devices on an interface, each with its kind.
on() {
  rdma link show 2>/dev/null | awk -v want="$1" '{
    for (i = 3; i < NF; i++) if ($i == "netdev" && $(i + 1) == want) { name = $2; sub("/.*", "", name); print name } }' |
    while read -r device; do
      k=$(kind "$device")
      [ -n "$k" ] && echo "$device $k"
    done
}

has() {
  on "$1" | grep -q " $2\$"
}

holders() {
  ss -Huanp 'sport = :4791' 2>/dev/null | sed 's/.*users:(("\([^"]*\)".*/\1/; t; s/.*/the kernel/' | sort -u | tr '\n' ' '
}

load() {
  for module in "$1" rdma_ucm ib_uverbs; do
    [ -d "/sys/module/$module" ] && continue
    said=$(modprobe "$module" 2>&1) && continue
    held=$(holders)
    [ "$1" = rdma_rxe ] && [ -n "$held" ] && refuse "modprobe $module: UDP port 4791 is held by $held"
    refuse "modprobe $module: ${said:-failed}"
  done
}

drop() {
  on "$2" | while read -r device k; do
    [ "$k" = "$1" ] && rdma link delete "$device" && echo "$2: $device removed"
  done
}

case ${1-} in
  apply | remove) ;;
  *) refuse "usage: soft.sh apply [SECONDS] | remove" ;;
esac

if [ "$1" = remove ]; then
  [ -e "$made" ] || exit 0
  while read -r driver netdev; do drop "$driver" "$netdev"; done <"$made"
  rm -f "$made"
  exit 0
fi

lines=$(sed -n '/^\(rxe\|siw\) /p' "$config") || refuse "$config cannot be read"
[ -n "$lines" ] || refuse "$config names no interface"

left=${2:-0}
mkdir -p "${made%/*}"
: >"$made.new"
echo "$lines" | while read -r driver word; do
  netdev=$(resolve "$word")
  while [ -z "$netdev" ] && [ "$left" -gt 0 ]; do
    sleep 1
    left=$((left - 1))
    netdev=$(resolve "$word")
  done
  [ -n "$netdev" ] || refuse "no network interface $word"
  echo "$driver $netdev" >>"$made.new"
  has "$netdev" "$driver" && continue
  case $driver in rxe) load rdma_rxe ;; *) load "$driver" ;; esac
  name=${driver}_$(echo "$netdev" | tr -c 'A-Za-z0-9_\n' _)
  said=$(rdma link add "$name" type "$driver" netdev "$netdev" 2>&1) ||
    refuse "rdma link add $name type $driver netdev $netdev: ${said:-failed}; UDP port 4791: $(holders)"
  # At once: the next interface may not be there, and what was made is still to be removed one day.
  echo "$driver $netdev" >>"$made"
  # udev may give it another name now.
  udevadm settle --timeout=10 2>/dev/null
  has "$netdev" "$driver" || refuse "$netdev has no $driver device although rdma link add succeeded"
  echo "$netdev: $driver device made"
done || exit 1

if [ -e "$made" ]; then
  grep -vxFf "$made.new" "$made" | while read -r driver netdev; do drop "$driver" "$netdev"; done
fi
mv "$made.new" "$made"
