"""Results as numbers: metrics, the JSON document, times in JUnit."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from gpuprov.core.safe_parse import format_document
from gpuprov.report import as_json, junit, prometheus
from gpuprov.report.files import ReportFiles
from gpuprov.report.results import show
from gpuprov.verify.evaluate import Result, ResultStatus
from tests import documents
from tests.rows import run_each

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "monitoring.md"
ODD = 'a"b\\c\nd'


def one(host: str, check: str, status: ResultStatus, **more: Any) -> Result:
    return Result(host=host, capability=check.partition(".")[0], check=check, status=status, found="why", **more)


ROWS = [
    one("good", "host.root", "pass"),
    one("good", "nouveau.initramfs", "pass", moment="next-boot"),
    one("good", "mps.shm", "n/a"),
    one("bad", "host.root", "pass"),
    one("bad", "nvidia_driver.loaded", "fail", reboot="a loaded driver"),
    one("bad", "mig.mode", "fail", follows="nvidia_driver.loaded"),
    one("bad", "nouveau.initramfs", "fail", moment="next-boot"),
    one("gone", "host.reachable", "unreachable"),
    one("dark", "kernel.sysctl", "skip"),
    one(ODD, "host.root", "error"),
]
TOOK = {"good": 0.5, "bad": 1.25, "gone": 60.0}

_NAME, _TEXT = r"[a-zA-Z_:][a-zA-Z0-9_:]*", r'"(?:[^"\\\n]|\\["\\n])*"'
_SAMPLE = re.compile(rf"({_NAME})(?:\{{({_NAME}={_TEXT}(?:,{_NAME}={_TEXT})*)\}})? (\S+)\Z")


def parsed(text: str) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    """By the grammar of the text format 0.0.4: samples of a metric stand together, after its one HELP and one TYPE
    line."""
    assert text.endswith("\n")
    found: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
    state: list[str] = []
    for line in text[:-1].split("\n"):
        if line.startswith("# HELP "):
            name = line.split(" ", 3)[2]
            assert name not in found
            found[name], state = {}, [name]
        elif line.startswith("# TYPE "):
            assert line == f"# TYPE {state[0]} gauge"
            state.append("typed")
        else:
            match = _SAMPLE.match(line)
            assert match, line
            assert state == [match[1], "typed"]
            pairs = re.findall(rf"({_NAME})=({_TEXT})", match[2] or "")
            labels = tuple(
                (key, re.sub(r"\\(.)", lambda sign: {"n": "\n"}.get(sign[1], sign[1]), value[1:-1]))
                for key, value in pairs
            )
            assert labels not in found[match[1]], "twice the same sample"
            found[match[1]][labels] = float(match[3])
    return found


def test_metrics_by_the_grammar_of_the_format() -> None:
    found = parsed(prometheus.render(ROWS, TOOK, now=1750000000.25))
    assert list(found) == list(prometheus.METRICS)

    def hosts(name: str) -> dict[str, float]:
        return {dict(labels)["host"]: value for labels, value in found[name].items()}

    assert found["gpuprov_verify_timestamp_seconds"] == {(): 1750000000.25}
    assert hosts("gpuprov_host_ok") == {"good": 1, "bad": 0, "gone": 0, "dark": 0, ODD: 0}
    assert hosts("gpuprov_host_reachable") == {"good": 1, "bad": 1, "gone": 0, "dark": 1, ODD: 1}
    assert hosts("gpuprov_next_boot_ok") == {"good": 1, "bad": 0, "gone": -1, "dark": -1, ODD: -1}
    assert hosts("gpuprov_reboot_required") == {"good": 0, "bad": 1, "gone": 0, "dark": 0, ODD: 0}
    assert hosts("gpuprov_verify_duration_seconds") == TOOK
    checks = {
        dict(labels)["status"]: value
        for labels, value in found["gpuprov_checks"].items()
        if dict(labels)["host"] == "bad"
    }
    assert checks == {"unreachable": 0, "fail": 2, "error": 0, "skip": 0, "pass": 1, "follow": 1}
    failed = {(dict(labels)["host"], dict(labels)["check"]) for labels in found["gpuprov_check_failed"]}
    assert failed == {
        ("bad", "nvidia_driver.loaded"), ("bad", "nouveau.initramfs"), ("gone", "host.reachable"), (ODD, "host.root"),
    }  # fmt: skip


def test_metrics_of_nothing_say_nothing_good() -> None:
    assert set(parsed(prometheus.render([]))) == {"gpuprov_build_info", "gpuprov_verify_timestamp_seconds"}


def test_every_metric_is_documented() -> None:
    page = PAGE.read_text()
    assert [name for name in prometheus.METRICS if f"`{name}" not in page] == []


@run_each("verbose", [True, False])
def test_the_document_is_as_its_schema_says(verbose: bool) -> None:
    for rows in (ROWS, ROWS[:3], []):
        documents.read_document(as_json.build_document(rows, TOOK, 61.0, verbose=verbose))


def test_the_document_says_it_all() -> None:
    told = documents.read_document(as_json.build_document(ROWS, TOOK, 61.0))
    assert (told["verdict"], told["exit_code"], told["seconds"]) == ("differs", 4, 61.0)
    words = (
        "differs from the spec: 3 of 5 hosts, 1 unreachable; checks: 2 failed, 1 in error, 1 that follows, 1 "
        "skipped, 3 passed"
    )
    assert told["summary"] == {
        "sentence": words,
        "hosts": 5,
        "outcomes": {"unreachable": 1, "differs": 2, "not proven": 1, "ok": 1},
        "hosts_not_as_wanted": 3,
        "checks": {"unreachable": 1, "fail": 2, "error": 1, "skip": 1, "pass": 3},
        "follow": 1,
        "not_proven": 1,
    }
    assert told["causes"][1] == {
        "check": "nvidia_driver.loaded", "status": "fail", "found": "why", "hosts": ["bad"], "followers": ["mig.mode"],
    }  # fmt: skip
    assert {one["host"]: (one["verdict"], one["next_boot"]["verdict"], one["seconds"]) for one in told["hosts"]} == {
        "good": ("matches", "right", 0.5),
        "bad": ("differs", "wrong", 1.25),
        "gone": ("differs", "unknown", 60.0),
        "dark": ("not proven", "unknown", None),
        ODD: ("differs", "unknown", None),
    }
    assert len(told["results"]) == len(ROWS) - 1


def test_junit_has_times_that_add_up() -> None:
    root = ElementTree.fromstring(junit.render(ROWS[:7], {"good": 0.5, "bad": 1.2}))
    assert [suite.get("time") for suite in root] == ["0.500", "1.200"]
    assert root.get("time") == "1.700"
    assert [case.get("time") for case in root[1]] == ["0.300"] * 4


def test_the_file_of_metrics_is_replaced_as_a_whole(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """node_exporter may read at any time, and reads every file of the folder that is called *.prom."""
    file = tmp_path / "gpuprov.prom"
    file.write_text("old")
    before = file.stat().st_ino
    show(ROWS, files=ReportFiles(prometheus=file), took=TOOK)
    assert parsed(file.read_text())
    assert file.stat().st_ino != before
    assert [path.name for path in tmp_path.iterdir()] == ["gpuprov.prom"]
    assert "differs from the spec" in capsys.readouterr().out


@pytest.mark.parametrize("verbose", [False, True])
@pytest.mark.parametrize("at_once", [1, 2, 3])
def test_written_in_parts_it_is_the_same_text(monkeypatch: pytest.MonkeyPatch, at_once: int, verbose: bool) -> None:
    rows = [*ROWS, Result(host="odd", capability="mps", check="mps.shm", status="fail", found="a\u2028b\x85c\u2029d")]
    whole = format_document(as_json.build_document(rows, TOOK, 61.0, verbose=verbose))
    monkeypatch.setattr(as_json, "AT_ONCE", at_once)
    parts = [*as_json.parts(rows, TOOK, 61.0, verbose=verbose)]
    assert len(parts) > 2
    assert "\n".join(parts) == whole
