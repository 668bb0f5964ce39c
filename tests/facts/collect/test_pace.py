"""An sshd that drops connections while many log in is reached by fewer at a time."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from gpuprov.core.errors import UnreachableError
from gpuprov.facts.collect import gather
from gpuprov.facts.collect.children import Child, Ended, Job, run_all
from gpuprov.facts.collect.reasons import Login, reason
from gpuprov.facts.collect.rounds import Pace
from gpuprov.facts.probes.base import Facts, Probe
from gpuprov.spec.model import RawHost
from tests.facts.collect.sshd import Sshd
from tests.rows import run_each

HELLO = Probe("hello", "echo hello", lambda output: output.text)
RESET = "kex_exchange_identification: read: Connection reset by peer\nConnection reset by 192.0.2.7 port 22\n"
CLOSED = "kex_exchange_identification: Connection closed by remote host\nConnection closed by 192.0.2.7 port 22\n"
BEHIND = (
    CLOSED + "kex_exchange_identification: Connection closed by remote host\nConnection closed by UNKNOWN port 65535\n"
)
OLD = "ssh_exchange_identification: Connection closed by remote host\n"
PARAMIKO = "Error reading SSH protocol banner[Errno 104] Connection reset by peer\n"

# What an ssh does that lets LIMIT log in at a time and drops the rest with OpenSSH's words (sshd_config(5),
# MaxStartups).
STAND_IN = """#!/bin/bash
mkdir -p PLACE; mine=PLACE/$$; : >$mine; trap 'rm -f $mine' EXIT
sleep 0.03; echo >>PLACE.tried
if [ "$(ls PLACE | wc -l)" -gt LIMIT ]; then
  sleep 0.1; echo 'kex_exchange_identification: read: Connection reset by peer' >&2
  echo 'Connection reset by 192.0.2.7 port 22' >&2; exit 255
fi
sleep 0.15; sh
"""


def hosts(folder: Path, count: int, limit: int) -> list[tuple[RawHost, tuple[Probe[str], ...]]]:
    ssh = folder / "ssh"
    ssh.write_text(STAND_IN.replace("PLACE", str(folder / "open")).replace("LIMIT", str(limit)))
    ssh.chmod(0o755)
    return [
        (RawHost(name=f"gpu{n:02d}", connection={"ansible_ssh_executable": str(ssh)}), (HELLO,)) for n in range(count)
    ]


@pytest.mark.install
def test_dropped_hosts_are_tried_again_by_fewer_and_it_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pace, ended = Pace(12), []
    found = gather(hosts(tmp_path, 12, 4), pace=pace, on_done=lambda name, _: ended.append(name))
    assert {name for name, one in found.items() if isinstance(one, UnreachableError)} == set()
    assert sorted(ended) == sorted(found), "each ends once"
    assert pace.forks == 3
    told = capsys.readouterr().err
    assert "of 12 hosts: sshd closed the connection before the login, while 12 were reached at a time" in told
    assert "tried again, 3 at a time (--forks 3 does so from the start" in told


@pytest.mark.install
def test_forks_keep_the_wall_away(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = gather(hosts(tmp_path, 8, 4), pace=Pace(4))
    assert all(isinstance(one, Facts) for one in found.values())
    assert capsys.readouterr().err == ""


@pytest.mark.install
def test_a_host_that_lets_nobody_in_is_told_after_one_alone_was_tried(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = gather(hosts(tmp_path, 5, 0), pace=Pace(5))
    assert capsys.readouterr().err.count("tried again, 1 at a time") == 1
    for one in found.values():
        assert isinstance(one, UnreachableError)
        assert "MaxStartups" in one.fix
        assert "fail2ban" in one.fix


@pytest.mark.install  # it takes seconds
@pytest.mark.parametrize(("count", "most"), [(50, 50 + 36), (100, 100 + 36)])
def test_a_jump_host_that_hangs_up_on_everybody_is_given_up_soon(tmp_path: Path, count: int, most: int) -> None:
    """Of hosts without an end no more are tried again than show that fewer at a time are no help. Each try may cost
    seconds."""
    ended: list[str] = []
    found = gather(hosts(tmp_path, count, 0), pace=Pace(32), on_done=lambda name, _: ended.append(name))
    assert sorted(ended) == sorted(found), "each ends once"
    assert all("MaxStartups" in getattr(one, "fix", "") for one in found.values())
    assert (tmp_path / "open.tried").read_text().count("\n") <= most


@pytest.mark.install  # it takes seconds
@pytest.mark.parametrize("dead_first", [True, False])
def test_hosts_behind_it_keep_no_other_from_being_tried_by_fewer(tmp_path: Path, dead_first: bool) -> None:
    dead, slow = tmp_path / "dead", tmp_path / "slow"
    for folder in (dead, slow):
        folder.mkdir()
    parts = [
        [(RawHost(name=f"dead{n}", connection=raw.connection), one) for n, (raw, one) in enumerate(hosts(dead, 40, 0))]
    ]
    parts.insert(1 if dead_first else 0, hosts(slow, 12, 4))
    found = gather([one for part in parts for one in part], pace=Pace(32))
    lost = {name for name, one in found.items() if isinstance(one, UnreachableError)}
    assert lost == {f"dead{n}" for n in range(40)}


@pytest.mark.install  # it takes seconds
def test_a_host_that_lets_nobody_in_does_not_slow_down_the_rest_of_the_run(tmp_path: Path) -> None:
    """One broken sshd of two thousand; apply's Ansible keeps to the pace, too."""
    good, bad = tmp_path / "good", tmp_path / "bad"
    for folder in (good, bad):
        folder.mkdir()
    [(raw, probes)] = hosts(bad, 1, 0)
    asked = [*hosts(good, 7, 7), (RawHost(name="broken", connection=raw.connection), probes)]
    for forks in (8, 0):
        pace = Pace(forks)
        found = gather(asked, pace=pace)
        assert [name for name, one in found.items() if isinstance(one, UnreachableError)] == ["broken"]
        assert pace.forks == forks


