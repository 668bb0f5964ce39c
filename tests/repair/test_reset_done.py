"""`gpuprov health --reset-done`: what is recorded, and where it is refused. The hosts are stand-ins."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gpuprov.capabilities.health.log import standing
from gpuprov.core.errors import GpuprovError
from gpuprov.facts.probes.base import Facts, Output
from gpuprov.facts.probes.kernel.kernel_log import KERNEL_LOG, parse
from gpuprov.repair.hosts import Answer, Judged
from gpuprov.repair.model import HostPlan
from gpuprov.repair.reset_done import record_resets, resolve_time
from gpuprov.verify.evaluate import Result
from tests.capabilities.health_host import GSP, NOW, log, xid
from tests.commands import run_main
from tests.repair.fake_hosts import FakeHost, FakeHosts, finding
from tests.rows import run_each

GPU, OTHER = "0000:19:00.0", "0000:3b:00.0"
CAME = NOW - 3600
"""When the Xid came: an hour ago."""


@dataclass
class Reached(FakeHosts):
    """Hosts with these results, and this log; `noted` is what was recorded."""

    results: tuple[Result, ...] = ()
    lines: str = ""
    noted: tuple[Any, ...] = ()

    def judge(self, names: Any) -> dict[str, Judged]:
        return {name: (list(self.results), Facts({KERNEL_LOG.name: Output(self.lines)})) for name in names}

    def act(self, action: str, plan: HostPlan, **more: Any) -> Answer:
        self.noted = (
            *self.noted,
            (action, plan.host, tuple(gpu.address for gpu in plan.scope.all), plan.checks, more["at"]),
        )
        return self.hosts[plan.host].answers.get(action, Answer())


def of_log(check: str = "health.xid", devices: tuple[str, ...] = (GPU,), action: str = "reset") -> Result:
    return Result(
        host="gpu1", capability="health", check=check, status="fail", found="Xid 119", action=action, devices=devices
    )


def reached(*results: Result, lines: str = "", **answers: Answer) -> Reached:
    host = FakeHost(answers=dict(answers))
    return Reached({"gpu1": host}, results=results or (of_log(),), lines=lines or log(GSP, at=CAME))


@run_each(("text", "at"), [("now", NOW), ("10m", NOW - 600), ("2025-11-23T12:00:00+00:00", 1_763_899_200)])
def test_a_reset_is_recorded_at_its_time_for_the_gpus_that_asked(text: str, at: int) -> None:
    hosts = reached()
    assert record_resets(["gpu1"], hosts, text)["gpu1"].at == at
    assert hosts.noted == (("mark", "gpu1", (GPU,), ("health.xid",), at),)


def test_what_is_recorded_ends_the_xid_and_a_later_one_stands() -> None:
    at = record_resets(["gpu1"], reached(), "10m")["gpu1"].at
    row = f'repair|{{"at": {at}, "run": "r1", "act": "reset", "gpus": ["{GPU}"]}}\n'
    assert standing(parse(Output(log(GSP, at=CAME)))) != []
    assert standing(parse(Output(log(GSP, at=CAME) + row))) == []
    assert standing(parse(Output(log(GSP, GSP, at=int(at) - 30) + row))) != []


@run_each("given", ["0000:3B:00", "3b:00.0", "00000000:3B:00.0"])
def test_only_the_gpu_that_was_named(given: str) -> None:
    hosts = reached(of_log(devices=(GPU, OTHER)), lines=log(GSP, xid(119, bus="0000:3b:00"), at=CAME))
    record_resets(["gpu1"], hosts, "now", [given])
    assert hosts.noted[0][2] == (OTHER,)


@run_each("result", [of_log("health.sxid"), of_log(devices=())], ids=["of the fabric", "of a GPU that nobody names"])
def test_all_gpus_where_the_fabric_asks_or_nobody_knows_which(result: Result) -> None:
    sxid = "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 28 LTSSM Fault Up"
    hosts = reached(result, lines=log(GSP, sxid, at=CAME))
    record_resets(["gpu1"], hosts, "now")
    assert hosts.noted[0][2] == ()


@run_each(
    ("hosts", "text", "gpus", "words"),
    [
        (reached(), "2h", (), "Xid 119 on 0000:19:00 came at 2025-11-23 11:13 UTC, after a reset at 2025-11-23 "
                              "10:13 UTC"),
        (reached(), "2036-01-01T00:00:00+00:00", (), "in the future"),
        (reached(), "boot", (), "needs no record"),
        (reached(), "yesterday", (), 'gpu1: --reset-done "yesterday"'),
        (reached(), "now", (OTHER,), f"asks for a reset of {OTHER}"),
        (reached(of_log(action="reboot")), "now", (), "no check of health asks for a reset"),
        (reached(finding("gpu1")), "now", (), "health.recovery does not go by the log: the host reports it still"),
        (reached(Result(host="gpu1", capability="", check="", status="unreachable", found="no route")), "now", (),
         "no route"),
        (reached(lines="now|x\n"), "now", (), "the kernel log cannot be read"),
        (reached(mark=Answer(problem="repair needs root on the host")), "now", (), "not recorded: repair needs root"),
        (reached(mark=Answer(locked={"id": "r9", "holder": {"user": "kim", "host": "ops1"}})), "now", (), "kim"),
    ],
    ids=["before the event", "future", "a boot", "no time", "another GPU", "asks for no reset", "still so",
         "not reached",
         "no log", "no root", "locked"],
)  # fmt: skip
def test_it_is_refused_where_it_cannot_work(hosts: Reached, text: str, gpus: tuple[str, ...], words: str) -> None:
    with pytest.raises(GpuprovError, match=words.replace("(", ".")):
        record_resets(["gpu1"], hosts, text, gpus)
    assert len(hosts.noted) == ("mark" in hosts.hosts["gpu1"].answers)


def test_all_hosts_or_none() -> None:
    hosts = reached()
    hosts.hosts["gpu2"] = FakeHost()
    wrong = {**hosts.judge(["gpu1"]), "gpu2": ([], Facts({KERNEL_LOG.name: Output(log(at=CAME))}))}
    hosts.judge = lambda names: wrong  # type: ignore[method-assign]
    with pytest.raises(GpuprovError, match="gpu2: no check of health asks for a reset"):
        record_resets(["gpu1", "gpu2"], hosts, "now")
    assert hosts.noted == ()


def test_a_span_goes_by_the_clock_of_the_host() -> None:
    assert resolve_time("1d", 1_000_000.0) == 913_600.0


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--reset-done", "now"], "--limit names none"),
        (["--limit", "gpu1", "--reset-done", "soon"], 'error: --reset-done "soon"'),
        (["--limit", "gpu1", "--reset-done", "2999-01-01"], "in the future"),
        (["--limit", "gpu1", "--reset-done", "now", "--from", "."], "a record cannot be changed"),
        (["--limit", "gpu1", "--reset-done", "now", "--reset-gpu", "x;rm"], "that is not a PCI address"),
        (["--limit", "gpu1", "--reset-gpu", "0000:19:00.0"], "--reset-done, which is not given"),
    ],
    ids=["no host named", "no time", "future", "a record", "no address", "a GPU without a reset"],
)
def test_the_command_refuses_before_a_host_is_read(
    tmp_path: Path, words: list[str], told: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    inventory = tmp_path / "inventory.yaml"
    inventory.write_text("all: {hosts: {gpu1: {ansible_host: 192.0.2.1, gpuprov: {health: {}}}}}\n")
    assert run_main(monkeypatch, "health", str(inventory), *words) == 2
    assert told in capsys.readouterr().err
