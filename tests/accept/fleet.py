"""Hosts that are there only as the answers to an acceptance's steps."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from gpuprov.accept.command import accept
from gpuprov.accept.model import Options, Outcome, Ran, Step
from gpuprov.capabilities.acceptance.fragment import Acceptance, RdmaTests
from gpuprov.core.errors import UnreachableError
from gpuprov.facts.collect.unreached import Unreached
from gpuprov.facts.probes import acceptance
from gpuprov.facts.probes.base import Facts, Output
from gpuprov.spec.model import HostSpec, RawHost
from tests.capabilities import rdma_host

DATA = Path(__file__).parent / "data"
ALL_TOOLS = "".join(f"tool|{name}|/usr/bin/{name}\n" for name in acceptance.PROGRAMS.split()) + "python|\n"


def data(name: str) -> str:
    """A captured output."""
    return (DATA / f"{name}.txt").read_text(encoding="utf-8")


def bandwidth(value: float, size: int = 1 << 20) -> str:
    """What ib_write_bw --report_gbits prints of this bandwidth: the row of figures of the captured output replaced."""
    row = f" {size}    560845           0.00               {value:<7.2f}\t\t   0.186950"
    return re.sub(r"(?m)^ 65536 .*$", row, data("write_bw"))


def latency(value: float) -> str:
    """What ib_send_lat prints of this latency: t_typical of the captured output replaced."""
    row = f" 2       1000          1.80          9.70          {value:<7.2f}  \t       2.12     \t0.11\t\t2.50 \t\t9.70"
    return re.sub(r"(?m)^ 2 +100 .*$", row, data("send_lat"))


def devices(
    number: int, *, rails: int = 1, layer: str = "InfiniBand", rate: str = "400 Gb/sec (4X NDR)", **more: str
) -> str:
    """The RDMA devices of a host whose address ends in `number`; the GID of RoCE v2 with that address is at another
    index on each."""
    found = []
    for rail in range(rails):
        gid = f"0000:0000:0000:0000:0000:ffff:0a{rail:02x}:{number:04x}"
        local = f"fe80:0000:0000:0000:0000:0000:0000:{number:04x}"
        own = (
            f"0|{local}|RoCE v2|ib{rail}",
            f"{number}|{gid}|IB/RoCE v1|ib{rail}",
            f"{number + 1}|{gid}|RoCE v2|ib{rail}",
        )
        found.append(
            rdma_host.device(
                f"mlx5_{rail}",
                f"0000:{0x10 + rail:02x}:00.0",
                more.get("driver", "mlx5_core"),
                node=more.get("node", "1: CA"),
                netdevs=f"ib{rail}",
                layer=layer,
                rate=rate,
                lids=(f"0x{number:x}", "0x1") if layer == "InfiniBand" else None,
                gids=own if layer == "Ethernet" else (),
            )
        )
    return "".join(found)


def facts(number: int, **changed: str) -> Facts:
    """Facts of a host, with some probes' outputs changed."""
    texts = {
        "rdma_devices": devices(number),
        "acceptance_tools": ALL_TOOLS,
        "acceptance_network": f"address|ib0|10.0.0.{number}/24\naddress|eth0|192.0.2.{number}/24\nmain|"
        f"192.0.2.{number}\n",
        "nvidia_smi": "",
        **changed,
    }
    return Facts({name: Output(text) for name, text in texts.items()})


