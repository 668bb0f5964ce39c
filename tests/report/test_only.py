"""--only that asks nothing of any host is a usage error: there is no report about nothing, and nothing is green for
it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.commands import run_main

INVENTORY = (
    "all: {hosts: {gpu1: {ansible_connection: local}, gpu2: {}}, vars: {gpuprov: {nouveau: {}, persistence: {}}}}\n"
)


@pytest.mark.parametrize("command", ["verify", "plan", "apply"])
def test_only_that_asks_nothing_names_what_there_is(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "inventory.yaml"
    file.write_text(INVENTORY)
    assert run_main(monkeypatch, command, str(file), "--only", "rdma") == 2
    said = capsys.readouterr()
    assert "none of these hosts has rdma in its spec; they have: kernel, nouveau, persistence" in said.err
    assert not said.out
