"""One set of results in four forms."""

from __future__ import annotations

import json
import os
import re
import time
from errno import ENOSPC
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest
from msgspec.structs import replace

from gpuprov.core.errors import GpuprovError
from gpuprov.core.safe_parse import format_document
from gpuprov.facts.collect.unreached import Unreached
from gpuprov.report import as_json, html, junit, text
from gpuprov.report.files import ReportFiles, check_writable, write_atomic
from gpuprov.report.fold import brief
from gpuprov.report.results import show
from gpuprov.verify import Result
from gpuprov.verify.evaluate import ResultStatus
from gpuprov.verify.verify import unreachable
from tests import documents
from tests.rows import run_each

NASTY = "<script>alert(1)</script> & \"quotes\" 'single' {{ 7 * 7 }} ]]> \x1b[31m\x00 é"


def results(hosts: int = 3) -> list[Result]:
    rows = []
    for number in range(1, hosts + 1):
        host = f"gpu{number:03d}"
        rows += [
            Result(host=host, capability="a", check="a.ok", fields=("x",), status="pass", expected="1", found="1"),
            Result(
                host=host,
                capability="a",
                check="a.bad",
                status="fail",
                expected="2",
                found="3",
                evidence="cat /very/long/" + "x" * 150,
                fix="paint it green",
            ),
            Result(host=host, capability="b", check="b.boot", status="skip", found="no boot", moment="next-boot"),
        ]
    nasty = Result(
        host="z<b>",
        capability=NASTY,
        check=NASTY,
        status="error",
        expected=NASTY,
        found=NASTY,
        evidence=NASTY,
        fix=NASTY,
    )
    gone = Result(host="down", capability="host", check="host.reachable", status="unreachable", found="refused")
    return [*rows, nasty, gone]


def test_json_has_exactly_the_keys_and_the_given_order() -> None:
    rows = documents.read_document(as_json.build_document(results()))["results"]
    keys = "host capability check fields status expected found evidence fix moment follows".split()
    assert all(list(row) == keys for row in rows)
    assert [(row["host"], row["check"]) for row in rows] == [(one.host, one.check) for one in results()]
    assert rows[0]["fields"] == ["x"]
    assert rows[-2]["found"] == NASTY
    told = documents.read_document(as_json.build_document([]))
    assert (told["results"], told["verdict"], told["exit_code"]) == ([], "not proven", 1)


def test_junit_reads_back() -> None:
    root = ElementTree.fromstring(junit.render(results()))
    assert root.tag == "testsuites"
    assert {name: root.get(name) for name in ("tests", "failures", "errors", "skipped")} == {
        "tests": "11",
        "failures": "3",
        "errors": "2",
        "skipped": "3",
    }
    suites = root.findall("testsuite")
    assert [suite.get("name") for suite in suites] == ["gpu001", "gpu002", "gpu003", "z<b>", "down"]
    assert [suite.get("tests") for suite in suites] == ["3", "3", "3", "1", "1"]
    case = suites[0].findall("testcase")[1]
    assert (case.get("classname"), case.get("name")) == ("gpu001.a", "a.bad")
    failure = case.find("failure")
    assert failure is not None
    assert failure.get("message") == "3"
    assert failure.text
    assert failure.text.startswith("expected: 2\nfound: 3\nsee: cat /very/long/")
    assert suites[0].find("testcase/skipped[@message='no boot']") is not None
    error = suites[3].find("testcase/error")
    assert error is not None
    assert error.text
    assert NASTY.replace("\x1b", "\\u001b").replace("\x00", "\\u0000") in error.text


