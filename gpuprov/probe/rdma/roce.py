"""The RoCE settings that each Ethernet port of an RDMA device has, and what sets them at boot.

Read where the kernel and the drivers show them: configfs of rdma_cm, `mlnx_qos` of NVIDIA's tools or else `dcb` of iproute2, and the
driver's own sysfs (NVIDIA's OFED) or debugfs (the kernel's mlx5_ib).
"""

from __future__ import annotations

import msgspec

from gpuprov.catalog.rdma.roce import CONFIG, UNIT
from gpuprov.probe.base import Output, Probe


class RocePort(msgspec.Struct, frozen=True, kw_only=True):
    """`values` by key: `trust`, `pfc` ("3,4", "none"), `dscp.26`, `mode` (v1, v2), `tos`, `traffic_class` ("unset"), `ecn` (priorities
    with both points on; else "notification 3, reaction none"), `cnp_dscp`, `cnp_802p_prio`, `mtu`.
    """

    device: str
    number: int
    netdev: str = ""
    values: dict[str, str] = {}

    @property
    def name(self) -> str:
        return f"{self.device} port {self.number}" + (f" ({self.netdev})" if self.netdev else "")


class Roce(msgspec.Struct, frozen=True, kw_only=True):
    """`tools` are the programs and places that are there. `config`: the lines of gpuprov's configuration (None: no such file).

    `load`, `active`, `file`: of the boot unit; `log`: its last lines. `lldpad`: whether it runs, which sets DCB, too. `blocking`:
    rules of the host's packet filter that drop or reject UDP port 4791; `filter` is the program that showed them, empty for none.
    """

    ports: tuple[RocePort, ...] = ()
    tools: tuple[str, ...] = ()
    config: tuple[str, ...] | None = None
    load: str = "not-found"
    active: str = "inactive"
    file: str = ""
    log: tuple[str, ...] = ()
    lldpad: bool = False
    blocking: tuple[str, ...] = ()
    filter: str = ""


def parse(output: Output) -> Roce:
    ports: dict[tuple[str, int], RocePort] = {}
    many: dict[str, list[str]] = {}
    for line in output.text.splitlines():
        kind, _, rest = line.partition("|")
        if kind == "port":
            device, number, netdev, *_ = rest.split("|")
            ports[device, int(number)] = RocePort(device=device, number=int(number), netdev=netdev)
        elif kind == "value":
            device, number, key, value = rest.split("|", 3)
            port = ports[device, int(number)]
            ports[device, int(number)] = msgspec.structs.replace(port, values=port.values | {key: value})
        else:
            many.setdefault(kind, []).append(rest)
    unit = {name: (many.get(name) or [""])[-1] for name in ("LoadState", "ActiveState", "UnitFileState")}
    return Roce(
        ports=tuple(ports[key] for key in sorted(ports)),
        tools=tuple(many.get("tool", ())),
        config=tuple(line for line in many.get("config", ()) if line) if "config" in many else None,
        load=unit["LoadState"] or "not-found",
        active=unit["ActiveState"] or "inactive",
        file=unit["UnitFileState"],
        log=tuple(many.get("log", ())),
        lldpad="lldpad" in many,
        blocking=tuple(dict.fromkeys(" ".join(line.split()) for line in many.get("rule", ()))),
        filter=(many.get("filter") or [""])[0],
    )


