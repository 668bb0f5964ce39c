"""Logs of package managers as people published them, and the script that reads them on a host."""

from __future__ import annotations

import gzip
import lzma
import subprocess
from pathlib import Path

import pytest

from gpuprov.facts.probes.base import Facts, Output, ProbeFailed
from gpuprov.facts.probes.software.history import HISTORY, Event, parse_history
from tests.rows import run_each

APT = """@zone +0200
@apt
x:amd64 (1, 2), of a block that was cut off
End-Date: 2016-11-01  17:44:40

Start-Date: 2016-11-01  17:44:19
Commandline: /usr/sbin/synaptic --hide-main-window --non-interactive
Requested-By: user (1000)
Upgrade: libdns-export162:amd64 (1:9.10.3.dfsg.P4-8ubuntu1.1, 1:9.10.3.dfsg.P4-8ubuntu1.2), dnsutils:amd64 (1:9.10.3.dfsg.P4-8ubuntu1.1, 1:9.10.3.dfsg.P4-8ubuntu1.2)
End-Date: 2016-11-01  17:44:40

Start-Date: 2016-12-20  07:42:53
Commandline: /usr/bin/unattended-upgrade
Remove: libspeechd2:amd64 (0.8.3-1ubuntu3)
End-Date: 2016-12-20  07:43:03

Start-Date: 2021-06-04  06:41:09
Commandline: /usr/bin/unattended-upgrade
Upgrade: libnvidia-common-460:amd64 (460.73.01-0ubuntu0.20.04.1, 460.80-0ubuntu0.20.04.2)
End-Date: 2021-06-04  06:41:09

Start-Date: 2025-06-24  14:36:29
Commandline: apt-get install -qqy curl lsb-release
Install: lsb-release:amd64 (12.0-1), libssh2-1:amd64 (1.10.0-3+b1, automatic)
End-Date: 2025-06-24  14:37:04
"""  # noqa: E501
"""https://github.com/linuxmint/cinnamon/issues/5899, https://github.com/mvo5/unattended-upgrades/pull/40,
https://github.com/lyulyul/shine-cluster/issues/50, and a Debian 12 container."""
DNF = """@zone -0500
@dnf
2021-11-02T19:22:58-0500 DDEBUG Command: dnf makecache --timer
2024-01-29T10:29:23+0100 DDEBUG Command: dnf -y upgrade
2026-02-14T09:30:12+0000 SUBDEBUG Upgrade: openssl-libs-1:3.2.2-6.el9.x86_64
2026-02-14T09:30:14+0000 SUBDEBUG Upgraded: openssl-libs-1:3.0.7-27.el9.x86_64
2026-03-01T10:00:00+0000 SUBDEBUG Installed: kernel-core-5.14.0-503.el9.x86_64
2024-01-29T10:14:23+0100 SUBDEBUG Erase: flac-1.3.3-3.fc29.x86_64
2026-03-01T09:00:00+0000 DDEBUG Command: dnf makecache --timer
"""
"""Lines of https://github.com/rpm-software-management/ci-dnf-stack (flac), of RHEL's and CentOS' logs in public tests
and notes."""
ZYPPER = """@zone +0100
@zypper
2008-09-24 11:48:58|rremove|packman
2008-09-24 11:53:10|command|root@kompost|'zypper' 'install' 'amarok'|
2008-09-24 11:53:10|install|amarok-yauap|1.4.10-25|x86_64||factory|4421dfa718ab73c805c1c695c97b1b67f39bf2f3
2008-09-24 11:53:45|remove |amarok|1.4.10-100.pm.1|x86_64|root@kompost|
"""
"""https://opensuse.github.io/libzypp/group__g__ZyppHistory.html; the line with the command is of the format told there.
"""


def events(text: str) -> tuple[Event, ...]:
    return parse_history(Output(text)).events


