"""A connection that is silent too long is given up: which options ssh gets for it, and a real sshd that is frozen."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from gpuprov.core.errors import UnreachableError
from gpuprov.facts.collect import command
from gpuprov.facts.collect.command import SILENCE, keep_alive, with_keep_alive
from gpuprov.facts.collect.script import compose
from gpuprov.facts.collect.transport import run
from gpuprov.facts.probes.base import Probe
from gpuprov.plan.interrupt import descendants
from gpuprov.spec.model import RawHost
from tests.facts.collect.sshd import SSHD, Sshd

OURS = "-o ServerAliveInterval=15 -o ServerAliveCountMax=6"


@pytest.fixture(autouse=True)
def _nobody_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("ARGS", "COMMON_ARGS", "EXTRA_ARGS"):
        monkeypatch.delenv(f"ANSIBLE_SSH_{name}", raising=False)
    (tmp_path / "ansible.cfg").write_text("")
    monkeypatch.setenv("ANSIBLE_CONFIG", str(tmp_path / "ansible.cfg"))


def given(**connection: object) -> dict[str, object]:
    return with_keep_alive(RawHost(name="gpu1", connection=connection)).connection


def test_a_dead_host_is_given_up_within_two_minutes() -> None:
    assert SILENCE <= 120


def test_the_options_go_where_the_site_says_nothing() -> None:
    common, extra, plain = "ansible_ssh_common_args", "ansible_ssh_extra_args", "ansible_ssh_args"
    assert given() == {common: OURS}
    assert given(**{common: "-J bastion"}) == {common: "-J bastion", extra: OURS}
    both = {common: "-J bastion", extra: "-C"}
    assert given(**both) == {**both, plain: f"-C -o ControlMaster=auto -o ControlPersist=60s {OURS}"}
    three = {**both, plain: "-o Compression=no"}
    assert given(**three) == {**three, common: f"-J bastion {OURS}"}


def test_what_the_site_says_of_it_stays() -> None:
    for name in ("ansible_ssh_common_args", "ansible_ssh_extra_args", "ansible_ssh_args"):
        said = {name: "-o serveraliveinterval=60"}
        assert given(**said) == said
    assert keep_alive(["-oServerAliveCountMax=9"]) == []


def test_the_users_own_ansible_configuration_is_lengthened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANSIBLE_SSH_COMMON_ARGS", "-F /etc/site.conf")
    assert given() == {"ansible_ssh_common_args": f"-F /etc/site.conf {OURS}"}


def test_text_that_looks_like_a_template_is_not_touched() -> None:
    said = dict.fromkeys(("ansible_ssh_common_args", "ansible_ssh_extra_args", "ansible_ssh_args"), "-o X={{ 1 + 1 }}")
    assert given(**said) == said


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Sshd]:
    running = Sshd(tmp_path, 1)
    yield running
    for pid in sessions(running):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
    running.stop()


def sessions(server: Sshd) -> list[int]:
    """The processes of its connections, and what they run."""
    return [pid for child in server._children for pid in descendants(child.pid)]


def freeze(server: Sshd) -> None:
    for pid in sessions(server):
        os.kill(pid, signal.SIGSTOP)


@pytest.mark.install
@pytest.mark.skipif(not SSHD, reason="no sshd on this machine")
@pytest.mark.parametrize("kind", ["ssh", "paramiko"])
def test_a_frozen_sshd_is_given_up(server: Sshd, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: str) -> None:
    """The kernel goes on to answer TCP for it: only ssh's own question notices."""
    more: dict[str, object] = {}
    if kind == "paramiko":
        more = {"ansible_connection": "paramiko", "ansible_ssh_common_args": "", "ansible_user": "root"}
        monkeypatch.setenv("ANSIBLE_HOST_KEY_CHECKING", "False")
        monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(command, "INTERVAL", 1)
    monkeypatch.setattr(command, "COUNT", 2)
    threading.Timer(2, freeze, [server]).start()
    started = time.monotonic()
    with pytest.raises(UnreachableError, match="it stopped answering while it was read"):
        run(server.host(0, **more), compose((Probe("long", "sleep 60", str),)), timeout=40)
    assert time.monotonic() - started < 20
