"""The reader of a host's network interfaces, its default route, and the users of RoCE's UDP port."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple, Sequence

from .program import group_cells

READER = r"""for d in /sys/class/net/*; do
  [ -e "$d/type" ] || continue
  p=$(readlink -f "$d/device" 2>/dev/null)
  while [ -n "$p" ] && { [ ! -e "$p/vendor" ] || [ ! -e "$p/class" ]; }; do p=${p%/*}; done
  a=${p##*/}
  v=''; [ -e "/proc/net/vlan/${d##*/}" ] && v=vlan
  read -r x 2>/dev/null <"$d/address" || x=''; read -r o 2>/dev/null <"$d/operstate" || o=''; read -r y <"$d/type"
  echo "netdev|${d##*/}|$x|$o|$y|$a|$v"
done
r=$(ip -4 route show default 2>/dev/null; ip -6 route show default 2>/dev/null)
echo "route|$(echo "$r" | sed -n '/dev /s/.* dev \([^ ]*\).*/\1/p' | head -n 1)"
ss -Huanp 'sport = :4791' 2>/dev/null | sed 's/^/port|/'
"""


@dataclass(frozen=True)
class Netdev:
    """A network interface. `kind` is its ARPHRD number (1: Ethernet, 32: InfiniBand); `address` its PCI function or
    empty.

    `vlan`: it is a VLAN of another interface.
    """

    name: str
    mac: str = ""
    state: str = ""
    kind: int = 0
    address: str = ""
    vlan: bool = False


class Network(NamedTuple):
    """`default_route`: its network interface. `port_users`: programs that hold UDP port 4791; a socket of the kernel
    itself has no program: `kernel`."""

    netdevs: tuple[Netdev, ...]
    default_route: str
    port_users: tuple[str, ...]


def parse(text: str) -> Network:
    """Parse the reader's output."""
    many = group_cells(text)
    return Network(
        tuple(
            Netdev(name, mac, state, int(kind or 0), address, bool(vlan))
            for name, mac, state, kind, address, vlan in many.get("netdev", [])
        ),
        many.get("route", [[""]])[0][0],
        tuple(dict.fromkeys(find_user("|".join(row)) for row in many.get("port", []))),
    )


def find_netdev(name: str, netdevs: Sequence[Netdev]) -> Netdev | None:
    """Return the interface with this name or MAC address. A VLAN has the address of the interface below it: it only
    matches by name."""
    return next((netdev for netdev in netdevs if name in (netdev.name, "" if netdev.vlan else netdev.mac)), None)


def find_user(line: str) -> str:
    match = re.search(r'\(\("([^"]+)"', line)
    return match[1] if match else "kernel"
