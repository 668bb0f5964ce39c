"""Is a host fit for work: the most severe action decides, one cause is told first, and what is not known is not
green."""

from __future__ import annotations

from typing import Any

import msgspec

from gpuprov.capabilities.health import watched
from gpuprov.facts.probes.base import Facts, Output
from gpuprov.report import prometheus
from gpuprov.report.health import METRICS, as_metrics, as_text, build_document
from gpuprov.spec.model import HostSpec
from gpuprov.verify.evaluate import Result, evaluate
from gpuprov.verify.fitness import fitness, health_code, of_health
from gpuprov.verify.verify import next_boot
from tests import documents
from tests.capabilities.asking import ask, good
from tests.capabilities.health_host import OFF_THE_BUS, log, smi, xid
from tests.rows import run_each


def row(check: str, status: str = "pass", action: str = "", **more: Any) -> Result:
    return Result(
        host=more.pop("host", "gpu1"), capability="health", check=f"health.{check}", status=status, action=action,  # type: ignore[arg-type]
        found=more.pop("found", "words"), **more,
    )  # fmt: skip


PASS = row("gpus")


@run_each(
    ("rows", "words", "code"),
    [
        ([PASS], "yes", 0),
        ([PASS, row("programs", action="restart")], "yes; a program is to be restarted", 0),
        ([PASS, row("programs", "fail", "restart")], "not until a program is restarted", 1),
        ([PASS, row("xid", "fail", "update")], "not until driver and firmware are updated", 1),
        ([PASS, row("xid", "fail", "reset")], "not until its GPUs are reset", 1),
        ([PASS, row("xid", "fail", "reset"), row("sxid", "fail", "reboot")], "not until it is restarted", 1),
        ([PASS, row("slowdown", "fail", "drain"), row("sxid", "fail", "reboot")], "no: drain it", 1),
        ([PASS, row("remapped_rows", "fail", "return")], "no: drain it, and return the card", 1),
        ([PASS, row("power", "fail")], "no: see what fails", 1),
        ([PASS, row("power", "fail"), row("programs", "fail", "restart")], "no: see what fails", 1),
        ([PASS, row("kernel_log", "skip", found="it begins late")], "not proven: it begins late", 1),
        ([PASS, row("ecc_errors", "error", found="cannot be read")], "not proven: cannot be read", 1),
        ([row("gpus", "n/a")], "not proven: nothing was judged", 1),
        ([row("x", "unreachable", found="no route")], "not proven: no route", 4),
    ],
)
def test_verdict(rows: list[Result], words: str, code: int) -> None:
    (one,) = fitness(rows)
    assert str(one) == words
    assert health_code(rows) == code


def test_the_most_severe_cause_stands_first_and_what_follows_is_folded() -> None:
    rows = [
        row("recovery", "error", follows="health.gpus"),
        row("programs", "fail", "restart"),
        row("power", "fail"),
        row("gpus", "fail", "reboot"),
        row("remapped_rows", "fail", "return"),
    ]
    (one,) = fitness(rows)
    assert [cause.check.partition(".")[2] for cause in one.causes] == ["remapped_rows", "gpus", "power", "programs"]
    assert one.followers == {"health.gpus": ("health.recovery",)}
    assert one.unproven == ()


def judged(**changed: str) -> list[Result]:
    texts = {**good(), **changed}
    facts = Facts({name: one if isinstance(one, Output) else Output(one) for name, one in texts.items()})
    return of_health(evaluate(watched(HostSpec(name="gpu1")), facts, only={"health"}))


def test_a_host_that_is_well() -> None:
    found = judged()
    assert [str(one) for one in fitness(found)] == ["yes"]
    assert as_text(found).splitlines()[0] == "gpu1: fit for work"


