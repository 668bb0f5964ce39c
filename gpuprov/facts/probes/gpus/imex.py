"""nvidia-imex on a compute tray: its daemon, its configured members, the report of its control program, and channel
0."""

import msgspec

from gpuprov.core import safe_parse
from gpuprov.facts.probes.base import Output, Probe
from gpuprov.facts.probes.gpus.fabric import RUNNING, Daemon, parse_daemon
from gpuprov.facts.probes.host import systemd
from gpuprov.facts.probes.host.systemd import UnitState


class Member(msgspec.Struct, frozen=True):
    """A node of the domain in the control program's report: `READY`, `UNAVAILABLE`."""

    host: str
    status: str
    # Nodes that it is not connected to.
    lost: tuple[str, ...] = ()


class Domain(msgspec.Struct, frozen=True):
    """`status` is `UP`, `DEGRADED` or `DOWN`."""

    status: str
    members: tuple[Member, ...] = ()


class Imex(UnitState, frozen=True, kw_only=True):
    """`daemon`: its processes, version, the keys of config.cfg, and the log of its present run. `nodes`: lines of
    nodes_config.cfg (None: no such file). `ready`: the daemon's
    own state by its control program (`READY`, or `INITIALIZING` ...). `domain`: of all nodes (None: not reported).
    `channel`: whether the device of channel 0 exists; `parameter`: the loaded driver's setting for it. `addresses`: the
    host's."""

    daemon: Daemon
    nodes: tuple[str, ...] | None = None
    ready: str = ""
    domain: Domain | None = None
    complaint: str = ""
    channel: bool = False
    parameter: str = ""
    addresses: frozenset[str] = frozenset()


def parse_domain(text: str) -> Domain | None:
    """Parse the output of `nvidia-imex-ctl -N -j`; None for anything else."""
    try:
        data = safe_parse.parse_json(text)
    except safe_parse.Unreadable:
        return None
    if not isinstance(data, dict) or not isinstance(data.get("nodes"), dict):
        return None
    members = []
    for node in data["nodes"].values():
        links = node.get("connections") or {}
        lost = tuple(sorted(str(link.get("host")) for link in links.values() if link.get("status") != "CONNECTED"))
        members.append(Member(str(node.get("host", "")), str(node.get("status", "")), lost))
    return Domain(str(data.get("status", "")), tuple(sorted(members, key=lambda member: member.host)))


def parse(output: Output) -> Imex:
    many = output.rows(bare=True)
    fields = {kind: values[-1].strip() for kind, values in many.items()}
    report = "\n".join(many.get("domain", ()))
    return Imex(
        daemon=parse_daemon(output),
        nodes=tuple(line.strip() for line in many.get("node", ()) if line.strip()) if "nodes" in many else None,
        **systemd.parse_state(many),
        ready=fields.get("ready", ""),
        domain=parse_domain(report),
        complaint=(many.get("domain") or [""])[0][:200],
        channel="channel" in many,
        parameter=fields.get("parameter", ""),
        addresses=frozenset(many.get("address", ())),
    )


# https://docs.nvidia.com/multi-node-nvlink-systems/imex-guide/cmdservice.html
IMEX = Probe(
    "imex",
    """u=nvidia-imex.service; c=/etc/nvidia-imex/config.cfg; n=/etc/nvidia-imex/nodes_config.cfg; b=/usr/bin/nvidia-imex
for a in $(hostname -I 2>/dev/null); do echo "address|$a"; done
[ -e $b ] || [ -e $n ] || [ -e $c ] || exit 0
"""
    + RUNNING
    + """[ -e $n ] && echo 'nodes|' && sed -n 's/[#;].*//;/[^[:space:]]/s/^/node|/p' $n
"""
    + systemd.STATE
    + """if [ -e $b-ctl ]; then
  echo "ready|$(timeout 10 $b-ctl -q 2>/dev/null </dev/null | tail -n 1)"
  timeout 20 $b-ctl -N -j 2>&1 </dev/null | sed 's/^/domain|/'
fi
[ -c /dev/nvidia-caps-imex-channels/channel0 ] && echo 'channel|'
sed -n 's/^CreateImexChannel0: /parameter|/p' /proc/driver/nvidia/params 2>/dev/null
true""",
    parse,
    "nvidia-imex-ctl -N; systemctl status nvidia-imex; cat /etc/nvidia-imex/nodes_config.cfg",
)
