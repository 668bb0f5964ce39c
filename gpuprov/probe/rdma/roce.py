"""The RoCE settings that each Ethernet port of an RDMA device has, and what sets them at boot.

Read where the kernel and the drivers show them: configfs of rdma_cm, `mlnx_qos` of NVIDIA's tools or else `dcb` of iproute2, and the
driver's own sysfs (NVIDIA's OFED) or debugfs (the kernel's mlx5_ib).
"""

from __future__ import annotations

import msgspec

from gpuprov.catalog.rdma.roce import CONFIG, UNIT
from gpuprov.onhost.at_boot import roce_ports
from gpuprov.onhost.at_boot.roce_ports import READER, RocePort
from gpuprov.probe.base import Output, Probe
from gpuprov.probe.host.systemd import GONE


class Roce(msgspec.Struct, frozen=True, kw_only=True):
    """`tools` are the programs and places that are there. `config`: the lines of gpuprov's configuration (None: no such file).

    `load`, `active`, `file`: of the boot unit; `log`: its last lines; `gone`: files of its command that are not there.
    `lldpad`: whether it runs, which sets DCB, too. `blocking`:
    rules of the host's packet filter that drop or reject UDP port 4791; `filter` is the program that showed them, empty for none.
    """

    ports: tuple[RocePort, ...] = ()
    tools: tuple[str, ...] = ()
    config: tuple[str, ...] | None = None
    load: str = "not-found"
    active: str = "inactive"
    file: str = ""
    log: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
    lldpad: bool = False
    blocking: tuple[str, ...] = ()
    filter: str = ""


def parse(output: Output) -> Roce:
    many = output.rows(bare=True)
    unit = {name: (many.get(name) or [""])[-1] for name in ("LoadState", "ActiveState", "UnitFileState")}
    return Roce(
        ports=roce_ports.parse(output.text),
        tools=tuple(many.get("tool", ())),
        config=tuple(line for line in many.get("config", ()) if line) if "config" in many else None,
        load=unit["LoadState"] or "not-found",
        active=unit["ActiveState"] or "inactive",
        file=unit["UnitFileState"],
        log=tuple(many.get("log", ())),
        gone=tuple(many.get("gone", ())),
        lldpad="lldpad" in many,
        blocking=tuple(dict.fromkeys(" ".join(line.split()) for line in many.get("rule", ()))),
        filter=(many.get("filter") or [""])[0],
    )


ROCE = Probe(
    "roce",
    f"""( {READER} )
u={UNIT} c={CONFIG}"""
    r"""
[ -e $c ] && echo 'config|' && sed -n 's/^\(device \|count \|set \)/config|&/p' $c
systemctl show -p LoadState -p ActiveState -p UnitFileState $u 2>/dev/null | tr = '|'
"""
    f"{GONE}"
    r"""journalctl -q --no-pager -o cat -n 6 -u $u 2>/dev/null | sed 's/^/log|/'
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
