"""`gpuprov fleet fold`: results of many machines as one report, whatever lies in their folders."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest
from click.testing import CliRunner
from msgspec.structs import replace

from gpuprov.capabilities.health.firmware import BASELINE
from gpuprov.cli import cli
from gpuprov.cli.reference import file_schema
from gpuprov.core.errors import GpuprovError
from gpuprov.facts.probes.host.hardware import Firmware
from gpuprov.jobs import fold as folding
from gpuprov.jobs import outcome
from gpuprov.jobs.model import HostResult
from gpuprov.jobs.results import LARGEST, Results, file_name
from gpuprov.jobs.shown import lines
from gpuprov.report import as_json, html, junit, prometheus, text
from gpuprov.verify.evaluate import Result
from gpuprov.verify.racks import compare_hosts
from gpuprov.verify.verify import exit_code, verdict
from tests import documents
from tests.jobs import stub
from tests.jobs.fleet import FAILURE, SKIPPED, TIME, result
from tests.jobs.test_model import fleet
from tests.rows import run_each
from tests.verify.test_racks import IMEX, OWN, PEER, tray

LATER = "2026-11-23T19:00:00.000Z"


def put(folder: Path, *found: HostResult) -> None:
    results = Results(folder)
    for one in found:
        results.write(one)
    results.close()


def row(host: str, check: str, status: str, found: str = "", **more: Any) -> Result:
    told = {"host": host, "capability": check.partition(".")[0], "check": check, "status": status, "found": found}
    return Result(**{**told, "fields": ("version",), "expected": "x", **more})


def rows_of(host: str, number: int) -> list[Result]:
    """A host of a fleet in which everything occurs."""
    passed = [row(host, "nouveau.running", "pass"), row(host, "kernel.sysctl", "pass", moment="next-boot")]
    kinds: list[list[Result]] = [
        passed,
        [*passed, row(host, "dcgm.health", "skip", "dcgmi is not there")],
        [row(host, "dcgm.health", "skip", "dcgmi is not there")],
        [*passed, row(host, "nvidia_driver.version", "fail", f"535.{number}", fix="apply", evidence="dpkg -l")],
        [*passed, row(host, "nvidia_driver.version", "fail", "535", reboot="the old one runs")],
        [
            *passed,
            row(host, "nvidia_driver.loaded", "fail", "none"),
            row(host, "persistence.mode", "fail", "off", follows="nvidia_driver.loaded"),
        ],
        [*passed, row(host, "kernel.next", "fail", "gone", moment="next-boot"), row(host, "rdma.ports", "error", "?")],
        [row(host, "host.reachable", "unreachable", "timed out", evidence=f"ssh {host}", fix="see")],
        [*passed, row(host, "topology.rails", "n/a")],
    ]
    return kinds[number % len(kinds)]


def boards_of(host: str, number: int) -> list[Result]:
    """A host with boards that are compared with other hosts': one of five is old, one of another kind is alone."""
    versions = {"adapter": "28.35" if number % 5 == 1 else "28.39", "nvswitch": "96.10"}
    kinds = ("adapter",) if number else ("adapter", "nvswitch")
    boards = tuple(Firmware(kind=kind, board="A", names=("A",), address="0", version=versions[kind]) for kind in kinds)
    own = row(
        host, BASELINE, ("n/a", "pass", "skip", "fail")[number // 5 % 4], "own", fields=("firmware",), firmware=boards
    )
    earlier = rows_of(host, number)
    return earlier if earlier[0].status == "unreachable" else [*earlier, own]


def folded(folder: Path, results: list[Result]) -> folding.Folded:
    told = outcome.Told(run="r1", job="j", fleet="f", act="verify", started=TIME)
    hosts: dict[str, list[Result]] = {}
    for one in results:
        hosts.setdefault(one.host, []).append(one)
    put(folder, *(outcome.of_verify(told, host, rows, 1.5) for host, rows in hosts.items()))
    return folding.fold([folder])


@pytest.mark.install
@pytest.mark.parametrize("kinds", [range(9), [0], [0, 8], [1], [2], [0, 2], [3, 4], [7], [5, 6, 1]])
def test_a_report_is_that_of_verify_of_the_same_results(tmp_path: Path, kinds: Any) -> None:
    numbers = [kind + 9 * again for kind in kinds for again in range(4)]
    results = [one for number in numbers for one in rows_of(f"gpu{number:03}", number)]
    results.sort(key=lambda one: one.host)
    is_that_of_verify(tmp_path, results, results)


@run_each("numbers", [range(60), range(0, 60, 5), range(1, 60, 5), [0, 1], [0]])
def test_what_depends_on_other_hosts_is_judged_when_all_are_there(tmp_path: Path, numbers: Any) -> None:
    results = [one for number in numbers for one in boards_of(f"gpu{number:03}", number)]
    is_that_of_verify(tmp_path, results, compare_hosts(results))


def is_that_of_verify(folder: Path, single: list[Result], results: list[Result]) -> None:
    """The report of results of single hosts is that of verify of all."""
    many = folded(folder, single)
    assert text.render(many.many) == text.render(results)
    took = dict.fromkeys((one.host for one in results), 1.5)
    assert prometheus.render(many.many, took, 1.0) == prometheus.render(results, took, 1.0)
    assert (many.many.verdict, many.tally.exit_code) == (verdict(results), exit_code(results))
    whole = documents.read_document(as_json.build_document(results, took))
    told = json.loads("\n".join(lines(many)))
    for key in ("verdict", "exit_code", "summary", "causes"):
        assert told[key] == whole[key]
    states = [one["state"] for one in told["hosts"]]
    wanted = [{**one, "act": "verify", "state": two} for one, two in zip(whole["hosts"], states, strict=True)]
    assert told["hosts"] == wanted
    assert told["results"] == [
        one
        for host in sorted(took)
        for kind in (("fail", "error", "unreachable"), ("skip",))
        for one in whole["results"]
        if one["host"] == host and one["status"] in kind
    ]
    jsonschema.validate(told, json.loads(file_schema("fold")))
    page, own = html.render(many.many), html.render(results)
    assert page.split("<main>")[0] == own.split("<main>")[0], "the headline"
    assert page.split("<main>")[1].split("</main>")[0] == own.split("<main>")[1].split("</main>")[0]


def test_junit_has_each_failure_and_what_passed_as_one(tmp_path: Path) -> None:
    results = [one for number in range(9) for one in rows_of(f"gpu{number}", number)]
    from xml.etree import ElementTree

    told = ElementTree.fromstring(junit.render(folded(tmp_path, results).many))
    whole = ElementTree.fromstring(junit.render(results))
    for name in ("failures", "errors", "skipped"):
        assert told.attrib[name] == whole.attrib[name]
    assert told.find(".//testcase[@name='2 checks passed']") is not None


def test_the_newest_result_of_a_host_counts_wherever_it_is(tmp_path: Path) -> None:
    new = result("a", ended=LATER, state="unreachable", verdict="differs", counts={"unreachable": 1})
    put(tmp_path / "one", result("a"), result("b"))
    put(tmp_path / "two" / "job-0001", new)
    for order in (["one", "two"], ["two", "one"]):
        found = folding.fold([tmp_path / name for name in order])
        assert found.many.hosts["a"].state == "unreachable"
        assert found.many.hosts["b"].state == "verified"
        assert found.tally.exit_code == 4
    assert folding.fold([tmp_path / "one", tmp_path / "two"], run="r1").many.hosts["a"].state == "unreachable"
    with pytest.raises(GpuprovError, match="there is no result"):
        folding.fold([tmp_path / "one"], run="r2")


def test_hosts_of_the_fleet_without_a_result_are_told(tmp_path: Path) -> None:
    whole = fleet()
    put(tmp_path, result("a", fleet=whole.digest), result("z", fleet=whole.digest))
    found = folding.fold([tmp_path], whole)
    assert {host: one.state for host, one in found.many.hosts.items()} == {"a": "verified", "b": "not-done"}
    assert found.tally.exit_code == 1
    assert "its host is not in the fleet" in found.unread_files[0]
    assert "not done: there is no result of it" in text.render(found.many)
    put(tmp_path, result("b", fleet="0" * 64))
    again = folding.fold([tmp_path], whole)
    assert again.many.hosts["b"].state == "not-done"
    assert "it is of another fleet" in text.render(again.many)


def hostile(folder: Path) -> dict[str, str]:
    """A folder in which everything lies that may lie in one, and why each file is not a result."""
    put(folder, result("good"))
    plain = json.loads((folder / "good.json").read_text())
    for name, change in (
        ("newer", {"gpuprov_result": 2, "state": "blessed"}),
        ("wrong", {"host": "good"}),
        ("clock", {"host": "clock", "ended": "9999"}),
        ("state", {"host": "state", "state": "fine"}),
        ("counts", {"host": "counts", "counts": {"pass": -1}}),
        ("huge", {"host": "huge", "counts": {"pass": 10**30}}),
    ):
        (folder / f"{name}.json").write_text(json.dumps(plain | change))
    (folder / file_name("../../up")).write_text(json.dumps(plain | {"host": "../../up"}))
    (folder / "half.json").write_text((folder / "good.json").read_text()[:100])
    (folder / "deep.json").write_text("[" * 200_000)
    (folder / "empty.json").touch()
    (folder / "bytes.json").write_bytes(os.urandom(5000))
    (folder / "giant.json").write_bytes(b" " * (LARGEST + 1))
    (folder / "link.json").symlink_to("/etc/passwd")
    (folder / "loop.json").symlink_to("loop.json")
    (folder / "loops").symlink_to(folder)
    os.mkfifo(folder / "pipe.json")
    (folder / "folder.json").mkdir()
    (folder / ".half.json.4711").write_text("{")
    (folder / "notes.txt").write_text("mine")
    return {
        "newer": "format 2",
        "wrong": "it says that it is of 'good'",
        "clock": "not a result",
        "state": "not a result",
        "counts": "not a result",
        "huge": "not a result",
        "%2E.%2F..%2Fup": "it says that it is of '../../up'",
        "half": "not a result",
        "deep": "too deep",
        "empty": "not a result",
        "bytes": "not a result",
        "giant": "4 MiB",
        "link": "a link, which is not followed",
        "loop": "a link, which is not followed",
        "pipe": "this is not a file",
    }


def test_what_is_no_result_is_told_and_never_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = hostile(tmp_path)
    monkeypatch.setattr(folding, "NAMED", 100)
    found = folding.fold([tmp_path])
    told = {Path(line.partition(": ")[0]).stem: line.partition(": ")[2] for line in found.unread_files}
    assert told.keys() == wrong.keys()
    for name, why in wrong.items():
        assert why in told[name], name
    assert found.unread == len(wrong)
    assert found.many.hosts["good"].state == "verified"
    assert {one.state for host, one in found.many.hosts.items() if host != "good"} == {"not-done"}
    assert found.tally.exit_code == 1, "what cannot be read is not green"
    assert "root:" not in text.render(found.many, verbose=True)


def test_hostile_texts_are_data_in_every_report(tmp_path: Path) -> None:
    evil = "\x1b[2J</script><script>alert(1)</script>\u202e{{ 7 * 7 }}"
    put(tmp_path, result("a", verdict="differs", counts={"fail": 1}, failures=(replace(FAILURE, found=evil),)))
    out = {name: tmp_path / name for name in ("junit", "html", "prometheus")}
    words = [word for name, path in out.items() for word in (f"--{name}", str(path))]
    told = CliRunner().invoke(cli, ["fleet", "fold", str(tmp_path), *words])
    assert "\x1b[2J" not in told.stdout
    for path in out.values():
        written = path.read_text()
        assert "\x1b" not in written
        assert "\u202e" not in written
        assert "<script>alert" not in written
    assert CliRunner().invoke(cli, ["fleet", "fold", str(tmp_path), "--json"]).stdout.count("\x1b") == 0


def test_the_command_says_what_it_left_out(tmp_path: Path) -> None:
    hostile(tmp_path)
    run = CliRunner()
    told = run.invoke(cli, ["fleet", "fold", str(tmp_path)], standalone_mode=False)
    assert told.return_value == 1
    assert "15 files left out:" in told.stdout
    assert "and 3 more" in told.stdout
    plain = run.invoke(cli, ["fleet", "fold", str(tmp_path), "--json"], standalone_mode=False)
    assert json.loads(plain.stdout)["unread"] == 15
    assert run.invoke(cli, ["fleet", "fold", str(tmp_path / "none")], standalone_mode=False).exit_code == 1
    with pytest.raises(GpuprovError, match="cannot be read"):
        run.invoke(cli, ["fleet", "fold", str(tmp_path / "none")], standalone_mode=False, catch_exceptions=False)


def test_what_was_worked_is_what_is_folded(tmp_path: Path) -> None:
    from tests.jobs.test_work import worked

    paths = stub.jobs(tmp_path, ["gpu1", "gpu2", "bad1"], size=2)
    worked(paths[0], tmp_path / "r")
    words = ["fleet", "fold", str(tmp_path / "r"), "--fleet", str(tmp_path / "fleet.json")]
    told = CliRunner().invoke(cli, words, standalone_mode=False)
    assert told.return_value == 1
    assert "not done" in told.stdout
    assert "verify: 1 not done, 2 verified" in told.stdout
    worked(paths[1], tmp_path / "r")
    told = CliRunner().invoke(cli, [*words, "--html", str(tmp_path / "page")], standalone_mode=False)
    assert told.return_value == 1
    assert "nouveau.running" in told.stdout
    assert "not done" not in told.stdout
    assert "1 of 3 hosts differs from its spec" in (tmp_path / "page").read_text()
    assert "<title>gpuprov fleet fold: " in (tmp_path / "page").read_text()


def test_a_host_that_was_only_prepared_proves_nothing(tmp_path: Path) -> None:
    """The results of a roll-out are such: a folder for each act."""
    prepared = {"act": "prepare", "state": "prepared", "verdict": "", "counts": {}}
    put(tmp_path / "0001-prepare", result("a", **prepared), result("b", **prepared))
    found = folding.fold([tmp_path])
    assert (found.many.verdict, found.tally.exit_code) == ("not proven", 0), "the exit code is that of the act"
    put(tmp_path / "0002-apply", result("a", act="apply", state="changed", ended=LATER))
    found = folding.fold([tmp_path])
    assert found.states == {"changed": 1, "prepared": 1}
    assert (found.many.verdict, found.tally.exit_code) == ("not proven", 1)


PROGRAM = """
import sys
from gpuprov.__main__ import main
sys.argv = ["gpuprov", "fleet", "fold", sys.argv[1], "--json"]
main()
"""


@pytest.mark.install
def test_memory_does_not_grow_with_hosts(tmp_path: Path) -> None:
    """What is kept of a host is a few hundred bytes: 6,000 more cost less than 12 MiB."""
    peaks = []
    for count in (500, 6500):
        folder = tmp_path / str(count)
        folder.mkdir()
        for number in range(count):
            one = result(f"gpu{number:05}", counts={"pass": 30, "skip": 1}, unproven=(SKIPPED,) * 20)
            (folder / file_name(one.host)).write_bytes(msgspec.json.encode(one))
        child = subprocess.Popen([sys.executable, "-c", PROGRAM, str(folder)], stdout=subprocess.PIPE)
        assert child.stdout
        told = json.loads(child.stdout.read())
        _, _, used = os.wait4(child.pid, 0)
        child.returncode = 0
        assert told["summary"]["hosts"] == count
        peaks.append(used.ru_maxrss)
    assert peaks[1] - peaks[0] < 12 << 10, peaks


def test_racks_are_seen_across_jobs(tmp_path: Path) -> None:
    """Each tray was verified by a job of its own, in a place of its own: together they say who began, and what is done
    once for all."""
    for number, one in enumerate(
        (tray("gpu1", OWN), tray("gpu2", OWN, at=20), tray("gpu3", PEER, IMEX, at=25), tray("gpu4", IMEX))
    ):
        told = outcome.Told(run="r1", job="j", fleet="f", act="verify", started=TIME)
        put(tmp_path / f"site{number}", outcome.of_verify(told, f"gpu{number + 1}", one))
    folded = folding.fold([tmp_path / f"site{number}" for number in range(4)])
    (rack,) = folded.many.racks
    assert (rack.first, rack.followers, rack.recover) == (("gpu1",), ("gpu2", "gpu3"), ("gpu3", "gpu4"))
    page = CliRunner().invoke(cli, ["fleet", "fold", str(tmp_path), "--html", str(tmp_path / "page.html")])
    assert "gpu1 reported a fatal NVLink error first, gpu2, gpu3 followed" in " ".join(page.output.split())
    assert "gpu1 reported a fatal NVLink error first" in (tmp_path / "page.html").read_text()
    document = json.loads("".join(lines(folded)))
    assert [entry["first"] for entry in document["racks"]] == [["gpu1"]]
    fixes = {one["host"]: one["fix"] for one in document["results"] if one["check"] == "health.xid"}
    assert fixes["gpu3"] == fixes["gpu4"] == f"recover the IMEX domain of rack {rack.rack}, once for all of it"
