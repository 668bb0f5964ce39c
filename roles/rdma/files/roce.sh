#!/bin/sh
# usage: roce.sh apply [SECONDS]
# /etc/gpuprov/roce.conf has lines `device [pci=] [driver=] [netdev=]` (none: every RoCE device), `count N`, and `set KEY VALUE`.
# Waits for the devices, sets what differs, reads back.
# Managed by gpuprov.
home=/usr/local/lib/gpuprov/rdma
cm=/sys/kernel/config/rdma_cm
PATH=$PATH:/usr/sbin:/sbin

refuse() {
  echo "roce: $*" >&2
  exit 1
}

look() { now=$(sh -c "$reader") || refuse "the ports cannot be read"; }

# What differs on the ports that the configuration is about, as DEVICE|PORT|NETDEV|PCI|KEY|FOUND|VALUE, and missing|WHAT for devices of it
# that are not there.
compare() {
  printf '%s\n%s\n' "$lines" "$now" | awk '
    $1 == "device" { choose++; for (i = 2; i <= NF; i++) { split($i, x, "="); want[choose, x[1]] = x[2]; told[choose] = told[choose] " " $i } }
    $1 == "set" { order[++keys] = $2; value[$2] = $3 }
    $1 == "count" { count = $2 }
    /^port[|]/ { split($0, p, "|"); n++; device[n] = p[2]; port[n] = p[3]; net[n] = p[4]; pci[n] = p[5]; driver[n] = p[6]; mac[n] = p[7]; type[n] = p[8] }
    /^value[|]/ { split($0, v, "|"); has[v[2], v[3], v[4]] = v[5] }
    function full(address) { return split(address, a, ":") == 2 ? "0000:" address : address }
    function meant(s, n) {
      if (want[s, "pci"] != "" && full(want[s, "pci"]) != pci[n]) return 0
      if (want[s, "driver"] != "" && want[s, "driver"] != driver[n]) return 0
      return want[s, "netdev"] == "" || want[s, "netdev"] == net[n] || want[s, "netdev"] == mac[n]
    }
    END {
      for (i = 1; i <= n; i++) {
        mine = !choose && pci[i] != "" && type[i] != "RNIC" && driver[i] != "erdma" && driver[i] != "efa"
        for (s = 1; s <= choose; s++) if (meant(s, i)) { mine = 1; met[s] = 1 }
        if (!mine) continue
        if (!(device[i] in seen)) { seen[device[i]] = 1; found++ }
        for (k = 1; k <= keys; k++) {
          key = order[k]
          is = ((device[i], port[i], key) in has) ? has[device[i], port[i], key] : "not shown"
          # A port that does not trust the DSCP shows no map.
          if (is == "not shown" && key ~ /^dscp[.]/ && has[device[i], port[i], "trust"] == "pcp") is = "by PCP"
          if (is != value[key]) print device[i] "|" port[i] "|" net[i] "|" pci[i] "|" key "|" is "|" value[key]
        }
      }
      for (s = 1; s <= choose; s++) if (!met[s]) print "missing|a RoCE port of" told[s]
      if (!choose && !found) print "missing|a RoCE port"
      else if (found < count) print "missing|" count - found " of " count " RoCE devices"
    }'
}

# A folder of the device in rdma_cm, made for the time of the writing: the setting is the device's, and stays.
connection() {
  for _ in 1 2 3; do
    made=''
    [ -d "$cm/$device" ] || { mkdir "$cm/$device" && made=1; }
    said=$({ echo "$2" >"$cm/$device/ports/$port/$1"; } 2>&1)
    s=$?
    [ -z "$made" ] || rmdir "$cm/$device" 2>/dev/null
    [ $s -ne 0 ] || return 0
    # A reader of the same device may have removed its folder at that moment.
    case $said in *nonexistent* | *'No such file'*) ;; *) break ;; esac
  done
  echo "$said"
  return 1
}

have() { command -v "$1" >/dev/null; }