def test_apt_tells_command_user_and_both_versions() -> None:
    upgraded, other, removed, nvidia, installed, automatic = events(APT)
    assert (upgraded.package, upgraded.action, upgraded.user) == ("libdns-export162", "upgraded", "user (1000)")
    assert (upgraded.before, upgraded.after) == ("1:9.10.3.dfsg.P4-8ubuntu1.1", "1:9.10.3.dfsg.P4-8ubuntu1.2")
    assert upgraded.at.isoformat() == "2016-11-01T17:44:19+02:00"
    assert other.package == "dnsutils"
    assert (removed.action, removed.before, removed.after, removed.user) == ("removed", "0.8.3-1ubuntu3", "", "")
    assert (nvidia.command, nvidia.before) == ("/usr/bin/unattended-upgrade", "460.73.01-0ubuntu0.20.04.1")
    assert (installed.package, installed.before, installed.after) == ("lsb-release", "", "12.0-1")
    assert (automatic.package, automatic.after) == ("libssh2-1", "1.10.0-3+b1")


def test_dnf_tells_the_command_that_changes_packages_and_joins_old_and_new() -> None:
    erased, upgraded, installed = events(DNF)
    assert (erased.package, erased.action, erased.before, erased.command) == ("flac", "removed", "1.3.3-3.fc29", "")
    assert (upgraded.package, upgraded.before, upgraded.after) == ("openssl-libs", "1:3.0.7-27.el9", "1:3.2.2-6.el9")
    assert upgraded.command == "dnf -y upgrade"
    assert (installed.package, installed.after) == ("kernel-core", "5.14.0-503.el9")
    assert installed.command == "dnf -y upgrade", "a makecache changes nothing"


AUTOMATIC = """@zone +0100
@dnf
2026-11-12T10:00:00+0100 INFO --- logging initialized ---
2026-11-12T10:00:00+0100 DDEBUG Command: dnf install -y htop 
2026-11-12T11:00:00+0100 INFO --- logging initialized ---
2026-11-12T11:00:00+0100 DDEBUG Command: dnf makecache --timer
2026-11-17T06:11:00+0100 INFO --- logging initialized ---
2026-11-17T06:11:01+0100 DEBUG Started dnf-automatic.
2026-11-18T07:00:00+0100 INFO --- logging initialized ---
2026-11-19T08:00:00+0100 INFO --- logging initialized ---
2026-11-19T08:00:01+0100 DDEBUG Command: dnf -y upgrade
2026-11-19T08:00:20+0100 INFO --- logging initialized ---
2026-11-19T08:00:20+0100 DDEBUG Command: dnf -c /etc/dnf/dnf.conf check-update
2026-11-12T10:00:09+0100 SUBDEBUG Installed: htop-3.2.1-1.el9.x86_64
2026-11-17T06:12:00+0100 SUBDEBUG Upgrade: nvidia-kernel-dkms-3:535.309.01-1.el9.x86_64
2026-11-17T06:13:00+0100 SUBDEBUG Upgraded: nvidia-kernel-dkms-3:535.261.03-1.el9.x86_64
2026-11-18T07:00:05+0100 SUBDEBUG Installed: dcgm-1:3.3.5-1.x86_64
2026-11-19T08:00:10+0100 SUBDEBUG Upgrade: less-590-5.el9.x86_64
2026-11-19T08:00:30+0100 SUBDEBUG Upgrade: file-5.39-16.el9.x86_64
"""  # noqa: W291
"""In the format of real logs. What dnf-automatic and Ansible log: dnf/automatic/main.py and dnf/logging.py of dnf 4."""


def test_what_no_command_of_dnf_did_is_blamed_on_none() -> None:
    assert [(one.package, one.command.strip()) for one in events(AUTOMATIC)] == [
        ("htop", "dnf install -y htop"),
        ("nvidia-kernel-dkms", "dnf-automatic"),
        ("dcgm", ""),
        ("less", "dnf -y upgrade"),
        ("file", "dnf -y upgrade"),
    ]


@run_each(
    ("command", "reads"),
    [
        ("dnf -q -c /etc/dnf/dnf.conf check-update", True),
        ("dnf updateinfo list", True),
        ("dnf needs-restarting -r", True),
        ("dnf history", True),
        ("dnf history undo 12", False),
        ("dnf module list nvidia-driver", True),
        ("dnf -y module install nvidia-driver:580-open", False),
        ("dnf clean all", True),
        ("dnf --setopt x=y repoquery", True),
        ("dnf --disablerepo=* list installed", True),
        ("dnf download x", True),
        ("dnf --version", True),
        ("dnf -y install info", False),
        ("yum --enablerepo list remove list-things", False),
    ],
)
def test_commands_of_dnf_that_change_no_package(command: str, reads: bool) -> None:
    log = DNF.replace("dnf makecache --timer", command).replace("2026-03-01T09:00", "2026-03-01T10:00")
    assert events(log)[-1].command == ("dnf -y upgrade" if reads else command)


