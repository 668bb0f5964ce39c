"""File systems: asked all at a time, so that servers that are away cost their time once."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from gpuprov.capabilities.health.fragment import Health
from gpuprov.facts.probes.base import Output
from gpuprov.facts.probes.host.hardware import FILES, Files
from gpuprov.spec.model import HostSpec
from tests.rows import run_each

AWAY = [f"/mnt/away{number}" for number in range(6)]
STAT = """#!/bin/sh
for path do :; done
case $path in /mnt/away*) exec sleep 60;; esac
exec /usr/bin/stat "$@"
"""
UNKILLABLE = """#!/bin/sh
for path do :; done
case $path in /mnt/away0) exec sleep 3;; esac
shift 3
exec "$@"
"""


def looked(folder: Path, *paths: str, **programs: str) -> tuple[Files, float]:
    """What the probe finds on a host with these programs, and how long it looked."""
    for name, text in programs.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    probe = FILES.of(HostSpec(name="gpu1", capabilities={"health": Health(mounts=paths)}))
    begun = time.monotonic()
    environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}
    script = probe.script.replace("KILL 5", "KILL 1").replace("sleep 7", "sleep 2")
    done = subprocess.run(["sh", "-c", script], env=environment, capture_output=True, text=True, check=True)
    return probe.parse(Output(done.stdout, 0, done.stderr)), time.monotonic() - begun


@pytest.mark.install
def test_six_servers_that_are_away_cost_the_time_of_one(tmp_path: Path) -> None:
    found, seconds = looked(tmp_path, "/", *AWAY, stat=STAT)
    assert {one.path: one.answers for one in found.systems} == {"/": True, **dict.fromkeys(AWAY, False)}
    assert found.handles
    assert seconds < 4


@pytest.mark.install
def test_one_that_cannot_be_killed_keeps_nothing_from_being_told(tmp_path: Path) -> None:
    found, seconds = looked(tmp_path, AWAY[0], "/", timeout=UNKILLABLE)
    told = {one.path: (one.mounted, one.answers) for one in found.systems}
    assert told.keys() == {AWAY[0], "/"}
    assert told[AWAY[0]] == ("", False)
    assert told["/"][1]
    assert 1.5 < seconds < 3


@run_each("paths", [(), ("/",), ("/", "/proc"), ("/", "/")])
def test_what_answers_is_not_waited_for(tmp_path: Path, paths: tuple[str, ...]) -> None:
    found, seconds = looked(tmp_path, *paths)
    assert [one.path for one in found.systems] == [*dict.fromkeys(paths)]
    assert all(one.answers and one.mounted for one in found.systems)
    assert (found.specified, seconds < 1.5) == (True, True)


def test_a_path_is_told_as_it_is(tmp_path: Path) -> None:
    """The echo of dash makes a new line of \\n."""
    odd = f"{tmp_path}/a\\nb|c d"
    Path(odd).mkdir()
    found, _ = looked(tmp_path, odd)
    assert [(one.path, one.answers) for one in found.systems] == [(odd, True)]
