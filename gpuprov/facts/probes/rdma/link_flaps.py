"""The past of RDMA devices' links: when they went down and came back in this boot, and error counters of their ports
over the last day."""

import re
from datetime import datetime

import msgspec

from gpuprov.catalog.kernel import ADDRESS
from gpuprov.core.safe_parse import Unreadable, is_whole, parse_typed_json
from gpuprov.facts.probes.base import Output, Probe, ProbeFailed
from gpuprov.facts.probes.host.readings import parse_time
from gpuprov.facts.probes.kernel.kernel_log import SINCE, build_variables
from gpuprov.host_code.readings import COUNTERS, FOLDER

# `journalctl -o short-unix`: `1763848800.123456 host kernel: ...`
STAMP = re.compile(r"(\d{9,11}\.\d{1,9}) \S+ ([^\s:\[]+)(?:\[\d+\])?: (.*)\Z")
# mlx5e_update_carrier in the kernel's drivers/net/ethernet/mellanox/mlx5/core/en_main.c, which is silent if the
# interface is taken down; systemd-networkd and NetworkManager, which also report InfiniBand.
# Lines of the mlx5 driver
# (https://github.com/torvalds/linux/blob/master/drivers/net/ethernet/mellanox/mlx5/core/en_main.c),
# of systemd-networkd and of NetworkManager:
#     mlx5_core 0000:01:00.0 enp1s0f0np0: Link down
#     ib1: Link DOWN
#     enp1s0f0np0: Gained carrier
#     <info>  [1763890300.1023] device (ib0): carrier: link disconnected (deferring action)
SAYS = (
    rf"mlx5_core {ADDRESS} (\S+): (Link up|Link down)\Z",
    r"(\S+): (Gained carrier|Lost carrier|Link DOWN)\Z",
    r"<[a-z]+> .{0,30}device \((\S+)\): (carrier: link connected|carrier: link disconnected|state change: \S+ -> "
    r"unmanaged)\b",
    r"<[a-z]+> .{0,30}manager: \((\S+)\): (new) ",
)
UP, DOWN = ("Link up", "Gained carrier"), ("Link down", "Lost carrier", "carrier: link disconnected")
# NetworkManager logs it each time; for a link that was down for less than six seconds it logs nothing else.
AGAIN = "carrier: link connected"
# The driver initializes an adapter again, whose link then comes up again.
# mlx5_core 0000:01:00.0: firmware version: 20.27.446
LOADED = re.compile(rf"mlx5_core {ADDRESS}: firmware version: ")


class Interface(msgspec.Struct, frozen=True, kw_only=True):
    """An interface."""

    device: str
    name: str
    # Times at which its link came back after a loss, unless the driver was loaded in between.
    flaps: tuple[float, ...] = ()


class LinkFlaps(msgspec.Struct, frozen=True, kw_only=True):
    """All interfaces."""

    # Whether there is one, and root reads it.
    journal: bool
    now: float
    # The requested start in Unix time; 0: this boot.
    since: float = 0
    interfaces: tuple[Interface, ...] = ()


def parse(output: Output) -> LinkFlaps:
    fields: dict[str, str] = {}
    names: dict[str, str] = {}
    events: dict[str, list[tuple[float, str, str]]] = {}
    loads: list[float] = []
    for row in output.text.splitlines():
        kind, _, rest = row.partition("|")
        if kind == "interface" and rest.count("|") == 1:
            device, _, name = rest.partition("|")
            names.setdefault(name, device)
        elif kind in ("now", "since", "journal"):
            fields[kind] = rest.strip()
        elif kind == "line" and (line := STAMP.match(rest)):
            at, text = float(line[1]), line[3]
            if LOADED.match(text):
                loads.append(at)
            for match in filter(None, (re.match(pattern, text) for pattern in SAYS)):
                events.setdefault(match[1], []).append((at, line[2], match[2]))
    if not is_whole(fields.get("now", "")) or not is_whole(fields.get("since", "")):
        raise ProbeFailed(f"the host's clock cannot be read: {output.text.strip()[:120]!r}")
    since = float(fields["since"])
    interfaces = tuple(
        Interface(device=device, name=name, flaps=_find_flaps(events.get(name, []), loads, since))
        for name, device in sorted(names.items())
    )
    return LinkFlaps(
        journal=fields.get("journal", "0") not in ("", "0"),
        now=float(fields["now"]),
        since=since,
        interfaces=interfaces,
    )


