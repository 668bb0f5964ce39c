"""What a killed run has left is removed by the next one, also where nothing is to be done on the host."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from gpuprov import apply as applying
from gpuprov.apply import execution
from gpuprov.core.errors import GpuprovError
from gpuprov.facts.probes.base import Facts, Output
from gpuprov.host_code import process
from gpuprov.plan.read import Pair, Reading
from gpuprov.render import digests
from tests.apply import fleet
from tests.rows import run_each

DEAD = {**process.describe("dead", "1"), "pid": 4_000_000}


@pytest.mark.install
@pytest.mark.parametrize(
    ("holder", "stays"),
    [
        (DEAD, False),
        ({**DEAD, "name": "same1-ib"}, False),  # its name in the inventory of that run
        ({**DEAD, "controller": "elsewhere"}, True),
        (process.describe("alive", "1"), True),
    ],
)
def test_the_lock_of_a_run_that_was_killed_after_its_receipt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, holder: dict[str, Any], stays: bool
) -> None:
    """Killed between act 5's receipt and its unlock: the next apply finds the host as wanted, and runs no Ansible
    there."""
    (tmp_path / "tmp" / "gpuprov-run-dead" / "control").mkdir(parents=True)
    (tmp_path / "tmp" / "gpuprov-run-dead" / "in-use").touch()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    with fleet.project(tmp_path) as state:
        (state / "same1").write_text("as wanted\n")
        request = json.dumps({"action": "take", "owner": holder})
        words = [sys.executable, "-IS", str(tmp_path / "lock.py")]
        subprocess.run(words, input=request, capture_output=True, text=True, check=True)
        lock = tmp_path / "run" / "lock"
        read = vars(execution)["read"]

        def with_lock(
            pairs: Sequence[Pair], *given: Any, each: Callable[[str, Reading], None], **more: Any
        ) -> dict[str, Reading]:
            text = (lock / "owner.json").read_text() if lock.exists() else ""
            found = read(pairs, *given, **more)
            applied = {"digest": str(digests(fleet.pair("same1")[1])["kernel"]), "applied_at": "2026-11-21T08:00:00Z"}
            receipt = json.dumps({"schema": 1, "capabilities": {"kernel": applied}})
            empty = {"receipt": Output(receipt), "apply_marker": Output(""), "reboot_reasons": Output("")}
            changed = {
                name: Reading(Facts({**empty, "lock": Output(text)}), reading.results)
                for name, reading in found.items()
            }
            for name, reading in changed.items():
                each(name, reading)
            return changed

        monkeypatch.setattr(execution, "read", with_lock)
        ended = applying.apply([fleet.pair("same1")], applying.Options(yes=True, log_dir=tmp_path / "log"))
    assert [one.state for one in ended.hosts] == ["unchanged"]
    assert not ended.log, "nothing was to be done"
    assert lock.exists() == stays
    assert not list((tmp_path / "tmp").iterdir()), "what the killed run kept here had its connections' passwords in it"


@run_each("command", ["kubernetes 'x", 'kubernetes --timeout="20m', "  kubernetes \\"])
def test_a_drain_command_that_cannot_be_read_is_refused_before_any_host_is(command: str) -> None:
    with pytest.raises(GpuprovError, match=r"--drain .* cannot be read: no "):
        applying.apply([], applying.Options(yes=True, drain=command))
    assert applying.apply([], applying.Options(yes=True, drain="/opt/drain 'x")).hosts == [], (
        "the host's shell reads it"
    )
