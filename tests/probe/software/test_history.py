"""Logs of package managers as people published them, and the script that reads them on a host."""

from __future__ import annotations

import gzip
import subprocess
from pathlib import Path

import pytest

from gpuprov.probe.base import Facts, Output, ProbeFailed
from gpuprov.probe.software.history import HISTORY, Event, parse_history

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
"""Lines of https://github.com/rpm-software-management/ci-dnf-stack (flac), of RHEL's and CentOS' logs in public tests and notes."""
ZYPPER = """@zone +0100
@zypper
2008-09-24 11:48:58|rremove|packman
2008-09-24 11:53:10|command|root@kompost|'zypper' 'install' 'amarok'|
2008-09-24 11:53:10|install|amarok-yauap|1.4.10-25|x86_64||factory|4421dfa718ab73c805c1c695c97b1b67f39bf2f3
2008-09-24 11:53:45|remove |amarok|1.4.10-100.pm.1|x86_64|root@kompost|
"""
"""https://opensuse.github.io/libzypp/group__g__ZyppHistory.html; the line with the command is of the format told there."""


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


def test_zypper_tells_the_command_above_its_packages() -> None:
    installed, removed = events(ZYPPER)
    assert (installed.package, installed.after, installed.user) == ("amarok-yauap", "1.4.10-25", "root@kompost")
    assert installed.command == "zypper install amarok"
    assert (removed.action, removed.before) == ("removed", "1.4.10-100.pm.1")


def test_a_host_without_logs_has_no_history_and_garbage_is_no_answer() -> None:
    assert parse_history(Output("@zone +0000\n")).logs == ()
    assert Facts({"package_history": Output("@zone +0000\n")}).get(HISTORY).events == ()
    with pytest.raises(ProbeFailed):
        Facts({"package_history": Output("@zone CEST\n")}).get(HISTORY)
    with pytest.raises(ProbeFailed):
        Facts({"package_history": Output("")}).get(HISTORY)


def test_the_script_reads_this_log_and_the_one_before_it(tmp_path: Path) -> None:
    (tmp_path / "apt").mkdir()
    blocks = APT.split("@apt\n")[1].split("\n\n")
    (tmp_path / "apt/history.log.1.gz").write_bytes(gzip.compress("\n\n".join(blocks[:3]).encode() + b"\n\n"))
    (tmp_path / "apt/history.log").write_text("\n\n".join(blocks[3:]))
    (tmp_path / "zypp").mkdir()
    (tmp_path / "zypp/history").write_text("# rpm said\n" + ZYPPER.split("@zypper\n")[1])
    (tmp_path / "dnf.log.1").write_text("".join(line for line in DNF.splitlines(True) if " Command: " in line))
    (tmp_path / "dnf.rpm.log").write_text(
        "2026-01-10T08:00:00+0000 INFO --- logging initialized ---\n"
        + "".join(line for line in DNF.splitlines(True) if " SUBDEBUG " in line)
    )
    script = HISTORY.script.replace("cd /var/log", f"cd '{tmp_path}'")
    ran = subprocess.run(
        ["sh", "-c", script], check=False, capture_output=True, text=True, env={"TZ": "UTC-2", "PATH": "/usr/bin:/bin"}
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    read = parse_history(Output(ran.stdout))
    assert read.logs == ("apt", "dnf", "zypper")
    expected = [*events(APT), *events(DNF), *events(ZYPPER)]
    assert sorted(one.package for one in read.events) == sorted(one.package for one in expected)
    assert set(events(APT)) <= set(read.events), "also the zone"
