"""What a rehearsal sees of an apply."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from gpuprov.apply import HostOutcome
from gpuprov.core.errors import GpuprovError
from gpuprov.rehearse import format_text
from gpuprov.rehearse.seen import SNAPSHOT, Snapshot, find_changes
from tests.here import program
from tests.rehearse.stage import Noting
from tests.rehearse.test_acts import rehearsed, verdicts
from tests.rows import run_each


@run_each("rpms", [True, False])
def test_a_snapshot_has_the_packages_of_each_package_manager(tmp_path: Path, rpms: bool) -> None:
    program(tmp_path, "dpkg-query", "echo installed sed 4.9-1; echo config-files old 1-1\n")
    if rpms:
        program(tmp_path, "rpm", '[ "$*" = "-qa --qf %{NAME} %{EVR}\\n" ] && echo kmod-nvidia 3:580.105.08-1.el9\n')
    for name in ("apt-mark", "find", "systemctl"):
        program(tmp_path, name, "exit 0\n")
    environment = {**os.environ, "PATH": str(tmp_path)}
    for name in ("sed", "sort", "awk"):
        (tmp_path / name).symlink_to(f"/usr/bin/{name}")
    done = subprocess.run(["/bin/sh", "-c", SNAPSHOT], capture_output=True, text=True, check=True, env=environment)
    driver = {"kmod-nvidia": "3:580.105.08-1.el9"} if rpms else {}
    assert Snapshot.of(done.stdout).parts["packages"] == {"sed": "4.9-1", **driver}


def test_what_useradd_keeps_of_old_files_is_no_change() -> None:
    before, after = (Snapshot.of(f"# files\n/etc/group {n}\n/etc/group- {n}\n/etc/shadow- {n}\n") for n in "12")
    seen = find_changes(before, after, None, HostOutcome(host="gpu01", state="changed"))
    assert seen.files == ("/etc/group: changed",)


def test_units_that_fail_before_the_driver_is_loaded_are_none_of_productions() -> None:
    text = "# enabled\n{}# active\n{}"
    before = Snapshot.of(text.format("", ""))
    after = Snapshot.of(text.format("a.service enabled\n", "a.service failed\nb.service active\n"))
    seen = find_changes(before, after, None, HostOutcome(host="gpu01", state="changed"))
    assert seen.services == ("a.service: enabled", "b.service: active")


class Mute(Noting):
    """It cannot be looked at."""

    def run(self, name: str, _script: str, /) -> str:
        raise GpuprovError(f"{name}: no answer")


@pytest.mark.install
def test_changes_that_could_not_be_listed_are_not_called_a_failed_apply() -> None:
    whole = rehearsed("gpu01", backend=Mute())
    assert verdicts(whole)["apply"] == "ok"
    assert "could not be listed before and after apply" in format_text(whole)
    assert "apply did not succeed" in format_text(rehearsed("failing"))
