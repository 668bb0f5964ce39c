"""`gpuprov check --format sarif|github`: what code review shows at the place of a problem."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpuprov.report.annotations import as_github, as_sarif
from gpuprov.spec.problem import Origin, Problem
from tests.commands import run_main
from tests.rows import run_each

PLACED = Problem(
    path=("mig", "mode"), message='mig.mode is "100%\r\nx"', fix="allowed: a, b", origin=Origin("a,b:c.yaml", 3, 7)
)
BARE = Problem(message="no host has a spec", hosts=("h1", "h2"), severity="warning")

REQUIRED: dict[str, tuple[str, ...]] = {
    "": ("version", "runs"),
    "runs": ("tool",),
    "tool": ("driver",),
    "driver": ("name",),
    "rules": ("id",),
    "results": ("message",),
}
"""What the schema requires of each object that we write:
https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"""
OPTIONAL = {
    "": {"$schema"},
    "runs": {"results", "columnKind"},
    "driver": {"version", "rules"},
    "results": {"ruleId", "ruleIndex", "level", "locations"},
    "message": {"text"},
    "locations": {"physicalLocation"},
    "physicalLocation": {"artifactLocation", "region"},
    "artifactLocation": {"uri"},
    "region": {"startLine", "startColumn"},
}
"""What else the schema allows there, and we write."""


def judge(value: Any, name: str = "") -> None:
    if isinstance(value, list):
        for item in value:
            judge(item, name)
    elif isinstance(value, dict):
        required = set(REQUIRED.get(name, ()))
        assert required <= set(value) <= required | OPTIONAL.get(name, set()), name
        for key, item in value.items():
            judge(item, key)


def test_sarif_has_what_its_schema_requires() -> None:
    document = json.loads(as_sarif([PLACED, BARE, PLACED]))
    judge(document)
    (run,) = document["runs"]
    assert document["version"] == "2.1.0"
    assert run["columnKind"] in {"utf16CodeUnits", "unicodeCodePoints"}
    placed, bare, _ = run["results"]
    assert [rule["id"] for rule in run["tool"]["driver"]["rules"]] == ["mig", "inventory"]
    assert (placed["ruleIndex"], bare["ruleIndex"], placed["level"], bare["level"]) == (0, 1, "error", "warning")
    place = placed["locations"][0]["physicalLocation"]
    assert place == {"artifactLocation": {"uri": "a%2Cb%3Ac.yaml"}, "region": {"startLine": 3, "startColumn": 7}}
    assert "locations" not in bare
    assert bare["message"]["text"] == "no host has a spec (h1 ...)"


def test_sarif_without_problems_is_a_run_all_the_same() -> None:
    document = json.loads(as_sarif([]))
    judge(document)
    assert document["runs"][0]["results"] == []


@run_each(("file", "uri"), [("/srv/x y.yaml", "file:///srv/x%20y.yaml"), ("in/v.yaml", "in/v.yaml")])
def test_sarif_names_files_as_uris_and_no_region_without_a_line(file: str, uri: str) -> None:
    document = json.loads(as_sarif([Problem(message="m", origin=Origin(file))]))
    place = document["runs"][0]["results"][0]["locations"][0]["physicalLocation"]
    assert place == {"artifactLocation": {"uri": uri}}


def test_commands_to_github_are_escaped_as_github_says() -> None:
    command = as_github(PLACED)
    assert "\n" not in command
    assert command.startswith("error file=a%2Cb%3Ac.yaml,line=3,col=7,title=gpuprov check%3A mig::mig.mode is ")
    assert "100%25" in command
    assert command.endswith("; allowed: a, b")
    assert as_github(BARE) == "warning title=gpuprov check%3A inventory::no host has a spec (h1 ...)"


Check = Callable[..., tuple[int, str, str]]


@pytest.fixture
def check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Check:
    """Returns what checks an inventory: its exit code, output and errors."""
    monkeypatch.chdir(tmp_path)

    def run(text: str, *words: str) -> tuple[int, str, str]:
        (tmp_path / "i.yaml").write_text(text)
        return run_main(monkeypatch, "check", "i.yaml", "--no-cache", *words), *capsys.readouterr()

    return run


def test_check_prints_each_format(check: Check) -> None:
    bad = "all: {hosts: {a: {}}, vars: {gpuprov: {mig: {mode: x}, mps: 5}}}\n"
    _, document, _ = check(bad, "--json")
    count = len(json.loads(document)["problems"])
    assert count > 1
    code, out, _ = check(bad, "--format", "github")
    assert (code, len(out.splitlines())) == (2, count)
    assert all(line.startswith("::error file=i.yaml,line=1,col=") for line in out.splitlines())
    code, out, _ = check(bad, "--format", "sarif")
    assert (code, len(json.loads(out)["runs"][0]["results"])) == (2, count)
    judge(json.loads(out))
    assert check(bad, "--format", "json")[1] == document
    assert check(bad, "--format", "sarif", "--json")[0] == 2


def test_a_hostile_inventory_gives_github_no_commands_of_its_own(check: Check) -> None:
    text = 'all: {hosts: {a: {}}, vars: {gpuprov: {"\\n::set-env name=x::y": 1, mig: {mode: "\\n::error::x"}}}}\n'
    code, out, _ = check(text, "--format", "github")
    assert code == 2
    assert [line for line in out.splitlines() if not line.startswith("::error file=i.yaml,")] == []


def test_a_good_inventory_has_its_warnings_as_annotations_alone(check: Check) -> None:
    good = "all: {hosts: {a: {}}, vars: {gpuprov: {gpu: {model: p5.48xlarge}, nvidia_driver: {}}}}\n"
    code, out, errors = check(good, "--format", "github")
    assert (code, errors) == (0, "")
    assert out.startswith("::warning file=i.yaml,line=1,col=")
