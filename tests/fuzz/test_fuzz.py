"""Nothing that a host prints, an inventory holds or a person types ends gpuprov otherwise than it says."""

from __future__ import annotations

import ast
import re
import time
from pathlib import Path

import pytest

import gpuprov
from tests.fuzz import corpus
from tests.fuzz.guided import chosen
from tests.fuzz.run import Report, chunks, generator, one, run
from tests.fuzz.targets import Target, functions, targets

CASES = 40_000
"""`make fuzz` runs a million."""
HOUSE = Path(str(gpuprov.__file__)).parent
OWN = {"probes", "simulate", "catalog", "safe_parse"}
"""Packages whose parsers are found by the targets, or read gpuprov's own data; `reading` is what others parse with."""
THROUGH = {
    "gpuprov.facts.captures.captured": "file.record",
    "gpuprov.inventory.extra": "whole.command",
    "gpuprov.host_code.pull.kept": "pull.bundle",
    "gpuprov.rules.engine_runtimes": "beside.engine_file",
}
"""Modules whose parsers a target reaches through another one."""


@pytest.mark.install
def test_no_parser_is_left_out() -> None:
    names = {target.name for target in targets()}
    assert len(names) == len(targets())
    assert {f"probe.{name}" for name in corpus.probes()} <= names
    for module in corpus.modules():
        short = module.__name__.rpartition(".")[2]
        assert short == "base" or {f"{short}.{name}" for name in functions(module)} <= names
    assert {"whole.host", "whole.spec", "whole.inventory", "whole.command", "reading.yaml"} <= names
    assert {"file.plan", "file.policy", "file.results", "host.checkpoint", "pull.bundle", "bundle.manifest"} <= names


@pytest.mark.install
def test_no_parser_of_another_room_is_left_out() -> None:
    """What is called `parse` and takes a text: the targets, or a parser of `gpuprov.facts.probes`, import its
    module."""
    used = {
        name
        for path in (*Path(__file__).parent.glob("*.py"), *(HOUSE / "facts" / "probes").rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and not node.level
        for name in (node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names))
    }
    for path in sorted(HOUSE.rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        if OWN & {*path.relative_to(HOUSE).parts} or "def parse" not in source:
            continue
        module = ".".join(path.relative_to(HOUSE.parent).with_suffix("").parts).removesuffix(".__init__")
        for node in ast.walk(ast.parse(source)):
            if not isinstance(node, ast.FunctionDef) or not re.match("parse(_|$)", node.name):
                continue
            if {one.arg for one in node.args.args} & {"text", "output", "data"}:
                assert module in used or module in THROUGH, f"{module}.{node.name}"


def test_every_probe_has_something_to_begin_with() -> None:
    for name in corpus.probes():
        assert any(len(seed) > 1 for seed in corpus.seeds(corpus.home()[name], name)), name


def test_a_case_is_the_same_each_time() -> None:
    for target in targets():
        assert repr(target.make(generator(target, 7))) == repr(target.make(generator(target, 7))), target.name


@pytest.mark.install
def test_every_target_takes_some_cases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sample of the run below, in this process."""
    monkeypatch.chdir(tmp_path)
    for target in targets():
        for number in range(3 if target.name.startswith("whole.") else 30):
            one(target, number)


@pytest.mark.install
def test_a_string_of_bytes_makes_a_case_of_any_target() -> None:
    """As atheris makes them: the same string makes the same case, and one that is used up ends no draw."""
    for number, target in enumerate(targets()):
        for data in (b"", b"\xff" * 9, bytes(range(256))):
            name = number.to_bytes(2, "little")
            (first, chance), (again, same) = chosen(targets(), name + data), chosen(targets(), name + data)
            assert first is again is target
            assert repr(first.make(chance)) == repr(again.make(same))


@pytest.mark.install
def test_what_is_not_allowed_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    import os
    import signal

    def judge(case: int) -> None:
        if case == 3:
            raise TypeError("three")
        if case == 5:
            os.kill(os.getpid(), signal.SIGSEGV)
        if case == 7:
            while True:
                pass
        if case == 9:
            bytearray(1 << 40)
        if case == 11:
            time.sleep(60)

    planted = Target("planted", lambda random: found[repr(random.getstate())], judge)
    found = {repr(generator(planted, number).getstate()): number for number in range(20)}
    monkeypatch.setattr("tests.fuzz.run.targets", lambda: (planted,))
    monkeypatch.setattr("tests.fuzz.run.SLOW", 0.1)
    monkeypatch.setattr("tests.fuzz.run.DEAD", 0.6)
    assert list(chunks(20)) == [(planted, 0, 20)]
    report = run(12)
    assert set(report.crashes) == {"planted:3", "planted:5", "planted:9"}
    assert report.crashes["planted:3"].startswith("TypeError: 'three' at ")
    assert report.crashes["planted:5"] == "ended by -11"
    assert report.crashes["planted:9"].startswith("MemoryError")
    assert set(report.hangs) == {"planted:7", "planted:11"}
    assert report.hangs["planted:11"] == "it waits, or takes no signal"


@pytest.mark.install
def test_many_cases() -> None:
    report = run(CASES)
    print(report)
    assert isinstance(report, Report)
    assert report.cases >= CASES * 0.99
    assert not report.crashes, report.crashes
    assert not report.hangs, report.hangs