def test_a_lost_gpu_is_one_cause() -> None:
    """Many checks ask the GPUs; none of them is told beside what they follow from."""
    lost = "@present 1\n@smi\nUnable to determine the device handle for GPU0000:19:00.0: GPU is lost.\n"
    found = judged(gpu_health=lost, kernel_log=log(OFF_THE_BUS))
    (one,) = fitness(found)
    assert (one.fit, one.action) == ("until", "reboot")
    assert [cause.check for cause in one.causes] == ["health.xid", "health.gpus"]
    asked = {"ecc_mode", "ecc_errors", "remapped_rows", "retired_pages", "slowdown", "temperature", "power", "firmware"}
    assert {check.partition(".")[2] for check in one.followers["health.gpus"]} >= asked
    text = as_text(found)
    assert text.startswith("gpu1: not fit for work until it is restarted\n")
    assert "because   health.xid [reboot]: Xid 79" in text
    assert text.endswith("1 host: 1 fit after an action\n")


def test_the_same_as_json() -> None:
    document = documents.read_document(
        build_document(judged(gpu_health=smi(Remapping_Failure_Occurred="Yes"), kernel_log=log(xid(13))))
    )
    (host,) = document["hosts"]
    assert (host["fit"], host["action"], document["exit_code"]) == ("no", "return", 1)
    assert [cause["check"] for cause in host["causes"]] == ["health.remapped_rows"]
    assert [told["check"] for told in host["told"]] == ["health.programs"]
    assert "health.power" in host["passed"]


def test_what_a_host_says_cannot_move_the_cursor() -> None:
    assert "\x1b" not in as_text(judged(kernel_log=log(xid(79, "\x1b[2J off the bus"))))


def test_what_follows_from_another_capability_s_check_is_not_lost() -> None:
    """Without systemd much cannot be read, and the check that fails for that is the house's: nobody knows whether it is
    fit."""
    rows = [row("gpus"), row("kernel_log", "error", found="no journal", follows="host.systemd")]
    [told] = fitness(rows)
    assert (str(told), health_code(rows)) == ("not proven: no journal", 1)
    [told] = fitness([row("gpus"), row("slowdown", "fail", action="drain", follows="host.systemd")])
    assert str(told) == "no: drain it"


def test_the_next_boot_mends_what_a_reset_mends() -> None:
    """And nobody is told that it does not."""
    held = row("ecc_boot", moment="next-boot")
    assert next_boot([held, row("xid", "fail", "reset")])["gpu1"].verdict == "right"
    assert next_boot([held, row("remapped_rows", "fail", "return")])["gpu1"].verdict == "unknown"


def test_other_capabilities_say_nothing_of_health() -> None:
    other = Result(host="gpu1", capability="mig", check="mig.mode", status="fail")
    assert of_health([other, PASS]) == [PASS]


def test_the_same_as_metrics_of_their_own() -> None:
    """node_exporter refuses two files with one metric."""
    rows = [PASS, row("xid", "fail", "reset"), row("x", "skip", host="gpu2"), row("gpus", host='gpu"3')]
    text = as_metrics(rows, now=1.5)
    assert "gpuprov_health_timestamp_seconds 1.5\n" in text
    assert 'gpuprov_host_fit{host="gpu1"} 0\n' in text
    assert 'gpuprov_host_fit{host="gpu2"} -1\n' in text
    assert 'gpuprov_host_fit{host="gpu\\"3"} 1\n' in text
    assert 'gpuprov_host_action{host="gpu1",action="reset"} 1\n' in text
    assert 'gpuprov_health_check_failed{host="gpu1",check="health.xid",action="reset"} 1\n' in text
    assert not set(METRICS) & set(prometheus.METRICS)


def test_counters_are_metrics_whatever_the_check_says() -> None:
    found = ask("health.rdma_counters", None, port_errors="hw|mlx5_0|1|out_of_sequence|7\nhw|mlx5_0|1|rx_drops|0\n")
    text = as_metrics([msgspec.structs.replace(PASS, counters=found.counters)], now=1.5)
    sample = 'gpuprov_rdma_errors{{host="gpu1",device="mlx5_0",port="1",counter="{}"}} {}\n'
    assert sample.format("out_of_sequence", 7) in text
    assert sample.format("rx_drops", 0) in text