put() {
  case $key in
    traffic_class) echo "$value" >"/sys/class/infiniband/$device/tc/$port/traffic_class"; return ;;
    mode)
      name='RoCE v2'
      [ "$value" = v2 ] || name='IB/RoCE v1'
      if have cma_roce_mode; then cma_roce_mode -d "$device" -p "$port" -m "${value#v}"; else connection default_roce_mode "$name"; fi
      return ;;
    tos) if have cma_roce_tos; then cma_roce_tos -d "$device" -p "$port" -t "$value"; else connection default_roce_tos "$value"; fi; return ;;
  esac
  [ -n "$netdev" ] || { echo "the port has no network interface"; return 1; }
  net=/sys/class/net/$netdev
  case $key in
    mtu) ip link set dev "$netdev" mtu "$value" ;;
    trust)
      if have mlnx_qos; then mlnx_qos -i "$netdev" --trust "$value"
      elif [ "$value" = pcp ]; then dcb app flush dev "$netdev" dscp-prio
      else
        # The map that a port has by itself, as mlnx_qos --trust dscp sets it, with what is asked for.
        map=$(echo "$lines" | awk '$1 == "set" && $2 ~ /^dscp[.]/ { own[substr($2, 6)] = $3 }
          END { for (i = 0; i < 64; i++) print i ":" ((i "") in own ? own[i ""] : int(i / 8)) }')
        # shellcheck disable=SC2086
        dcb app add dev "$netdev" dscp-prio $map
      fi ;;
    dscp.*)
      if have mlnx_qos; then mlnx_qos -i "$netdev" --dscp2prio "set,${key#dscp.},$value"
      else dcb app replace dev "$netdev" dscp-prio "${key#dscp.}:$value"; fi ;;
    pfc)
      row='' map=all:off
      for o in 0 1 2 3 4 5 6 7; do
        case ",$value," in *",$o,"*) row=$row,1 map="$map $o:on" ;; *) row=$row,0 ;; esac
      done
      # shellcheck disable=SC2086
      if have mlnx_qos; then mlnx_qos -i "$netdev" --pfc "${row#,}"; else dcb pfc set dev "$netdev" prio-pfc $map; fi ;;
    ecn)
      for o in 0 1 2 3 4 5 6 7; do
        case ",$value," in *",$o,"*) on=1 ;; *) on=0 ;; esac
        for point in roce_np roce_rp; do echo $on >"$net/ecn/$point/enable/$o" || return; done
      done ;;
    cnp_dscp | cnp_802p_prio)
      file=$net/ecn/roce_np/$key
      [ -e "$file" ] || file=/sys/kernel/debug/mlx5/$pci/cc_params/np_$([ "$key" = cnp_dscp ] && echo cnp_dscp || echo cnp_prio)
      echo "$value" >"$file" ;;
  esac
}

# Set what differs of these keys; prints `DEVICE|PORT|KEY|COMPLAINT`.
set_all() {
  compare | while IFS='|' read -r device port netdev pci key found value; do
    [ "$device" != missing ] || continue
    case " $* " in *" ${key%%.*} "*) ;; *) continue ;; esac
    complaint=$(put 2>&1 </dev/null) || echo "$device|$port|$key|$(echo "$complaint" | tail -n 1)"
  done
}

settle() {
  last=-1
  while [ "$left" -gt 0 ]; do
    there=$(ls /sys/class/infiniband 2>/dev/null | wc -l)
    [ "$there" -gt 0 ] && [ "$there" = "$last" ] && return
    last=$there left=$((left - 1))
    sleep 1
  done
}

[ "${1-}" = apply ] || refuse "usage: roce.sh apply [SECONDS]"
config=/etc/gpuprov/roce.conf
reader=$(cat "$home/roce-read.sh") || refuse "$home/roce-read.sh cannot be read"
lines=$(sed -n '/^device/p; /^count /p; /^set /p' "$config") || refuse "$config cannot be read"
echo "$lines" | grep -q '^set ' || refuse "$config has no settings"

left=${2:-0}
[ "$left" -eq 0 ] || settle
# In a container the modules would be the machine's own.
if [ ! -d $cm ] && ! systemd-detect-virt --container --quiet; then
  modprobe rdma_cm
  [ -d $cm ] || mount -t configfs none /sys/kernel/config
fi
look
while [ "$left" -gt 0 ] && compare | grep -q '^missing'; do
  sleep 1
  left=$((left - 1))
  look
done
before=$(compare)
complaints=$(set_all mtu trust)
look
complaints="$complaints
$(set_all dscp pfc mode tos traffic_class ecn cnp_dscp cnp_802p_prio)"
look
after=$(compare)
echo "$before" | while IFS='|' read -r device port netdev pci key found value; do
  [ -n "$value" ] || continue
  echo "$after" | grep -qF "$device|$port|$netdev|$pci|$key|" || echo "$device port $port${netdev:+ ($netdev)}: $key $found -> $value"
done
[ -n "$after" ] || exit 0
echo "$after" | {
  bad=''
  while IFS='|' read -r device port netdev pci key found value; do
    if [ "$device" = missing ]; then
      bad="$bad${bad:+; }$port is not there"
      continue
    fi
    why=$(echo "$complaints" | grep -F "$device|$port|$key|" | tail -n 1)
    why=${why##*|}
    bad="$bad${bad:+; }$device port $port${netdev:+ ($netdev)}: $key is $found, expected $value${why:+ ($why)}"
  done
  refuse "$bad"
}
