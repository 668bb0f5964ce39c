"""The far ends of network cables: the switch and its port, by LLDP or from the InfiniBand subnet."""

import re

import msgspec

from gpuprov.facts.probes.base import Output, Probe

# `lldpctl -f keyvalue`; the name of a VLAN's interface has a dot: https://lldpd.github.io/usage.html
_VALUE = re.compile(
    r"lldp\.(.{1,60}?)\.(chassis\.name|chassis\.mac|port\.ifname|port\.local|port\.mac|port\.descr)=(.*)"
)
_NODE = re.compile(r"^(Node Description|NodeType|LocalPort):\.*(.*)$", re.MULTILINE)


class FarEnd(msgspec.Struct, frozen=True, kw_only=True):
    """The other end of a cable."""

    # A host's name where the cable ends in another adapter.
    switch: str
    # In the switch's own words, empty if unknown.
    port: str = ""

    def __str__(self) -> str:
        return f"{self.switch} {self.port}".strip()


class FarEnds(msgspec.Struct, frozen=True, kw_only=True):
    """`netdevs`: by interface, from LLDP; `ports`: of InfiniBand, by `DEVICE/PORT`."""

    netdevs: dict[str, FarEnd] = {}
    ports: dict[str, FarEnd] = {}


def parse(output: Output) -> FarEnds:
    lldp, *ports = re.split(r"^@port (?=\S+\n)", output.text, flags=re.MULTILINE)
    nodes = {text.split("\n", 1)[0]: parse_node(text) for text in ports}
    return FarEnds(netdevs=parse_lldp(lldp), ports={name: end for name, end in nodes.items() if end})


def parse_lldp(text: str) -> dict[str, FarEnd]:
    """Parse `lldpctl -f keyvalue`. Of several neighbours of an interface, as behind an unmanaged switch, the first."""
    values: dict[str, dict[str, str]] = {}
    for line in text.splitlines():
        if match := _VALUE.match(line):
            values.setdefault(match[1], {}).setdefault(match[2], match[3].strip())
    ends = {}
    for name, known in values.items():
        switch = known.get("chassis.name") or known.get("chassis.mac", "")
        port = next(
            (known[key] for key in ("port.ifname", "port.local", "port.descr", "port.mac") if known.get(key)), ""
        )
        if switch:
            ends[name] = FarEnd(switch=switch, port=port)
    return ends


def parse_node(text: str) -> FarEnd | None:
    """Parse what smpquery prints of the node at the other end; None where it did not answer."""
    known = dict(_NODE.findall(text))
    if "LocalPort" not in known or not (name := known.get("Node Description", "").strip()):
        return None
    port = known["LocalPort"].strip()
    return FarEnd(switch=name, port=f"port {port}" if known.get("NodeType", "").strip() == "Switch" else "")


# One query per port of InfiniBand, of the node at the other end of its cable alone: ibnetdiscover would walk through
# the whole fabric (https://github.com/linux-rdma/rdma-core/blob/master/infiniband-diags/man/smpquery.8.in.rst).
FAR_ENDS = Probe(
    "far_ends",
    r"""echo @
command -v lldpctl >/dev/null && timeout 10 lldpctl -f keyvalue 2>/dev/null
command -v smpquery >/dev/null || exit 0
for p in /sys/class/infiniband/*/ports/*; do
  [ "$(cat "$p/link_layer" 2>/dev/null)" = InfiniBand ] || continue
  case $(cat "$p/phys_state" 2>/dev/null) in 5:*) ;; *) continue;; esac
  n=${p##*/} d=${p%/ports/*}; d=${d##*/}
  echo "@port $d/$n"
  timeout 5 smpquery -C "$d" -P "$n" -D nodedesc "0,$n" 2>/dev/null &&
    timeout 5 smpquery -C "$d" -P "$n" -D nodeinfo "0,$n" 2>/dev/null
done
true""",
    parse,
    "lldpctl; smpquery -C mlx5_0 -P 1 -D nodeinfo 0,1",
    speaks=True,
    blank="@",
)