def _find_flaps(events: list[tuple[float, str, str]], loads: list[float], since: float) -> tuple[float, ...]:
    """Find flaps (up, down, and up again) by the log source that saw most of them. A link that comes up after a boot
    has not been up before."""
    seen = [
        tuple(
            up
            for down, up in _find_outages([(at, text) for at, who, text in events if who == witness])
            if up >= since and not any(down <= load <= up for load in loads)
        )
        for witness in dict.fromkeys(who for _, who, _ in events)
    ]
    return max(seen, key=len, default=())


def _find_outages(events: list[tuple[float, str]]) -> list[tuple[float, float]]:
    """Return the begin and end of each outage between two times at which the link was up. If the interface was taken
    down, or is new, as after a move to a container's network, the state before is unknown."""
    outages: list[tuple[float, float]] = []
    was_up = False
    lost: float | None = None
    for at, text in events:
        if text in DOWN:
            lost = at if was_up and lost is None else lost
        elif text in (*UP, AGAIN):
            lost = at if text == AGAIN and was_up and lost is None else lost
            outages += [(lost, at)] if lost is not None else []
            was_up, lost = True, None
        else:
            was_up, lost = False, None
    return outages


LINK_FLAPS = Probe(
    "link_flaps",
    f"""n=$(date +%s); echo "now|$n"
{SINCE}
echo "since|${{since:-0}}"
for i in /sys/class/infiniband/*/device/net/*; do
  [ -e "$i" ] && [ ! -e "${{i%/net/*}}/physfn" ] || continue  # virtual functions come and go with containers
  y=''; read -r y 2>/dev/null <"$i/phys_port_name"
  case $y in pf[0-9]*|c[0-9]*pf[0-9]*) continue ;; esac  # nor what stands for them in the adapter's switch
  d=${{i%/device/net/*}}
  echo "interface|${{d##*/}}|${{i##*/}}"
done
command -v journalctl >/dev/null || exit 0
j() {{ journalctl -q --no-pager -b -o short-unix "$@" 2>/dev/null; }}
[ "$(id -u)" != 0 ] || echo "journal|$(j -n 1 | wc -l)"  # others see their own lines only
j _TRANSPORT=kernel | grep -aE ' kernel: mlx5_core {ADDRESS}(: firmware version: | [^ ]+: Link (up|down)$)' |
  tail -n 2000 | sed 's/^/line|/'
j _SYSTEMD_UNIT=systemd-networkd.service + _SYSTEMD_UNIT=NetworkManager.service |
  grep -aE ': ((Gained|Lost) carrier|Link DOWN)$|: carrier: link (dis)?connected|manager: [(][^ )]+[)]: new |-> unmanaged ' |
  tail -n 2000 | sed 's/^/line|/'
true""",
    parse,
    "journalctl -b | grep -E 'Link (up|down)|(Gained|Lost) carrier|carrier: link'",
    asks=build_variables,
    speaks=True,
)


Counts = dict[str, int]


class Line(msgspec.Struct, frozen=True):
    """The counters at a time, as stored on the host: by DEVICE/PORT and name."""

    at: str
    ports: dict[str, Counts] = {}


class CounterReading(msgspec.Struct, frozen=True):
    """The counters of all ports at a time."""

    at: datetime
    ports: dict[str, Counts]


class CounterReadings(msgspec.Struct, frozen=True, kw_only=True):
    """`clock`: the host's time. `readings`: in the order of their times; without those of the future."""

    clock: datetime
    readings: tuple[CounterReading, ...] = ()


def parse_counters(output: Output) -> CounterReadings:
    """Parse the host's time, and lines of JSON; lines that cannot be read are left out."""
    clock = re.search(r"^@clock (\S+)$", output.text, re.MULTILINE)
    if clock is None:
        raise ValueError("the host's clock is not told")
    now = parse_time(clock[1])
    readings = []
    for line in output.text.splitlines():
        try:
            entry = parse_typed_json(line, Line) if line.startswith("{") else None
            if entry and (at := parse_time(entry.at)) < now:
                readings.append(CounterReading(at, entry.ports))
        except (Unreadable, ValueError):
            continue
    return CounterReadings(clock=now, readings=tuple(sorted(readings, key=lambda reading: reading.at)))


COUNTER_READINGS = Probe(
    "counter_readings",
    f"""date -u '+@clock %Y-%m-%dT%H:%M:%SZ'
tail -n 200 {FOLDER}/{COUNTERS} 2>/dev/null | tr -d '\\000' | grep -a '^{{'; true""",
    parse_counters,
    f"less {FOLDER}/{COUNTERS}",
    speaks=True,
    blank="@clock ",
    own=True,
)
