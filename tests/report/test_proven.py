"""No green from silence: what was not proven is never shown as if it were, in any form of a report."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import pytest

from gpuprov.apply import as_text as run_as_text
from gpuprov.apply import build_document
from gpuprov.apply.model import ApplyRun, HostOutcome
from gpuprov.pytest_plugin import CheckItem
from gpuprov.report import as_json, html, junit, states, text
from gpuprov.verify.evaluate import Result, ResultStatus
from gpuprov.verify.verify import NextBoot, Verdict, exit_code, next_boot, verdict
from tests import documents
from tests.rows import run_each


def one(status: ResultStatus, check: str = "mps.alive", host: str = "gpu1", **more: Any) -> Result:
    capability = check.partition(".")[0]
    return Result(host=host, capability=capability, check=check, status=status, found=f"why {status}", **more)


HOUSE = one("pass", "host.reboot_pending")
NOTHING: list[list[Result]] = [
    [],
    [HOUSE],
    [one("n/a")],
    [one("skip")],
    [HOUSE, one("skip"), one("n/a", "mps.shm")],
    [one("pass"), one("skip", host="gpu2")],
]


@run_each("results", NOTHING, ids=range(len(NOTHING)))
def test_a_report_about_nothing_is_never_green(results: list[Result]) -> None:
    assert verdict(results) == "not proven"
    assert exit_code(results) == 1
    assert text.render(results).splitlines()[-1].startswith("not proven: ")
    page = html.render(results)
    assert "Nothing was proven." in page or "1 of 2 hosts is not proven" in page
    assert "Nothing is wrong" not in page
    root = ElementTree.fromstring(junit.render(results))
    assert root.get("errors") == "1"
    error = root.find("testsuite[@name='gpuprov']/testcase/error")
    assert error is not None
    assert "nothing was proven" in str(error.get("message"))


@run_each(
    ("results", "expected"),
    [
        ([one("pass")], "matches"),
        ([one("pass"), HOUSE, one("skip", "mps.pipe")], "matches"),
        ([one("pass", "host.gpu", fields=("gpu",))], "matches"),
        ([one("pass"), one("fail", "mps.pipe")], "differs"),
        ([one("unreachable")], "differs"),
        ([one("pass"), one("n/a", host="gpu2")], "matches"),
    ],
)
def test_verdict(results: list[Result], expected: Verdict) -> None:
    assert verdict(results) == expected


def test_what_is_not_proven_is_said_where_the_rest_is_green() -> None:
    results = [one("pass"), one("skip", "mps.pipe"), one("skip", "mps.limits")]
    assert exit_code(results) == 0
    assert (
        text.render(results).splitlines()[-1]
        == "matches the spec, but 2 checks are not proven: 1 host; checks: 2 skipped, 1 passed"
    )
    page = html.render(results)
    assert "but 2 checks are not proven" in page
    assert "Nothing is wrong" not in page
    assert "Nothing is wrong" in html.render(results[:1])
    assert text.render(results[:1]).splitlines()[-1] == "matches the spec: 1 host; checks: 1 passed"


def test_what_asks_nothing_is_not_counted_and_shown_on_request_only() -> None:
    results = [one("pass"), one("n/a", "mps.shm")]
    assert "mps.shm" not in text.render(results)
    assert "n/a  mps.shm  why n/a" in text.render(results, verbose=True)
    assert text.render(results, verbose=True).splitlines()[-1] == "matches the spec: 1 host; checks: 1 passed"
    assert [row["check"] for row in documents.read_document(as_json.build_document(results))["results"]] == [
        "mps.alive"
    ]
    assert [
        row["status"] for row in documents.read_document(as_json.build_document(results, verbose=True))["results"]
    ] == ["pass", "n/a"]
    assert "mps.shm" not in html.render(results)
    assert "mps.shm" in html.render(results, verbose=True)
    assert "mps.shm" not in junit.render(results)
    assert ElementTree.fromstring(junit.render(results)).get("tests") == "1"


def test_the_next_boot_is_not_right_because_nothing_is_asked_of_it() -> None:
    assert next_boot([one("n/a", "kernel.command_line", moment="next-boot")])["gpu1"].verdict == "unknown"


def apply_run(*results: Result) -> ApplyRun:
    return ApplyRun(run="r", hosts=[HostOutcome(host="gpu1", state="changed", changed=["t"], results=list(results))])


def test_apply_says_what_verify_did_not_prove() -> None:
    skipped = [one("skip", f"mps.{name}") for name in ("daemons", "limits", "servers")]
    told = run_as_text(apply_run(one("pass"), *skipped))
    assert "verify found nothing wrong, but 3 checks are not proven" in told
    assert "not proven: mps.daemons, mps.limits, mps.servers" in told
    assert "green" not in told
    assert "not proven mps.daemons: why skip" in run_as_text(apply_run(one("pass"), *skipped), verbose=True)
    assert "verify is green" in run_as_text(apply_run(one("pass"), one("n/a", "mps.shm")))
    assert apply_run(one("pass"), *skipped).exit_code == 0
    assert apply_run(*skipped).exit_code == 1
    plain = documents.read_document(build_document(apply_run(one("pass"), one("n/a", "mps.shm"))))
    assert [row["status"] for row in plain["hosts"][0]["results"]] == ["pass"]


def test_the_plugin_skips_what_asks_nothing_and_says_so() -> None:
    for status, words in (("n/a", "not applicable: why n/a"), ("skip", "why skip")):
        results = {"mps.alive": one(status)}  # type: ignore[arg-type]
        item = SimpleNamespace(
            name="mps.alive", _host="gpu1", _plugin=SimpleNamespace(results=lambda _host, r=results: r)
        )
        with pytest.raises(pytest.skip.Exception, match=words):
            CheckItem.runtest(item)  # type: ignore[arg-type]


def test_one_cause_is_one_finding_in_every_report() -> None:
    def failed(host: str, check: str, follows: str = "", status: ResultStatus = "fail") -> Result:
        capability = check.partition(".")[0]
        return Result(
            host=host, capability=capability, check=check, status=status, found=f"no {check}", follows=follows
        )

    rows = [failed("a", "kernel.sysctl")]
    for host in ("a", "b", "c"):
        rows += [failed(host, "nvidia_driver.loaded"), failed(host, "mig.mode", "nvidia_driver.loaded")]
        rows += [failed(host, "mig.cdi", "nvidia_driver.loaded", "error"), failed(host, "host.root", status="pass")]
    told = text.render(rows)
    assert "FAIL  nvidia_driver.loaded  a, b, c (3 hosts)\n  found     no nvidia_driver.loaded\n  and 2 " in told
    assert " that follow: mig.mode, mig.cdi\n" in told
    assert told.index("nvidia_driver.loaded") < told.index("kernel.sysctl"), "what more hosts have comes first"
    assert "FAIL  mig" not in told
    assert told.endswith("differs from the spec: 3 hosts; checks: 4 failed, 6 that follow, 3 passed\n")
    assert "mig.mode: no mig.mode" in text.render(rows, verbose=True)
    page = html.render(rows)
    assert "<summary>and 2 that follow</summary>" in page
    assert page.count("<td>no mig.mode</td>") == 1, "the causes stand in the page without a script"
    root = ElementTree.fromstring(junit.render(rows))
    assert (root.get("failures"), root.get("errors"), root.get("skipped")) == ("4", "0", "6")
    assert next(one.get("message") for one in root.iter("skipped")) == "follows from nvidia_driver.loaded: no mig.mode"
    alone = [failed("a", "nvidia_driver.loaded"), failed("a", "mig.mode", "nvidia_driver.loaded")]
    assert " and 1     that follows: mig.mode\n" in text.render(alone)
    assert text.render(alone).endswith("differs from the spec: 1 host; checks: 1 failed, 1 that follows\n")
    assert "<summary>and 1 that follows</summary>" in html.render(alone)
    assert next_boot(rows)["b"].reasons == ("nvidia_driver.loaded fails now and a reboot does not fix it",)
    assert verdict(rows) == "differs"


def test_a_number_of_hosts_has_its_verb() -> None:
    rows = [Result(host=host, capability="mig", check="mig.mode", status="pass") for host in ("a", "b")]
    rows.append(Result(host="c", capability="mig", check="mig.mode", status="fail"))
    told = states.headline(verdict(rows), {"a": "right", "b": "right", "c": "fail"}, [], 0)
    assert told.sentence == "1 of 3 hosts differs from its spec"
    rows.append(Result(host="d", capability="mig", check="mig.mode", status="fail"))
    told = states.headline(
        verdict(rows), {"a": "right", "b": "right", "c": "fail"}, [NextBoot("right"), NextBoot("wrong")], 0
    )
    assert told.more.startswith("1 failed; 2 match the spec. ")


def test_what_is_in_part_not_proven_has_no_colour_of_what_is_right() -> None:
    """Neither light nor dark, and with a mark of its own."""
    css = (Path(html.__file__).parent / "assets" / "page.css").read_text()
    colours = {name: re.findall(rf"--{name}: (#\w+);", css) for name in ("part", "unproven", "right")}
    assert len(colours["part"]) == 2
    assert colours["part"] == colours["unproven"]
    assert not {*colours["part"]} & {*colours["right"]}
    assert '.part > .mark::before { content: "~"; }' in css


def test_an_option_in_a_fix_is_one_piece_of_a_page() -> None:
    told = Result(host="a", capability="x", check="x.y", status="fail", found="f", fix="nvidia-smi --gpu-reset -i 0")
    assert '<span class="one">--gpu-reset</span>' in html.render([told])
