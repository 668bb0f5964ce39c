"""Every inventory that cannot be used is refused with exactly these messages, and nothing reaches the terminal."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuprov.inventory import load
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
