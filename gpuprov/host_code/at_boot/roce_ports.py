"""The settings of RoCE ports: their reader, and their differences from the configuration."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Mapping, NamedTuple, Sequence

from . import devices
from .devices import RdmaDevice, Selector


@dataclass(frozen=True)
class RocePort:
    """`values` by key: `trust`, `pfc` ("3,4", "none"), `dscp.26`, `mode` (v1, v2), `tos`, `traffic_class` ("unset"),
    `ecn` (priorities with both points on; else "notification 3, reaction none"), `cnp_dscp`, `cnp_802p_prio`, `mtu`.

    `leg`: `netdev` is another interface of the device's bond, a port of the same adapter without an RDMA device of its
    own.
    """

    device: str
    number: int
    netdev: str = ""
    values: Mapping[str, str] = field(default_factory=dict)
    leg: bool = False

    def has(self, key: str) -> bool:
        """Return whether this port has a setting; some are set by a bond's device itself."""
        return not (self.leg and key in OF_DEVICE)

    @property
    def name(self) -> str:
        return f"{self.device} port {self.number}" + (f" ({self.netdev})" if self.netdev else "")


# Settings of the RDMA device; the others are its network interfaces'.
OF_DEVICE = ("mode", "tos", "traffic_class")


class Difference(NamedTuple):
    """The actual and the desired value of a port's setting."""

    port: RocePort
    key: str
    actual: str
    value: str

    @property
    def place(self) -> tuple[str, str]:
        return self.port.name, self.key


class Asked(NamedTuple):
    """The configuration. `least`: the minimum number of devices; `values` in the order in which they are set."""

    selectors: list[Selector]
    least: int
    values: dict[str, str]


def parse(text: str) -> tuple[RocePort, ...]:
    """Parse the reader's output about ports."""
    entries: dict[tuple[str, int], list[tuple[str, dict[str, str], bool]]] = {}
    for line in text.splitlines():
        kind, _, rest = line.partition("|")
        if kind == "port":
            device, number, netdev, *leg = rest.split("|")
            entries.setdefault((device, int(number)), []).append((netdev, {}, bool(leg)))
        elif kind == "value":
            device, number, key, value = rest.split("|", 3)
            entries[device, int(number)][-1][1][key] = value
    return tuple(
        RocePort(*place, netdev, values, leg) for place in sorted(entries) for netdev, values, leg in entries[place]
    )


def list_differences(ports: Sequence[RocePort], desired: Mapping[str, str]) -> list[Difference]:
    """List the differences of each port from the requested settings."""
    result = []
    for port in ports:
        for key, value in desired.items():
            if port.has(key) and port.values.get(key) != value:
                result.append(Difference(port, key, read_value(port, key), value))
    return result


def read_value(port: RocePort, key: str) -> str:
    """Return the value of a port's setting, or why it has none: a port that does not trust the DSCP reports no map of
    it."""
    lacks = "by PCP" if key.startswith("dscp.") and port.values.get("trust") == "pcp" else "not shown"
    return port.values.get(key, lacks)


def select_ports(requested: Asked, ports: Sequence[RocePort], all_devices: Sequence[RdmaDevice]) -> list[RocePort]:
    """Return the ports that a configuration applies to."""
    names = {device.name for device in devices.select_devices("roce", requested.selectors, all_devices)}
    return [port for port in ports if port.device in names]


def describe_missing_ports(requested: Asked, ports: Sequence[RocePort], all_devices: Sequence[RdmaDevice]) -> list[str]:
    """Describe the requested ports that are missing."""
    names = {port.device for port in select_ports(requested, ports, all_devices)}
    unmet = devices.find_unmatched(requested.selectors, [device for device in all_devices if device.name in names])
    if unmet:
        return [f"no RoCE port of {devices.format_selector(selector)}" for selector in unmet]
    if requested.least > len(names):
        return [f"{len(names)} of {requested.least} RoCE devices"]
    return [] if names else ["no RoCE port"]


def get_default_priority(dscp: int) -> int:
    """Return the priority of an unmapped DSCP, on a port that trusts the DSCP (catalogue: roce, default-map)."""
    return dscp // 8


# The values of each port, as `port|DEVICE|PORT|NETDEV` and `value|DEVICE|PORT|KEY|VALUE`. A folder in configfs is
# created for the reading and removed again, as `cma_roce_mode -d DEVICE` does; the settings belong to the device, and
# stay. Another reader may remove it at the same moment, hence the second try.
#
# Names: the kernel's Documentation/ABI/testing/configfs-rdma_cm (4.4, ToS 4.11) and drivers/infiniband/hw/mlx5/cong.c
# (debugfs); https://github.com/Mellanox/mlnx-tools (python/mlnx_qos, sbin/cma_roce_mode). mlx5 trusts the DSCP from the
# first dscp-prio entry on (https://www.mail-archive.com/netdev%40vger.kernel.org/msg198271.html). dcb reads what
# mlnx_qos does (dcbnl), and faster, but not the `qos/trust` of an older OFED.
READER = r"""for t in awk cat sed; do command -v $t >/dev/null || { echo "$t: not found" >&2; exit 1; }; done
PATH=$PATH:/usr/sbin:/sbin
c=/sys/kernel/config/rdma_cm
for t in mlnx_qos dcb cma_roce_mode cma_roce_tos; do command -v $t >/dev/null && echo "tool|$t"; done
[ -d $c ] && echo 'tool|rdma_cm'
for d in /sys/class/infiniband/*; do
  [ -d "$d" ] || continue
  n=${d##*/} a=''
  if [ -e "$d/device/vendor" ]; then
    p=$(readlink -f "$d/device"); a=${p##*/}
    tr -d '\0' 2>/dev/null <"$p/vpd" | grep -qa SW_MNG && continue
  fi
  for q in "$d"/ports/*; do
    [ "$(cat "$q/link_layer" 2>/dev/null)" = Ethernet ] || continue
    k=${q##*/}
    i=$(cat "$q"/gid_attrs/ndevs/* 2>/dev/null | head -n 1)
    [ -n "$i" ] && [ ! -e "/sys/class/net/$i/bonding" ] || i=$(ls "$d/device/net" 2>/dev/null | head -n 1)
    [ -n "$i" ] || i=$(cat "$d/parent" 2>/dev/null)
    v="value|$n|$k" s=/sys/class/net/$i
    echo "port|$n|$k|$i"
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
    if [ -r "$f" ]; then x=$(sed -n 's/^Global tclass=//p; /^[0-9][0-9]*$/p' "$f")
      echo "$v|traffic_class|${x:-unset}"; fi
    [ -n "$i" ] || continue
    l=$i
    for y in $(cat "$s/master/bonding/slaves" 2>/dev/null); do
      p=$(readlink -f "/sys/class/net/$y/device"); x=${p##*/}
      [ "$y" != "$i" ] && [ -n "$a" ] && [ "${x%.*}" = "${a%.*}" ] && [ ! -d "$p/infiniband" ] && l="$l $y"
    done
    for i in $l; do
      s=/sys/class/net/$i u=$a
      [ "$i" = "${l%% *}" ] || { echo "port|$n|$k|$i|leg"; p=$(readlink -f "$s/device"); u=${p##*/}; }
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
        if [ "$np" = "$rp" ]; then echo "$v|ecn|${both:-none}"
          else echo "$v|ecn|notification ${np:-none}, reaction ${rp:-none}"; fi
      fi
      e=/sys/kernel/debug/mlx5/$u/cc_params
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
done
true"""
