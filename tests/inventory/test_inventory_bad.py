"""Every inventory that cannot be used is refused with exactly these messages, and nothing reaches the terminal."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuprov.inventory import load, mend
from gpuprov.spec.problem import SpecError
from tests.inventory.bad import FORM, TEXT, Bad
from tests.inventory.bad_values import SOURCES, VALUES
from tests.inventory.files import lay

ROWS = [*FORM, *TEXT, *VALUES, *SOURCES]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_bad_inventory(
    row: Bad, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    lay(row.files)
    with pytest.raises(SpecError) as caught:
        load([row.source], **row.arguments)
    assert [str(problem) for problem in caught.value.problems] == row.messages
    assert capfd.readouterr() == ("", "")
    if not row.name.startswith("limit"):
        assert not list(tmp_path.glob("cache/**/*.msgpack"))


def test_undefined_names_all_hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    lay({"inventory.yaml": 'all:\n  vars: {gpuprov: {a: "{{ b }}"}}\n  hosts: {"gpu[1:3]": {}}\n'})
    with pytest.raises(SpecError) as caught:
        load(["inventory.yaml"])
    (problem,) = caught.value.problems
    assert problem.hosts == ("gpu1", "gpu2", "gpu3")
    assert problem.path == ("a",)


ERROR = "while scanning for the next token found character '\\t' that cannot start any token line {}, column 1"


@pytest.mark.parametrize(
    ("text", "line", "mended"),
    [
        ("all:\n\thosts:\n\t\ta:\n\t\t\tb: 1\n\tvars: {}\n", 2, "all:\n  hosts:\n    a:\n      b: 1\n  vars: {}\n"),
        ("all:\n  vars:\n    a: 1\n\tb: 2\n", 4, "all:\n  vars:\n    a: 1\n    b: 2\n"),
    ],
)
def test_lines_below_a_tab_are_read_too(text: str, line: int, mended: str) -> None:
    blanked = mend.blank_value(ERROR.format(line), text)
    assert blanked == mend.Blanked(mended, line, 1)


def test_neither_tabs_nor_quotes_hide_other_mistakes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    group = "all:\n{tab}hosts:\n{tab}{tab}a: {{gpuprov: {{}}}}\n{tab}vars: {{x: {quote}, gpuprov: 5}}\n"
    for tab, quote in (("\t", "1"), ("  ", "'1")):
        lay({"inventory.yaml": group.format(tab=tab, quote=quote)})
        with pytest.raises(SpecError) as caught:
            load(["inventory.yaml"])
        told = " ".join(map(str, caught.value.problems))
        assert ("a tab is not allowed" in told) == (tab == "\t")
        assert len(caught.value.problems) == (2 if tab == "\t" else 1), told
