"""Packages that dpkg left half-way: named, with a way out in which no question is answered blindly."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuprov.host_code.driver import aside
from gpuprov.host_code.packages import apt_database, half_configured
from gpuprov.host_code.packages.model import Refused
from tests.here import program

# dpkg --audit of Debian 12.15, after apt-get install nvidia-persistenced where /usr/bin/nvidia-installer was,
# 2026-11-28.
CLEANUP = """\
The following packages have been unpacked but not yet configured.
They must be configured using dpkg --configure or the configure
menu option in dselect for them to work:
 glx-alternative-mesa allows the selection of MESA as GLX provider
 update-glx           utility for switching the GLX implementation

The following packages are only half configured, probably due to problems
configuring them the first time.  The configuration should be retried using
dpkg --configure <package> or the configure menu option in dselect:
 nvidia-installer-cleanup cleanup after driver installation with the nvidia-ins
"""
PLAIN = """\
The following packages are only half configured, probably due to problems
configuring them the first time.  The configuration should be retried using
dpkg --configure <package> or the configure menu option in dselect:
 broken               cannot be configured
"""


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stand-ins of dpkg and apt-get, and the mark of an apply."""
    monkeypatch.setenv("STATE", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(apt_database, "MARKER", str(tmp_path / "applying.json"))
    monkeypatch.setattr(aside, "clear", lambda *_, **__: None)
    program(tmp_path, "apt-get", 'echo apt-get "$@" >> $STATE/ran; exit 0\n')
    return tmp_path


def audited(
    host: Path, audit: str, marked: bool = False, configured: str = "echo 'dpkg: error: its postinst' >&2; exit 1"
) -> None:
    (host / "audit").write_text(audit, encoding="utf-8")
    program(host, "dpkg", f'echo dpkg "$@" >> $STATE/ran; [ "$1" != --audit ] || exec cat $STATE/audit\n{configured}\n')
    if marked:
        (host / "applying.json").touch()


def test_names() -> None:
    assert half_configured.parse_audit(CLEANUP) == ["glx-alternative-mesa", "update-glx", "nvidia-installer-cleanup"]
    assert half_configured.parse_audit(PLAIN) == ["broken"]
    assert half_configured.parse_audit("") == half_configured.parse_audit("dpkg: error: parsing file near line 7") == []


@pytest.mark.parametrize("marked", [False, True])
@pytest.mark.parametrize("check", [False, True])
def test_the_question_of_debians_cleanup_is_never_answered_by_a_run(host: Path, marked: bool, check: bool) -> None:
    audited(host, CLEANUP, marked)
    with pytest.raises(Refused) as refused:
        apt_database.repair_database([], check=check)
    told = str(refused.value)
    assert "nothing was changed: dpkg left half-way: glx-alternative-mesa update-glx nvidia-installer-cleanup" in told
    assert "asks whether to uninstall the driver of NVIDIA's runfile, by default yes" in told
    assert "to keep the driver of the runfile: apt-get purge nvidia-installer-cleanup" in told
    assert "No dpkg --configure -a before" in told
    assert "cut off" not in told
    assert "--configure" not in (host / "ran").read_text()


def test_of_other_packages_the_scripts_are_to_be_read_first(host: Path) -> None:
    audited(host, PLAIN)
    with pytest.raises(Refused) as refused:
        apt_database.repair_database([], check=False)
    told = str(refused.value)
    assert (
        "and not by gpuprov; nothing was changed: dpkg left half-way: broken. Fix, on the host: read in "
        "/var/lib/dpkg/info" in told
    )
    assert "what the scripts of broken do and ask" in told
    assert told.index("do and ask") < told.index("dpkg --configure -a")


def test_what_an_apply_left_is_repaired_or_told_with_what_its_script_printed(host: Path) -> None:
    audited(host, PLAIN, marked=True)
    assert apt_database.repair_database([], check=True) == ["repair dpkg left half-way: broken"]
    with pytest.raises(
        Refused, match=r"since an apply of gpuprov that failed or was cut off, .*: broken: dpkg: error: its postinst"
    ):
        apt_database.repair_database([], check=False)
    audited(host, PLAIN, marked=True, configured="")
    assert apt_database.repair_database([], check=False) == ["repair dpkg left half-way: broken"]


def test_a_database_that_cannot_be_read(host: Path) -> None:
    audited(host, "")
    program(host, "apt-get", "echo 'E: Unmet dependencies. Try apt --fix-broken install' >&2; exit 100\n")
    with pytest.raises(Refused, match=r"nothing was changed: E: Unmet dependencies\..* what dpkg --audit names"):
        apt_database.repair_database([], check=False)