class Held(Pace):
    """Two others are at sshd's door, and leave once gpuprov goes slower."""

    def __init__(self, port: int) -> None:
        super().__init__(8)
        self.others: list[socket.socket] = []
        while len(self.others) < 2:  # the one who looked whether it listens may be there still
            other = socket.create_connection(("127.0.0.1", port))
            if other.recv(4) == b"SSH-":
                self.others.append(other)

    def slow_down(self, tried: int) -> None:
        for other in self.others:
            other.close()
        super().slow_down(tried)


def test_one_real_sshd_is_shared_by_many_hosts(sshd: Sshd, capsys: pytest.CaptureFixture[str]) -> None:
    sshd.restart(0, "MaxStartups 2:100:2\n")
    asked = [(RawHost(name=f"a{n}", connection=sshd.host(0).connection), (HELLO,)) for n in range(8)]
    found = gather(asked, pace=Held(sshd.ports[0]))
    sshd.restart(0, "")
    assert {name for name, one in found.items() if isinstance(one, UnreachableError)} == set()
    assert (
        "of 8 hosts: sshd closed the connection before the login, while 8 were reached at a time"
        in capsys.readouterr().err
    )


@run_each("said", [RESET, CLOSED, BEHIND, OLD, PARAMIKO])
def test_what_sshd_says_to_those_who_are_too_many(said: str) -> None:
    kind = "paramiko" if said == PARAMIKO else "ssh"
    assert reason(Login(kind=kind), b"", said.encode(), 255).dropped


@run_each(
    "said",
    [
        "nc: connect to 192.0.2.9 port 22 (tcp) failed: Connection refused\n" + CLOSED,
        "channel 0: open failed: connect failed: No route to host\nstdio forwarding failed\n" + CLOSED,
        "ssh: connect to host gpu7 port 22: Connection refused\n",
        "ops@gpu7: Permission denied (publickey).\n",
        "Connection closed by 192.0.2.7 port 22\n",
    ],
)
def test_what_else_ends_a_connection_is_not_tried_again(said: str) -> None:
    assert not reason(Login(), b"", said.encode(), 255).dropped


def test_a_machine_with_room_for_fewer_does_what_it_can_at_a_time() -> None:
    """`ulimit -n` and `-u`, a container's pids.max: that a program does not start says nothing of the host."""
    running, ended = 0, []

    def start() -> Child:
        nonlocal running
        if running == 3:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        running += 1
        return Child(["cat"])

    def done(how: Ended) -> None:
        nonlocal running
        running -= 1
        ended.append(how.out)

    run_all((Job(start, b"x", lambda _: False, 20, done) for _ in range(8)), 8)
    assert ended == [b"x"] * 8
    running = 3
    run_all([Job(start, b"x", lambda _: False, 20, lambda how: ended.append(how.error))], 8)
    assert b"Too many open files" in ended[-1], "where nothing runs that may end"


def test_a_job_is_made_when_there_is_a_place_for_it() -> None:
    """What ten thousand hosts are fed is not there at once."""
    told: list[str] = []

    def jobs() -> Iterator[Job]:
        for n in range(4):
            told.append(f"made {n}")
            yield Job(partial(Child, ["cat"]), b"x", lambda _: False, 20, partial(ended, n))

    def ended(n: int, how: Ended) -> None:
        assert how.out == b"x"
        told.append(f"ended {n}")

    run_all(jobs(), 1)
    assert told == [f"{what} {n}" for n in range(4) for what in ("made", "ended")]
    run_all([], 1)
