"""The RoCE settings of each Ethernet port of an RDMA device, read where the kernel and the drivers show them: configfs
of rdma_cm, `mlnx_qos` of NVIDIA's tools or else `dcb` of iproute2, and the driver's own sysfs (NVIDIA's OFED) or
debugfs (the kernel's mlx5_ib)."""

import msgspec

from gpuprov.facts.probes.base import Output, Probe
from gpuprov.host_code.at_boot import roce_ports
from gpuprov.host_code.at_boot.roce_ports import READER, RocePort


class Roce(msgspec.Struct, frozen=True, kw_only=True):
    """RoCE on a host."""

    ports: tuple[RocePort, ...] = ()
    # The programs and interfaces present.
    tools: tuple[str, ...] = ()
    # Whether this daemon, which also sets DCB, runs.
    lldpad: bool = False
    # Rules of the host's packet filter that drop or reject UDP port 4791.
    blocking: tuple[str, ...] = ()
    # The program that showed them, empty for none.
    filter: str = ""


def parse(output: Output) -> Roce:
    many = output.rows(bare=True)
    return Roce(
        ports=roce_ports.parse(output.text),
        tools=tuple(many.get("tool", ())),
        lldpad="lldpad" in many,
        blocking=tuple(dict.fromkeys(" ".join(line.split()) for line in many.get("rule", ()))),
        filter=(many.get("filter") or [""])[0],
    )


ROCE = Probe(
    "roce",
    f"( {READER} )\n"
    r"""grep -qsx lldpad /proc/[0-9]*/comm && echo 'lldpad|'
PATH=$PATH:/usr/sbin:/sbin
if command -v nft >/dev/null && x=$(nft list ruleset 2>/dev/null); then
  { echo 'filter|nft'; echo "$x" | grep -E 'udp.*4791.*(drop|reject)' | sed 's/^/rule|/'; } | cat
elif command -v iptables-save >/dev/null && x=$(iptables-save 2>/dev/null); then
  { echo 'filter|iptables-save'; echo "$x" | grep -E 'udp.*4791.*-j (DROP|REJECT)' | sed 's/^/rule|/'; } | cat
fi
true""",
    parse,
    "rdma link; for d in /sys/class/infiniband/*/device/net/*; do mlnx_qos -i ${d##*/} || dcb pfc show dev "
    "${d##*/}; done",
    speaks=True,
)