class Fleet:
    """Answers steps as hosts would. `answers` by (test program, client, server) or program; a callable is called with
    the step.

    `dies`: hosts that are gone at the given step (counted from their first one after the lock). `order` is what ran, in
    order.
    """

    def __init__(self, **answers: str | Callable[[Step], Ran]) -> None:
        self.answers = answers
        self.pairs: dict[tuple[str, str], str] = {}
        self.servers: dict[str, str] = {}
        self.dies: dict[str, int] = {}
        self.locked: dict[str, dict[str, object]] = {}
        self.users: dict[str, str] = {}
        self.said: dict[str, str | Ran] = {}
        self.held: set[str] = set()
        self.ended: list[str] = []
        self.written: dict[str, str] = {}
        self.rounds: list[list[str]] = []
        self.counted: dict[str, int] = {}
        self.interrupt_at = 0
        self.interrupt_lock = False

    def __call__(self, steps: Sequence[Step]) -> dict[str, Ran]:
        names = [step.host for step in steps]
        assert len(names) == len(set(names)), "a host in two steps at a time"
        working = [step.host for step in steps if "client.log" in step.script or "server.log" in step.script]
        if self.interrupt_lock and any('"action": "take"' in step.script for step in steps):
            self.held |= set(names[:1])
            raise KeyboardInterrupt
        if working:
            self.rounds.append(working)
            if self.interrupt_at and len(self.rounds) == self.interrupt_at:
                raise KeyboardInterrupt
        return {step.host: self._one(step) for step in steps}

    def _one(self, step: Step) -> Ran:
        host, script = step.host, step.script
        if '"action": "take"' in script:
            owner = self.locked.get(host)
            named = re.search(r'"broken": (\[[^]]*\])', script)
            if owner and not (named and owner["run"] in json.loads(named[1])):
                return Ran(
                    text=json.dumps({"taken": False, "text": json.dumps(owner), "holder": owner, "id": owner["run"]})
                )
            self.held.add(host)
            return Ran(text='{"taken": true}\n')
        self.counted[host] = self.counted.get(host, 0) + 1
        if host in self.dies and self.counted[host] >= self.dies[host]:
            return Ran(lost=gone(host))
        if '"action": "release"' in script:
            self.held.discard(host)
            self.ended.append(host)
            return Ran()
        if "rdma_users" in script or "/dev/infiniband/uverbs" in script:
            return Ran(text=self.users.get(host, "==\nlooked\n"))
        if '>"$d/server.log"' in script:
            said = self.servers.get(host, "")
            return Ran(text=said, status=1) if said else Ran(text="port 20123\n")
        if '>"$d/client.log"' in script:
            return self._asked(step)
        if "tail -c 2000" in script:
            last = self.said.get(host, "")
            return last if isinstance(last, Ran) else Ran(text=last)
        if "acceptance.json.new" in script:
            self.written[host] = script
        return Ran()

    def _asked(self, step: Step) -> Ran:
        for (client, address), text in self.pairs.items():
            if client == step.host and step.script.split("</dev/null")[0].rstrip().endswith(address):
                return Ran(text=text)
        for name, answer in self.answers.items():
            if f" {name} " in step.script or f"/{name} " in step.script:
                return answer(step) if callable(answer) else Ran(text=answer)
        return Ran(text=f"no answer for {step.script}", status=1)


def gone(host: str) -> UnreachableError:
    return Unreached(host, "the connection was lost while reading", "run it again")


def run(
    fleet: Fleet,
    count: int,
    block: Acceptance | None = None,
    *,
    options: Options | None = None,
    found: Mapping[str, Facts | UnreachableError] | None = None,
    capabilities: Mapping[str, object] | None = None,
) -> Outcome:
    """An acceptance of gpu1, gpu2, ...; `found` replaces what is read of some."""
    block = block or Acceptance(rdma=RdmaTests(tests=("write_bw",)))
    names = [f"gpu{number}" for number in range(1, count + 1)]
    read = {name: facts(number) for number, name in enumerate(names, start=1)} | dict(found or {})
    spec = {"acceptance": block, **(capabilities or {})}
    pairs = [(RawHost(name=name), HostSpec(name=name, capabilities=spec)) for name in names]  # type: ignore[arg-type]
    chosen = options or Options(yes=True, only=("rdma",))
    return accept(pairs, chosen, lambda _text: None, fleet, lambda _asked, **_given: read)
