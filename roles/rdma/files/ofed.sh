#!/bin/sh
# usage: ofed.sh state|build|start|restart CORE HOLDING TREES OTHERS: names of modules that must be OFED's, of modules that hold ib_core, of
# OFED's modules in DKMS, of modules of others that use ib_core: those are not unloaded.
# state: prints `wrong|MODULE` for what is loaded and not OFED's, `holds|WHAT` for what keeps openibd from being restarted, and
# `unbuilt|KERNEL|NAME|VERSION` for what DKMS has not built.
# build: builds that, for every kernel. start: starts openibd. restart: unloads what holds ib_core and is not in use, and restarts openibd.
# Managed by gpuprov.
core=$2 holding=$3 trees=$4 others=$5

refuse() {
  echo "ofed: $*" >&2
  exit 1
}

wrong() {
  for module in $core; do
    loaded=/sys/module/$module
    [ -d "$loaded" ] || continue
    case $(modinfo -n "$module" 2>/dev/null) in
      */lib/modules/*/kernel/*) echo "$module"; continue ;;
      */lib/modules/*) ;;
      *) echo "$module"; continue ;;
    esac
    [ "$(cat "$loaded/srcversion" 2>/dev/null)" = "$(modinfo -F srcversion "$module" 2>/dev/null)" ] &&
      [ "$(cat "$loaded/version" 2>/dev/null)" = "$(modinfo -F version "$module" 2>/dev/null)" ] || echo "$module"
  done
}

# Whether an interface is one of mlx5_core, or a bond, bridge or VLAN above one.
above() {
  case $(readlink "/sys/class/net/$1/device/driver" 2>/dev/null) in */mlx5_core) return 0 ;; esac
  for lower in /sys/class/net/"$1"/lower_*; do
    [ -e "$lower" ] && above "${lower##*/lower_}" && return 0
  done
  return 1
}

# A restart takes every interface of mlx5_core away for a while, and the addresses that nothing sets again.
network() {
  routes=$({ ip -4 -o route show default; ip -6 -o route show default; } 2>/dev/null | grep -o ' dev [^ ]*' | sort -u)
  for netdev in $(echo "$routes" | cut -d ' ' -f 3); do
    above "$netdev" && echo "the default route runs over $netdev, which would go down"
  done
  for folder in /sys/class/net/*; do
    netdev=${folder##*/} count=0
    above "$netdev" || continue
    for address in $(ip -o addr show dev "$netdev" 2>/dev/null | sed -n 's#.* inet6* \([^ /]*\).*#\1#p'); do
      case $address in *:*) address="[$address]" ;; esac
      count=$((count + $(ss -Htn state established src "$address" 2>/dev/null | wc -l)))
    done
    [ "$count" = 0 ] || echo "$count TCP connections run over $netdev, which would go down"
  done
}

holds() {
  for module in $holding $others; do
    [ "$(cat "/sys/module/$module/refcnt" 2>/dev/null || echo 0)" -gt 0 ] && echo "$module is in use"
  done
  find /proc/[0-9]*/fd -maxdepth 1 -lname '/dev/infiniband/u[vm]*' 2>/dev/null | sed 's#/fd/.*##; s#.*/##' | sort -un |
    while read -r pid; do echo "$(cat "/proc/$pid/comm" 2>/dev/null) ($pid) has an RDMA device open"; done
  network
}

# Of kernels that can boot; where none is in /boot, as in a container, of all that have headers.
unbuilt() {
  boots=''
  for folder in /lib/modules/*; do [ -e "/boot/vmlinuz-${folder##*/}" ] && boots=1; done
  for folder in /lib/modules/*; do
    kernel=${folder##*/}
    [ -e "$folder/build/Makefile" ] || continue
    [ -z "$boots" ] || [ -e "/boot/vmlinuz-$kernel" ] || continue
    for name in $trees; do
      for source in /var/lib/dkms/"$name"/*/source; do
        [ -e "$source" ] || continue
        tree=${source%/source}
        ls -d "$tree/$kernel"/*/module >/dev/null 2>&1 || echo "$kernel|$name|${tree##*/}"
      done
    done
  done
}

bring() {
  systemctl "$1" openibd.service 2>/dev/null ||
    refuse "openibd.service failed: $(journalctl -q --no-pager -o cat -n 20 -u openibd.service | grep -v '^openibd.service:' | tail -n 2 | paste -sd ';')"
}

case ${1-} in
  state)
    wrong | sed 's/^/wrong|/'
    holds | sed 's/^/holds|/'
    unbuilt | sed 's/^/unbuilt|/'
    ;;
  build)
    unbuilt | {
      bad=''
      while IFS='|' read -r kernel name version; do
        said=$(dkms install "$name/$version" -k "$kernel" 2>&1 </dev/null) && echo "built $name/$version for $kernel" && continue
        bad="$bad${bad:+; }$name/$version for $kernel ($(echo "$said" | grep -v '^$' | tail -n 1))"
      done
      [ -z "$bad" ] || refuse "DKMS could not build $bad; its log: /var/lib/dkms/NAME/VERSION/build/make.log"
    }
    ;;
  start) bring start ;;
  restart)
    held=$(holds)
    [ -z "$held" ] || refuse "openibd is not restarted: $(echo "$held" | paste -sd ';')"
    for module in $holding; do
      [ ! -d "/sys/module/$module" ] || modprobe -r "$module" || refuse "$module cannot be unloaded, and openibd was not restarted"
    done
    bring restart
    left=$(wrong)
    [ -z "$left" ] || refuse "openibd ran, and $(echo $left) is still not OFED's; journalctl -u openibd"
    ;;
  *) refuse "usage: ofed.sh state|build|start|restart CORE HOLDING TREES OTHERS" ;;
esac
