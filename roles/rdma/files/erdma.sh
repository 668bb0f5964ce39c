#!/bin/sh
# usage: erdma.sh apply [SECONDS]
# /etc/gpuprov/erdma.conf has lines `parameter NAME VALUE` and `mtu NUMBER`.
# Loads the driver, anew where its parameters or its build differ and nobody holds a device; waits for the network interfaces of its
# devices, sets their MTU, reads back.
# Managed by gpuprov.
module=/sys/module/erdma
PATH=$PATH:/usr/sbin:/sbin

refuse() {
  echo "erdma: $*" >&2
  exit 1
}

# DEVICE INTERFACE of each eRDMA device; the node GUID is made of the interface's MAC address.
pairs() {
  for d in /sys/class/infiniband/*; do
    [ -L "$d/device/driver" ] || continue
    b=$(readlink "$d/device/driver")
    [ "${b##*/}" = erdma ] || continue
    w=$(cat "$d"/ports/1/gid_attrs/ndevs/0 2>/dev/null)
    if [ -z "$w" ]; then
      g=$(tr -d : <"$d/node_guid" 2>/dev/null)
      for e in /sys/class/net/*/address; do
        a=$(tr -d : <"$e")
        case $a in ????????????) ;; *) continue ;; esac
        z=${a#??} q=${a#??????} t=${a%??????????}
        z=${z%"$q"}
        [ "$(printf '%02x%sfffe%s' $((0x$t ^ 2)) "$z" "$q")" = "$g" ] && w=${e%/address} && w=${w##*/} && break
      done
    fi
    echo "${d##*/} ${w:-none}"
  done
}

users() {
  pairs | while read -r device _; do
    for v in /sys/class/infiniband_verbs/uverbs*; do
      [ "$(cat "$v/ibdev" 2>/dev/null)" = "$device" ] || continue
      for p in $(find /proc/[0-9]*/fd -lname "/dev/infiniband/${v##*/}" 2>/dev/null | cut -d/ -f3 | sort -un); do
        echo "$(cat "/proc/$p/comm" 2>/dev/null) ($p)"
      done
    done
  done | sort -u
  ls $module/holders 2>/dev/null | sed 's/^/module /'
}

# Parameters that differ; the kernel shows Y and N.
parameters() {
  echo "$lines" | while read -r word name value; do
    [ "$word" = parameter ] || continue
    found=$(cat "$module/parameters/$name" 2>/dev/null)
    [ "$found" = "$value" ] || echo "parameter $name ${found:-none} $value"
  done
}

build() {
  [ -d $module ] || { echo 'module erdma none loaded' && return; }
  v=$(cat $module/srcversion 2>/dev/null)
  w=$(modinfo -F srcversion erdma 2>/dev/null)
  [ -z "$v" ] || [ -z "$w" ] || [ "$v" = "$w" ] || echo 'module erdma another-build loaded'
}

frames() {
  mtu=$(echo "$lines" | sed -n 's/^mtu //p')
  pairs | while read -r device netdev; do
    found=$(cat "/sys/class/net/$netdev/mtu" 2>/dev/null)
    [ "$found" = "$mtu" ] || echo "mtu $netdev ${found:-none} $mtu"
  done
}

functions() {
  for d in /sys/bus/pci/devices/*; do
    [ "$(cat "$d/vendor" 2>/dev/null)$(cat "$d/device" 2>/dev/null)" = 0x1ded0x107f ] && echo "${d##*/}"
  done
}

# Whether each function has a device with an interface.
whole() {
  [ "$(pairs | grep -cv ' none$')" -ge "$(functions | wc -l)" ]
}

load() {
  said=$(modprobe erdma 2>&1) && [ -d $module ] && return
  refuse "the driver cannot be loaded: ${said:-modprobe erdma left nothing in /sys/module}"
}

[ "${1-}" = apply ] || refuse "usage: erdma.sh apply [SECONDS]"
config=/etc/gpuprov/erdma.conf
lines=$(sed -n '/^[a-z]/p' "$config") || refuse "$config cannot be read"
echo "$lines" | grep -q '^mtu [0-9]' || refuse "$config has no mtu"

[ -d $module ] || load
differs=$({ build && parameters; } | tr '\n' ';')
if [ -n "$differs" ]; then
  used=$(users | tr '\n' ' ')
  [ -z "$used" ] || refuse "its parameters are read-only while it is loaded ($differs), and it is held by: $used"
  said=$(rmmod erdma 2>&1) || refuse "it cannot be unloaded: $said"
  load
  echo "loaded anew for $differs"
  differs=$(parameters | tr '\n' ';')
  [ -z "$differs" ] || refuse "the driver does not take $differs name, what it has, what it should have: is it the kernel's own? modinfo erdma"
fi

left=${2:-0}
while ! whole && [ "$left" -gt 0 ]; do
  sleep 1
  left=$((left - 1))
done
whole || refuse "not every eRDMA function has a device with a network interface: $(pairs | tr '\n' ';') functions $(functions | tr '\n' ' ')"
frames | while read -r _ netdev found mtu; do
  said=$(ip link set dev "$netdev" mtu "$mtu" 2>&1) || echo "erdma: $netdev stays at MTU $found, expected $mtu: $said" >&2
  echo "$netdev mtu $found -> $mtu"
done
bad=$(frames | tr '\n' ';')
[ -z "$bad" ] || refuse "the MTU is not as asked for: $bad name, what it has, what it should have"