class Page(HTMLParser):
    """Every tag with its attributes, every text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def test_html_escapes_everything_and_loads_nothing() -> None:
    page = html.render(results(), title=NASTY)
    assert "<script>alert" not in page
    assert "z<b>" not in page
    parsed = Page(page)
    scripts = [attributes for tag, attributes in parsed.tags if tag == "script"]
    assert scripts == [{"type": "application/json", "id": "data"}, {}]
    policy = next(str(attributes["content"]) for _, attributes in parsed.tags if "http-equiv" in attributes)
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in policy
    assert not [tag for tag, _ in parsed.tags if tag in ("link", "img", "iframe", "object", "base")]
    assert not [attributes for _, attributes in parsed.tags if {"src", "href", "onclick"} & set(attributes)]
    assert "http" not in page.replace('http-equiv="Content', "")
    assert "url(" not in page
    assert "@import" not in page


def test_html_says_it_all_once() -> None:
    page = html.render(results(200))
    words = " ".join(" ".join(Page(page.partition("<script")[0]).words).split())
    assert "gpu[001:200] (200 hosts) copy --limit" in words
    assert words.count("paint it green") == 1
    assert words.index("host.reachable") < words.index("a.bad") < words.index("b.boot")
    data = json.loads(page.partition('id="data">')[2].partition("</script>")[0])
    assert len(data["hosts"]) == 202
    assert len(data["sets"]) == 3, "equal outcomes once"


@pytest.mark.install
def test_html_of_five_thousand_hosts_is_small_and_quick() -> None:
    rows = results(5000)
    started = time.process_time()
    page = html.render(rows)
    assert len(page) < 4_000_000
    assert time.process_time() - started < 10


def test_text_tells_a_failure_once_with_all_its_hosts() -> None:
    shown = text.render(results(), width=80)
    assert "FAIL  a.bad  gpu[001:003] (3 hosts)\n  expected  2\n  found     3\n  see       cat /very/long/" in shown
    assert "x" * 150 in shown
    assert "skip  b.boot  no boot  [gpu[001:003]]" in shown
    assert "a.ok" not in shown
    assert "gpu[001:003] (3 hosts)  1 failed, 1 skipped, 1 passed" in shown
    last = "differs from the spec: 5 hosts, 1 unreachable; checks: 3 failed, 1 in error, 3 skipped, 3 passed\n"
    assert text.render(results(), width=80, room=0).endswith(last), "whole where it may be searched"
    assert shown.endswith(last.replace(" 3 skipped", "\n  3 skipped"))
    assert [
        line for line in shown.splitlines() if len(line) > 80 and "see  " not in line and "script" not in line
    ] == []
    assert shown.index("UNREACHABLE") < shown.index("FAIL") < shown.index("ERROR")


@run_each("colour", [False, True])
def test_long_lines_of_hosts_and_counts_end_at_a_comma(colour: bool) -> None:
    """A terminal would end them inside a word."""
    scattered = [f"gpu{number:03}" for number in range(1, 60, 2)]
    kinds: tuple[ResultStatus, ...] = ("fail", "error", "skip", "pass")
    checks = [(f"{kind}.number{n}", kind) for n in range(3) for kind in kinds]
    rows = [Result(host=host, capability="a", check=name, status=kind) for host in scattered for name, kind in checks]
    told = re.sub("\x1b\\[[0-9]*m", "", text.render(rows, colour=colour, width=80))
    assert max(map(len, told.splitlines())) <= 80
    assert all(line.endswith((",", ")", "]")) for line in told.splitlines() if "gpu0" in line)
    assert "90 in error" in " ".join(told.split())
    assert " ".join(told.split()) == " ".join(text.render(rows, width=80, room=0).split())


def test_an_outage_is_told_once() -> None:
    def gone(host: str) -> Result:
        error = Unreached(
            host, "refused", "try it by hand", place=f"{host}.example", command=f"ssh {host}.example true"
        )
        return unreachable(host, error)

    rows = [gone(f"gpu{number:02d}") for number in range(1, 31)]
    shown = text.render(rows, width=100)
    assert shown == (
        "UNREACHABLE  host.reachable  gpu[01:30] (30 hosts)\n  expected  the host answers\n  found     refused\n"
        "  see       ssh gpu01.example true  # gpu01\n  fix       try it by hand\n\n"
        "gpu[01:30] (30 hosts)  unreachable\n\ndiffers from the spec: 30 hosts, 30 unreachable\n"
    )
    assert "ssh gpu30.example true" in format_document(as_json.build_document(rows))
    assert "ssh gpu30.example true" in junit.render(rows)


def test_long_lists_of_hosts_are_cut_unless_all_is_asked_for() -> None:
    odd = [f"node-{letter}{other}-x" for letter in "abcdefghijklmn" for other in "abcdefghijklmn"]
    rows = [Result(host=host, capability="a", check="a.bad", status="fail", found="3") for host in odd]
    shown = text.render(rows)
    assert max(map(len, shown.splitlines())) < 200
    assert "node-ac-x, ... (196 hosts" not in shown
    assert ", ... (196 hosts; -v names all)" in shown
    assert odd[-1] in text.render(rows, verbose=True)
    assert brief([f"gpu{number}" for number in range(1, 200, 2)], room=20) == "gpu1, gpu3, gpu5, ..."
    assert brief(["a", "b"]) == "a, b"


def test_results_are_shown_even_if_a_report_cannot_be_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(GpuprovError, match=r"x/one cannot be written: .*; .*x/two cannot be written"):
        show(results(), files=ReportFiles(tmp_path / "x" / "one", tmp_path / "x" / "two"))
    assert "differs from the spec: 5 hosts" in capsys.readouterr().out


def test_whether_a_file_can_be_written_is_known_before(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "there")
    check_writable(tmp_path / "new", tmp_path / "link", None, "/dev/null")
    assert [path.name for path in tmp_path.iterdir()] == ["link"]
    for path in (tmp_path / "nowhere" / "x", "/proc/x"):
        with pytest.raises(GpuprovError, match="cannot be written"):
            check_writable(path)


def test_no_text_of_a_result_begins_a_line_of_its_own() -> None:
    forged = "x\ngpu2: as wanted"
    row = Result(
        host="gpu1", capability=forged, check=forged, status="fail", expected=forged, found=forged, fix=forged,
        evidence=forged,
    )  # fmt: skip
    assert not re.search(r"^gpu2", text.render([row], verbose=True), re.MULTILINE)


def test_text_in_detail_in_colour_and_of_nothing() -> None:
    assert "pass  a.ok  1" in text.render(results(), verbose=True)
    assert "\x1b[31mFAIL\x1b[0m" in text.render(results(), colour=True)
    good = [one for one in results(1) if one.status == "pass"]
    assert text.render(good).endswith("matches the spec: 1 host; checks: 1 passed\n")
    assert text.render([]) == "not proven: no host has anything to verify\n"


def test_a_host_cannot_drive_the_terminal() -> None:
    shown = text.render(results())
    assert "\x1b" not in shown
    assert "\x00" not in shown


def test_a_link_that_another_user_has_put_there_is_not_followed(tmp_path: Path) -> None:
    """As the last part of the way, before it, and behind a link that is our own."""
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "file").write_text("precious")
    (tmp_path / "link").symlink_to(victim / "file")
    (tmp_path / "folder").symlink_to(victim)
    (tmp_path / "mine").symlink_to("folder")
    for name in ("link", "folder"):
        os.lchown(tmp_path / name, 54321, 54321)
    for path in (
        tmp_path / "link",
        tmp_path / "folder" / "file",
        tmp_path / "folder" / "new",
        tmp_path / "mine" / "file",
    ):
        with pytest.raises(GpuprovError, match="is a link that another user has put there"):
            write_atomic(path, "mine")
        with pytest.raises(GpuprovError, match="is a link that another user has put there"):
            check_writable(path)
    assert [(path.name, path.read_text()) for path in victim.iterdir()] == [("file", "precious")]
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(GpuprovError, match="cannot be written"):
        write_atomic(tmp_path / "loop", "mine")


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "report.xml"
    write_atomic(target, "one")
    target.chmod(0o640)
    link = tmp_path / "link"
    link.symlink_to(target)
    write_atomic(link, "two")
    assert target.read_text() == "two"
    assert link.is_symlink()
    assert target.stat().st_mode & 0o777 == 0o640
    with pytest.raises(GpuprovError, match=r"nowhere/x cannot be written: No such file or directory"):
        write_atomic(tmp_path / "nowhere" / "x", "three")
    monkeypatch.setattr("os.fsync", lambda _: (_ for _ in ()).throw(OSError(ENOSPC, "No space left")))
    with pytest.raises(GpuprovError, match="No space left"):
        write_atomic(target, "four")
    assert target.read_text() == "two"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "report.xml"]


@run_each("width", [80, 120])
def test_no_name_is_broken_at_its_hyphens(width: int) -> None:
    packages = [f"libnvidia-{part}-pkcs11-openssl3" for part in ("cfg1", "compute", "decode", "encode", "extra", "gl")]
    told = f"not installed: {' '.join(packages)}"
    rows = [
        Result(host="gpu1", capability="a", check="a.bad", status="fail", expected="2", found=told, fix=told),
        Result(host="gpu1", capability="a", check="a.skip", status="skip", found=told),
    ]
    shown = text.render(rows, width=width)
    assert {word: shown.split().count(word) for word in packages} == dict.fromkeys(packages, 3)
    assert max(map(len, shown.splitlines())) <= width


def test_what_is_not_proven_has_its_way_out() -> None:
    """A host that is drained, for one: how it goes back stands where it is told."""
    out = Result(host="gpu1", capability="host", check="host.in_service", status="skip", found="drained")
    rows = [replace(out, fix="gpuprov undrain gpu1")]
    rows += [Result(host="gpu1", capability="a", check="a.ok", status="pass", found="1", fix="not shown")]
    shown = text.render(rows, verbose=True)
    assert "skip  host.in_service  drained  [gpu1]\n  fix       gpuprov undrain gpu1\n" in shown
    assert "not shown" not in shown


def test_checks_skipped_for_one_reason_are_one_line() -> None:
    """A short record leaves a hundred checks open; what passes stays in sight."""
    why = "not in this kernel log: "
    asked = [f"{owner}.{number}" for owner in ("rdma", "mig") for number in range(30)]
    results = [
        Result(host="gpu1", capability=name.partition(".")[0], check=name, status="skip", found=f"{why}{name}",
               moment="next-boot")
        for name in asked
    ]  # fmt: skip
    results.append(Result(host="gpu1", capability="a", check="a.b", status="skip", found="no boot"))
    shown = text.render(results, width=80)
    assert "skip  60 checks  not in this kernel log: rdma, mig; -v names them  [gpu1]\n" in shown
    assert "skip  a.b  no boot  [gpu1]\n" in shown
    assert "rdma.2: not in this kernel log: rdma.2; and 57 more, which -v names" in " ".join(shown.split())
    assert max(map(len, shown.splitlines())) <= 80
    whole = text.render(results, verbose=True)
    assert all(f"skip  {name}  {why}{name}" in whole for name in asked)
    assert text.render(results[:3]).count("skip  rdma.") == 3, "few have a line each"
