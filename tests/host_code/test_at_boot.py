"""What the programs of units at boot share."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from gpuprov.host_code.at_boot import program


def test_a_slow_look_counts_as_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """A unit that waits longer than its time limit is killed before it says why."""
    clock, looks = [100.0], []
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(time, "sleep", lambda seconds: clock.__setitem__(0, clock[0] + seconds))

    def look() -> bool:
        looks.append(clock[0])
        clock[0] += 4
        return len(looks) == 5

    assert program.wait(10, look) == 0
    assert len(looks) == 3
    assert program.wait(30, look) == 25


def test_a_program_in_python_does_not_find_these_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    """mlnx_qos is one."""
    monkeypatch.setenv("PYTHONPATH", "/usr/local/lib/gpuprov")
    assert program.run("sh", "-c", "echo ${PYTHONPATH-none}; echo $LC_ALL >&2").stdout == "none\nC\n"
    assert program.run_for_complaint("gpuprov-no-such-program") == "gpuprov-no-such-program: No such file or directory"
    assert program.run_for_complaint("sh", "-c", "exit 3") == "sh ended with 3"


def test_a_reader_that_fails_is_no_empty_host() -> None:
    assert program.read("echo one; echo two >&2") == "one\n"
    with pytest.raises(program.Refused, match="the host cannot be read: awk: not found"):
        program.read("echo half; echo awk: not found >&2; exit 1")


def test_what_a_configuration_says(tmp_path: Path) -> None:
    file = tmp_path / "x.conf"
    file.write_text("# mtu of all\n\nmtu 8500\nother 1\n")
    assert program.read_rows(str(file), "mtu") == [["mtu", "8500"]]
    assert program.read_rows(str(file)) == [["mtu", "8500"], ["other", "1"]]
    with pytest.raises(program.Refused, match="cannot be read: No such file"):
        program.read_rows(str(tmp_path / "none"), "mtu")


def test_a_file_of_the_kernel_that_takes_nothing() -> None:
    assert program.write("/proc/version", "x") != ""
