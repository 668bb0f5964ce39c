"""Shell that prints what sysfs and `rdma` show of RDMA devices; its reader is in devices.py."""

from __future__ import annotations

# `rdma dev`, including OFED's own, reports sub-devices: `2: smi1: node_type ca ... type smi parent ibp8s0f1`. Only rxe
# has the attribute `parent` (drivers/infiniband/sw/rxe/rxe_verbs.c in Linux). siw has no firmware version; its `device`
# may be its network card (drivers/infiniband/sw/siw/siw_main.c); on a VLAN there is none. State of a bond's interfaces:
# drivers/net/bonding/bond_sysfs_slave.c.
READER = r"""named() { y=''; read -r y 2>/dev/null <"/sys/class/net/$1/phys_port_name" || :; }
for r in rdma /opt/mellanox/iproute2/sbin/rdma; do
  command -v $r >/dev/null && [ -e /sys/class/infiniband ] && { $r dev show; $r link show; } 2>/dev/null
done | sed -n 's/^[0-9]*: \([^:|]*\): .* type \([^ |]*\) parent \([^ |]*\).*/sub|\1|\2|\3/p
s#^link \([^/|]*\)/\([0-9]*\) .* netdev \([^ |]*\).*#net|\1|\2|\3#p' | while IFS='|' read -r t n k e; do
  [ $t = sub ] && echo "sub|$n|$k|$e" && continue
  named "$e"; echo "net|$n|$k|$y"
done
for d in /sys/class/infiniband/*; do
  [ -d "$d" ] || continue
  n=${d##*/} a='' m='' v='' i='' u='' b=''
  if [ -e "$d/parent" ]; then
    m=rdma_rxe
  elif grep -qs RNIC "$d/node_type" && [ -z "$(cat "$d/fw_ver" 2>/dev/null)" ] &&
    ! readlink -f "$d/device/driver" | grep -q '/erdma$'; then
    m=siw
  elif [ -e "$d/device/vendor" ]; then
    p=$(readlink -f "$d/device"); a=${p##*/}; v=$(cat "$p/vendor"); i=$(cat "$p/device")
      u=$(cat "$p/numa_node" 2>/dev/null)
    [ -L "$p/driver" ] && m=$(readlink "$p/driver") && m=${m##*/}
    [ -L "$p/physfn" ] && b=virtual
    tr -d '\0' <"$p/vpd" 2>/dev/null | grep -qa SW_MNG && b=bridge
  else
    p=$(readlink -f "$d/device")
    case ${p##*/} in mlx5_core.sf.*) p=${p%/*} m=mlx5_core; echo "sub|$n|sf|${p##*/}" ;; esac
  fi
  w=$(for e in $(cat "$d"/ports/*/gid_attrs/ndevs/0 2>/dev/null; ls "$d/device/net" 2>/dev/null); do
    named "$e"; case $y in pf[0-9]*|c[0-9]*pf[0-9]*) ;; *) echo "$e" ;; esac
  done)
  [ -n "$w" ] || w=$(cat "$d"/parent 2>/dev/null)
  [ -n "$w" ] || [ "$m" != siw ] || w=$(rdma link show 2>/dev/null | sed -n "s#^link $n/.* netdev \([^ ]*\).*#\1#p")
  h=$(for e in $w; do cat "/sys/class/net/$e/address" 2>/dev/null; done)
  r="device|$n|$a|$m|$v|$i"
  for f in node_type node_guid fw_ver; do r="$r|$(cat "$d/$f" 2>/dev/null)"; done
  echo "$r|$u|$(echo $w)|$(echo $h)|$b"
  for e in $(for e in $w; do
    [ -d "/sys/class/net/$e/bonding_slave" ] && e=$(readlink "/sys/class/net/$e/master") && e=${e##*/}
    [ -d "/sys/class/net/$e/bonding" ] && echo "$e"
  done | sort -u); do
    for y in /sys/class/net/"$e"/lower_*; do
      y=${y##*/lower_} r="leg|$n|$e|${y##*/lower_}" t=/sys/class/net/${y##*/lower_}
      r="$r|$(echo $(cat "$t/operstate" "$t/bonding_slave/mii_status" 2>/dev/null))"
      echo "$r|$(cat "$t/bonding_slave/ad_aggregator_id" 2>/dev/null)|$(cat "/sys/class/net/$e/bonding/ad_aggregator" 2>/dev/null)"
    done
  done
  for q in "$d"/ports/*; do
    [ -d "$q" ] || continue
    k=${q##*/} r="port|$n|$k"
    for f in state phys_state link_layer rate lid sm_lid; do r="$r|$(cat "$q/$f" 2>/dev/null)"; done
    echo "$r"
    e=''; read -r e 2>/dev/null <"$q/gid_attrs/ndevs/0" && named "$e" && echo "net|$n|$k|$y"
    # One process for the whole table: rxe has 1024 entries, mlx5 256.
    grep -HEv '^(0000:){7}0000$|^$' "$q"/gids/* 2>/dev/null | while IFS= read -r g; do
      x=${g#"$q/gids/"}; o=${x%%:*}
      echo "gid|$n|$k|$o|${x#*:}|$(cat "$q/gid_attrs/types/$o" 2>/dev/null)|$(cat "$q/gid_attrs/ndevs/$o" 2>/dev/null)"
    done
  done
done"""
