"""RDMA devices and their ports as sysfs shows them: found by PCI address, driver and netdev, never by number."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import msgspec

from gpuprov.probe.base import Output, Probe


class Gid(msgspec.Struct, frozen=True, kw_only=True):
    """An entry of a port's GID table that is set. `kind`: `IB/RoCE v1` or `RoCE v2`, as the kernel writes it; `netdev` may be
    empty."""

    index: int
    gid: str
    kind: str = ""
    netdev: str = ""

    @property
    def ipv4(self) -> str:
        """The IPv4 address of an IPv4-mapped GID, else empty."""
        words = self.gid.split(":")
        if len(words) != 8 or words[:6] != ["0000"] * 5 + ["ffff"]:
            return ""
        return ".".join(str(int(half, 16)) for word in words[6:] for half in (word[:2], word[2:]))


class RdmaPort(msgspec.Struct, frozen=True, kw_only=True):
    """`state` is `ACTIVE`, `INIT`, `DOWN`; `link_layer` is `InfiniBand` or `Ethernet`; `rate` is in Gb/s (0: not told)."""

    number: int
    state: str = ""
    physical: str = ""
    link_layer: str = ""
    rate: float = 0.0
    lid: int = 0
    sm_lid: int = 0
    gids: tuple[Gid, ...] = ()


class RdmaDevice(msgspec.Struct, frozen=True, kw_only=True):
    """`address` is its PCI function, empty for software devices, whose `driver` is `rdma_rxe` or `siw`.

    `node_type`: `CA` (InfiniBand, RoCE) or `RNIC` (iWARP).

    `netdevs` are the network interfaces of its ports, `macs` their Ethernet addresses; `numa_node` is -1 where the machine
    has none. `bridge`: an NVLink bridge of an NVSwitch board (SW_MNG in its VPD), which is no HCA.
    """

    name: str
    driver: str = ""
    address: str = ""
    identifier: str = ""
    node_type: str = ""
    node_guid: str = ""
    firmware: str = ""
    numa_node: int = -1
    netdevs: tuple[str, ...] = ()
    macs: tuple[str, ...] = ()
    bridge: bool = False
    ports: tuple[RdmaPort, ...] = ()

    @property
    def soft(self) -> bool:
        return not self.address


def parse(output: Output) -> tuple[RdmaDevice, ...]:
    devices: dict[str, dict[str, object]] = {}
    ports: dict[tuple[str, int], dict[str, object]] = {}
    gids: dict[tuple[str, int], list[Gid]] = {}
    for line in output.text.splitlines():
        kind, name, *cells = line.split("|")
        if kind == "device":
            address, driver, vendor, device, node_type, guid, firmware, numa, netdevs, macs, bridge = cells
            devices[name] = {
                "name": name,
                "driver": driver,
                "address": address,
                "identifier": f"{vendor.removeprefix('0x')}:{device.removeprefix('0x')}" if vendor else "",
                "node_type": node_type.rpartition(":")[2].strip(),
                "node_guid": guid,
                "firmware": firmware,
                "numa_node": int(numa) if numa else -1,
                "netdevs": tuple(dict.fromkeys(netdevs.split())),
                "macs": tuple(dict.fromkeys(macs.split())),
                "bridge": bool(bridge),
            }
        elif kind == "port":
            number, state, physical, link_layer, rate, lid, sm_lid = cells
            ports[name, int(number)] = {
                "number": int(number),
                "state": state.rpartition(":")[2].strip(),
                "physical": physical.rpartition(":")[2].strip(),
                "link_layer": link_layer,
                "rate": float(rate.split()[0]) if rate else 0.0,
                "lid": int(lid, 16) if lid else 0,
                "sm_lid": int(sm_lid, 16) if sm_lid else 0,
            }
        elif kind == "gid":
            number, index, gid, gid_kind, netdev = cells
            gids.setdefault((name, int(number)), []).append(
                Gid(index=int(index), gid=gid, kind=gid_kind, netdev=netdev)
            )
    made = []
    for name in sorted(devices):
        own = tuple(
            RdmaPort(**values, gids=tuple(sorted(gids.get(key, []), key=lambda gid: gid.index)))  # type: ignore[arg-type]
            for key, values in sorted(ports.items())
            if key[0] == name
        )
        made.append(RdmaDevice(**devices[name], ports=own))  # type: ignore[arg-type]
    return tuple(made)


DEVICES = Probe(
    "rdma_devices",
    r"""for d in /sys/class/infiniband/*; do
  [ -d "$d" ] || continue
  n=${d##*/} a='' m='' v='' i='' u='' b=''
  if [ -e "$d/parent" ]; then
    m=rdma_rxe
  elif grep -qs RNIC "$d/node_type" && [ -z "$(cat "$d/fw_ver" 2>/dev/null)" ] &&
    ! readlink -f "$d/device/driver" | grep -q '/erdma$'; then
    m=siw
  elif [ -e "$d/device/vendor" ]; then
    p=$(readlink -f "$d/device"); a=${p##*/}; v=$(cat "$p/vendor"); i=$(cat "$p/device"); u=$(cat "$p/numa_node" 2>/dev/null)
    [ -L "$p/driver" ] && m=$(readlink "$p/driver") && m=${m##*/}
    tr -d '\0' <"$p/vpd" 2>/dev/null | grep -qa SW_MNG && b=bridge
  fi
  w=$(cat "$d"/ports/*/gid_attrs/ndevs/0 2>/dev/null; ls "$d/device/net" 2>/dev/null)
  [ -n "$w" ] || w=$(cat "$d"/parent 2>/dev/null)
  h=$(for e in $w; do cat "/sys/class/net/$e/address" 2>/dev/null; done)
  r="device|$n|$a|$m|$v|$i"
  for f in node_type node_guid fw_ver; do r="$r|$(cat "$d/$f" 2>/dev/null)"; done
  echo "$r|$u|$(echo $w)|$(echo $h)|$b"
  for q in "$d"/ports/*; do
    [ -d "$q" ] || continue
    k=${q##*/} r="port|$n|$k"
    for f in state phys_state link_layer rate lid sm_lid; do r="$r|$(cat "$q/$f" 2>/dev/null)"; done
    echo "$r"
    # One process for the whole table: rxe has 1024 entries, mlx5 256.
    grep -HEv '^(0000:){7}0000$|^$' "$q"/gids/* 2>/dev/null | while IFS= read -r g; do
      x=${g#"$q/gids/"}; o=${x%%:*}
      echo "gid|$n|$k|$o|${x#*:}|$(cat "$q/gid_attrs/types/$o" 2>/dev/null)|$(cat "$q/gid_attrs/ndevs/$o" 2>/dev/null)"
    done
  done
done""",
    parse,
    "rdma link; ibv_devinfo -v",
)
"""Only rxe has the attribute `parent` (drivers/infiniband/sw/rxe/rxe_verbs.c in Linux). siw has no firmware version; its `device`
may be the network card that it runs on (drivers/infiniband/sw/siw/siw_main.c)."""


class SlowPort(msgspec.Struct, frozen=True, kw_only=True):
    """A port that is up and slower than most ports of the same model of device on its host."""

    device: str
    address: str
    port: int
    rate: float
    usual: float

    def __str__(self) -> str:
        return (
            f"port {self.port} of {self.device} ({self.address}) runs at {self.rate:g} Gb/s, its like here at {self.usual:g}: "
            "look at its cable and at the port of the switch"
        )


def slow_ports(devices: Iterable[RdmaDevice]) -> list[SlowPort]:
    """Ports below the rate that more than half of the ports have of the same model and link layer."""
    alike: dict[tuple[str, str], list[tuple[RdmaDevice, RdmaPort]]] = {}
    for device in devices:
        for port in device.ports if not device.soft and not device.bridge else ():
            if port.state == "ACTIVE" and port.rate:
                alike.setdefault((device.identifier, port.link_layer), []).append((device, port))
    found = []
    for ports in alike.values():
        usual, count = Counter(port.rate for _, port in ports).most_common(1)[0]
        found += [
            SlowPort(device=device.name, address=device.address, port=port.number, rate=port.rate, usual=usual)
            for device, port in ports
            if port.rate < usual and count * 2 > len(ports)
        ]
    return found


def hcas(devices: tuple[RdmaDevice, ...]) -> tuple[RdmaDevice, ...]:
    """Those that are an adapter for work: NVLink bridges left out."""
    return tuple(device for device in devices if not device.bridge)