def test_zypper_tells_the_command_above_its_packages() -> None:
    installed, removed = events(ZYPPER)
    assert (installed.package, installed.after, installed.user) == ("amarok-yauap", "1.4.10-25", "root@kompost")
    assert installed.command == "zypper install amarok"
    assert (removed.action, removed.before) == ("removed", "1.4.10-100.pm.1")


CLOCKS = """@zone +0100
@apt

Start-Date: 2026-10-20  10:55:00
Commandline: apt-get install a
Install: a:amd64 (1)
End-Date: 2026-10-20  10:58:00

Start-Date: 2026-11-20  10:55:00
Commandline: apt-get install b
Install: b:amd64 (1)
End-Date: 2026-11-20  10:58:00
"""


def test_a_time_has_the_offset_that_the_host_had_then() -> None:
    now = [one.at.isoformat()[-6:] for one in events(CLOCKS)]
    assert now == ["+01:00", "+01:00"], "older captures name no other"
    said = "@since +0200 2026-10-20 10:55:00\n@since +0100 2026-11-20 10:55:00\n"
    assert [one.at.isoformat()[-6:] for one in events(CLOCKS + said)] == ["+02:00", "+01:00"]
    with pytest.raises(ProbeFailed):
        Facts({"package_history": Output(CLOCKS + "@since CEST 2026\n")}).get(HISTORY)


DPKG = """@zone +0100
@apt

Start-Date: 2026-11-17  14:02:00
Commandline: apt-get install -y nvidia-kernel-dkms
Upgrade: nvidia-kernel-dkms:amd64 (535.261.03-1, 535.309.01-1)
Remove: nvidia-smi:amd64 (535.261.03-1)
End-Date: 2026-11-17  14:03:00
@dpkg
2026-11-17 14:02:05 startup archives unpack
2026-11-17 14:02:05 upgrade nvidia-kernel-dkms:amd64 535.261.03-1 535.309.01-1
2026-11-17 14:02:05 status half-configured nvidia-kernel-dkms:amd64 535.261.03-1
2026-11-17 14:02:06 remove nvidia-smi:amd64 535.261.03-1 <none>
2026-11-18 09:00:00 upgrade nvidia-kernel-dkms:amd64 535.309.01-1 550.54.15-1
2026-11-18 09:00:30 upgrade base-files:amd64 13.8+deb13u8 13.8+deb13u8
2026-11-18 09:01:00 install local:all <none> 1.0
2026-11-18 09:02:00 remove nvidia-persistenced:amd64 535.171.04-1 <none>
2026-11-18 09:02:01 purge nvidia-persistenced:amd64 535.171.04-1 <none>
"""
"""In the format of a Debian 12 container's dpkg.log."""


def test_what_dpkg_did_without_apt() -> None:
    by_apt, removed, *others = events(DPKG)
    assert {by_apt.command, removed.command} == {"apt-get install -y nvidia-kernel-dkms"}
    assert [(one.command, one.package, one.action, one.before, one.after) for one in others] == [
        ("dpkg", "nvidia-kernel-dkms", "upgraded", "535.309.01-1", "550.54.15-1"),
        ("dpkg", "base-files", "reinstalled", "13.8+deb13u8", "13.8+deb13u8"),
        ("dpkg", "local", "installed", "", "1.0"),
        ("dpkg", "nvidia-persistenced", "removed", "535.171.04-1", ""),
    ]


def test_a_host_without_logs_has_no_history_and_garbage_is_no_answer() -> None:
    assert parse_history(Output("@zone +0000\n")).logs == ()
    assert Facts({"package_history": Output("@zone +0000\n")}).get(HISTORY).events == ()
    with pytest.raises(ProbeFailed):
        Facts({"package_history": Output("@zone CEST\n")}).get(HISTORY)
    with pytest.raises(ProbeFailed):
        Facts({"package_history": Output("")}).get(HISTORY)