READER = r"""for t in awk cat sed; do command -v $t >/dev/null || { echo "$t: not found" >&2; exit 1; }; done
PATH=$PATH:/usr/sbin:/sbin
c=/sys/kernel/config/rdma_cm
for t in mlnx_qos dcb cma_roce_mode cma_roce_tos; do command -v $t >/dev/null && echo "tool|$t"; done
[ -d $c ] && echo 'tool|rdma_cm'
for d in /sys/class/infiniband/*; do
  [ -d "$d" ] || continue
  n=${d##*/} a='' m=''
  if [ -e "$d/device/vendor" ]; then
    p=$(readlink -f "$d/device"); a=${p##*/}
    [ -L "$p/driver" ] && m=$(readlink "$p/driver") && m=${m##*/}
    tr -d '\0' 2>/dev/null <"$p/vpd" | grep -qa SW_MNG && continue
  fi
  for q in "$d"/ports/*; do
    [ "$(cat "$q/link_layer" 2>/dev/null)" = Ethernet ] || continue
    k=${q##*/}
    i=$(cat "$q"/gid_attrs/ndevs/* 2>/dev/null | head -n 1)
    [ -n "$i" ] && [ ! -e "/sys/class/net/$i/bonding" ] || i=$(ls "$d/device/net" 2>/dev/null | head -n 1)
    [ -n "$i" ] || i=$(cat "$d/parent" 2>/dev/null)
    v="value|$n|$k" s=/sys/class/net/$i
    t=$(cat "$d/node_type" 2>/dev/null)
    echo "port|$n|$k|$i|$a|$m|$(cat "$s/address" 2>/dev/null)|${t##*: }"
    f=$c/$n/ports/$k x='' y=''
    for o in 1 2 3; do
      [ -d $c ] || break
      made=''
      [ -d "$c/$n" ] || { mkdir "$c/$n" 2>/dev/null && made=1; }
      x=$(cat "$f/default_roce_mode" 2>/dev/null) y=$(cat "$f/default_roce_tos" 2>/dev/null)
      [ -n "$made" ] && rmdir "$c/$n" 2>/dev/null
      [ -n "$x" ] && [ -n "$y" ] && break
    done
    case $x in 'IB/RoCE v1') echo "$v|mode|v1" ;; 'RoCE v2') echo "$v|mode|v2" ;; esac
    [ -n "$y" ] && echo "$v|tos|$y"
    f=$d/tc/$k/traffic_class
    if [ -r "$f" ]; then x=$(sed -n 's/^Global tclass=//p; /^[0-9][0-9]*$/p' "$f"); echo "$v|traffic_class|${x:-unset}"; fi
    [ -n "$i" ] || continue
    [ -r "$s/mtu" ] && echo "$v|mtu|$(cat "$s/mtu")"
    if [ -d "$s/ecn/roce_np/enable" ] && [ -d "$s/ecn/roce_rp/enable" ]; then
      np='' rp='' both=''
      for o in 0 1 2 3 4 5 6 7; do
        x=$(cat "$s/ecn/roce_np/enable/$o" 2>/dev/null) y=$(cat "$s/ecn/roce_rp/enable/$o" 2>/dev/null)
        [ "$x" = 1 ] && np=$np,$o
        [ "$y" = 1 ] && rp=$rp,$o
        [ "$x$y" = 11 ] && both=$both,$o
      done
      np=${np#,} rp=${rp#,} both=${both#,}
      if [ "$np" = "$rp" ]; then echo "$v|ecn|${both:-none}"; else echo "$v|ecn|notification ${np:-none}, reaction ${rp:-none}"; fi
    fi
    e=/sys/kernel/debug/mlx5/$a/cc_params
    for f in cnp_dscp cnp_802p_prio; do
      x=$(cat "$s/ecn/roce_np/$f" 2>/dev/null)
      o=np_$f; [ $f = cnp_802p_prio ] && o=np_cnp_prio
      [ -n "$x" ] || { [ -n "$a" ] && x=$(cat "$e/$o" 2>/dev/null); }
      [ -n "$x" ] && echo "$v|$f|$x"
    done
    if [ ! -e "$s/qos/trust" ] && x=$(dcb pfc show dev "$i" prio-pfc 2>/dev/null) &&
      y=$(dcb -N app show dev "$i" dscp-prio 2>/dev/null); then
      echo "$x" | awk -v v="$v" '$1 == "prio-pfc" { l = ""
        for (j = 2; j <= NF; j++) if ($j ~ /:on$/) l = l "," substr($j, 1, 1); print v "|pfc|" (l == "" ? "none" : substr(l, 2)) }'
      echo "$y" | awk -v v="$v" '$1 == "dscp-prio" { t = 1
        for (j = 2; j <= NF; j++) { split($j, y, ":"); print v "|dscp." y[1] "|" y[2] } }
        END { print v "|trust|" (t ? "dscp" : "pcp") }'
    elif command -v mlnx_qos >/dev/null; then
      mlnx_qos -i "$i" 2>/dev/null | awk -v v="$v" '
        /^Priority trust state: / { print v "|trust|" $NF }
        match($0, /prio:[0-7] dscp:/) { o = substr($0, RSTART + 5, 1); n = split(substr($0, RSTART + RLENGTH), x, ",")
          for (j = 1; j <= n; j++) if (x[j] ~ /[0-9]/) print v "|dscp." x[j] + 0 "|" o }
        /^PFC configuration:/ { pfc = 1 }
        pfc && $1 == "enabled" { l = ""; for (j = 2; j <= 9; j++) if ($j == 1) l = l "," j - 2
          print v "|pfc|" (l == "" ? "none" : substr(l, 2)); pfc = 0 }'
    fi
  done
done
true"""
"""What each port has, as `port|DEVICE|PORT|NETDEV|PCI|DRIVER|MAC|NODE TYPE` and `value|DEVICE|PORT|KEY|VALUE`. A folder in configfs is
made for the reading and removed again, as `cma_roce_mode -d DEVICE` does; the settings are the device's, and stay. Another reader
may remove it at the same moment, hence the second try.

Names: the kernel's Documentation/ABI/testing/configfs-rdma_cm (4.4, ToS 4.11) and drivers/infiniband/hw/mlx5/cong.c (debugfs);
https://github.com/Mellanox/mlnx-tools (python/mlnx_qos, sbin/cma_roce_mode). mlx5 trusts the DSCP from the first dscp-prio entry on:
https://www.mail-archive.com/netdev%40vger.kernel.org/msg198271.html
dcb reads what mlnx_qos does (dcbnl), and faster, but not the `qos/trust` of an older OFED."""

ROCE = Probe(
    "roce",
    f"""( {READER} )
u={UNIT} c={CONFIG}"""
    r"""
[ -e $c ] && echo 'config|' && sed -n 's/^\(device \|count \|set \)/config|&/p' $c
systemctl show -p LoadState -p ActiveState -p UnitFileState $u 2>/dev/null | tr = '|'
journalctl -q --no-pager -o cat -n 6 -u $u 2>/dev/null | sed 's/^/log|/'
grep -qsx lldpad /proc/[0-9]*/comm && echo 'lldpad|'
PATH=$PATH:/usr/sbin:/sbin
if command -v nft >/dev/null && x=$(nft list ruleset 2>/dev/null); then
  { echo 'filter|nft'; echo "$x" | grep -E 'udp.*4791.*(drop|reject)' | sed 's/^/rule|/'; } | cat
elif command -v iptables-save >/dev/null && x=$(iptables-save 2>/dev/null); then
  { echo 'filter|iptables-save'; echo "$x" | grep -E 'udp.*4791.*-j (DROP|REJECT)' | sed 's/^/rule|/'; } | cat
fi
true""",
    parse,
    "rdma link; for d in /sys/class/infiniband/*/device/net/*; do mlnx_qos -i ${d##*/} || dcb pfc show dev ${d##*/}; done; "
    f"systemctl status {UNIT}",
    speaks=True,
)