def of_script(folder: Path, zone: str = "UTC-2") -> str:
    script = HISTORY.script.replace("cd /var/log", f"cd '{folder}'")
    ran = subprocess.run(
        ["sh", "-c", script], check=False, capture_output=True, text=True, env={"TZ": zone, "PATH": "/usr/bin:/bin"}
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    return ran.stdout


def test_the_script_reads_this_log_and_the_one_before_it(tmp_path: Path) -> None:
    (tmp_path / "apt").mkdir()
    blocks = APT.split("@apt\n")[1].split("\n\n")
    (tmp_path / "apt/history.log.1.gz").write_bytes(gzip.compress("\n\n".join(blocks[:3]).encode() + b"\n\n"))
    (tmp_path / "apt/history.log").write_text("\n\n".join(blocks[3:]))
    (tmp_path / "zypp").mkdir()
    lines = ZYPPER.split("@zypper\n")[1].splitlines(True)
    (tmp_path / "zypp/history-20080924.xz").write_bytes(lzma.compress("".join(lines[:3]).encode()))
    (tmp_path / "zypp/history").write_text("# rpm said\n" + "".join(lines[3:]))
    (tmp_path / "dnf.log.1").write_text("".join(line for line in DNF.splitlines(True) if " Command: " in line))
    (tmp_path / "dnf.rpm.log").write_text(
        "2026-01-10T08:00:00+0000 INFO --- logging initialized ---\n"
        + "".join(line for line in DNF.splitlines(True) if " SUBDEBUG " in line)
    )
    read = parse_history(Output(of_script(tmp_path)))
    assert read.logs == ("apt", "dnf", "zypper")
    expected = [*events(APT), *events(DNF), *events(ZYPPER)]
    assert sorted(one.package for one in read.events) == sorted(one.package for one in expected)
    assert set(events(APT)) <= set(read.events), "also the zone"
    assert [one.command for one in read.events if one.package == "amarok-yauap"] == ["zypper install amarok"]


def test_the_script_tells_offsets_begins_and_what_dpkg_did(tmp_path: Path) -> None:
    (tmp_path / "apt").mkdir()
    (tmp_path / "apt/history.log").write_text(CLOCKS.split("@apt\n")[1])
    (tmp_path / "dpkg.log").write_text(DPKG.split("@dpkg\n")[1])
    begun, _, done = AUTOMATIC.split("@dnf\n")[1].partition("2026-11-12T10:00:09")
    (tmp_path / "dnf.log").write_text(begun)
    (tmp_path / "dnf.rpm.log").write_text("2026-11-12T10:00:09" + done)
    read = parse_history(Output(of_script(tmp_path, "CET-1CEST,M3.5.0,M10.5.0/3")))
    assert [one.at.isoformat() for one in read.events if one.package in "ab"] == [
        "2026-10-20T10:55:00+02:00",
        "2026-11-20T10:55:00+01:00",
    ]
    assert read.logs == ("apt", "dpkg", "dnf")
    assert {one.command for one in read.events if one.package == "local"} == {"dpkg"}
    assert set(events(AUTOMATIC)) <= set(read.events)


def test_the_script_reads_a_log_with_the_zeros_of_a_hard_reset(tmp_path: Path) -> None:
    for folder in ("apt", "zypp"):
        (tmp_path / folder).mkdir()
    zeros = b"\0" * 64
    (tmp_path / "apt/history.log").write_bytes(zeros + CLOCKS.split("@apt\n")[1].encode())
    (tmp_path / "dpkg.log").write_bytes(zeros + DPKG.split("@dpkg\n")[1].encode())
    (tmp_path / "zypp/history").write_bytes(zeros + ZYPPER.split("@zypper\n")[1].encode())
    begun, _, done = AUTOMATIC.split("@dnf\n")[1].partition("2026-11-12T10:00:09")
    (tmp_path / "dnf.log").write_bytes(zeros + begun.encode())
    (tmp_path / "dnf.rpm.log").write_bytes(zeros + b"2026-11-12T10:00:09" + done.encode() + b"\xff\n")
    read = parse_history(Output(of_script(tmp_path, "UTC-1")))
    assert {*events(CLOCKS), *events(AUTOMATIC), *events(ZYPPER)} <= set(read.events)
    assert "local" in {one.package for one in read.events}
