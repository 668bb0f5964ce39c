"""Time and interruptions on a real host: frozen, hung, killed. Each costs what it may cost, and the next apply
completes."""

from __future__ import annotations

import os
import re
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gpuprov.simulate.description import Description
from tests.e2e.kills import Trial, trials
from tests.e2e.lab import podman
from tests.e2e.machine import Machine

pytestmark = [pytest.mark.e2e, pytest.mark.slow]
NAME = "e2e-limits"
HOST = Description()
REBUILD = "kernel: Rebuild outdated initramfs images and boot entries"
HANGS = "#!/bin/sh\nsleep 613\n"
HUNG = "pgrep -fx 'sleep 613' >/dev/null"


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder whose name is short enough for ssh's sockets in it."""
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


@pytest.fixture
def trial(site: Machine, place: Path) -> Trial:
    site.sh("rm -rf /etc/modprobe.d/gpuprov.conf /var/lib/gpuprov")
    return Trial(site, place)


@contextmanager
def hung(machine: Machine) -> Iterator[None]:
    """update-initramfs, which act 2 calls, does not end."""
    machine.sh("mv /usr/sbin/update-initramfs /usr/sbin/update-initramfs.real")
    machine.write("/usr/sbin/update-initramfs", HANGS, "0755")
    try:
        yield
    finally:
        machine.sh("mv /usr/sbin/update-initramfs.real /usr/sbin/update-initramfs; pkill -fx 'sleep 613' || true")


def test_a_host_that_freezes_in_act_2_is_given_up(site: Machine, trial: Trial) -> None:
    """podman pause freezes sshd, while the kernel goes on to answer TCP."""
    with hung(site):
        child = trial.start()
        site.wait_for(HUNG, 300)
        podman("pause", f"gpuprov-sim-{site.name}")
        frozen = time.monotonic()
        try:
            told = child.communicate(timeout=300)[0]
        finally:
            podman("unpause", f"gpuprov-sim-{site.name}")
    assert child.returncode == 4, told
    assert time.monotonic() - frozen < 180, told
    assert f"{site.name}: unreachable: act 2, {REBUILD}: " in told
    assert "the next apply from this machine takes it over" in told
    trial.apply()
    assert site.sh("ls -A /run/gpuprov /var/lib/gpuprov").split() == [
        "/run/gpuprov:", ".lock.guard", "/var/lib/gpuprov:", "lock", "receipt.json",
    ]  # fmt: skip


def test_a_command_that_hangs_is_ended_and_named(site: Machine, trial: Trial) -> None:
    with hung(site):
        child = trial.start("--timeout", "20")
        told = child.communicate(timeout=400)[0]
        assert child.returncode == 3, told
        assert f"{REBUILD}: did not end: act 2 may take 20 s" in told
        assert re.search(r"still running there: sleep 613 \(pid \d+, of /bin/sh /usr/sbin/update-initramfs -u", told)
        assert site.sh("ls -A /run/gpuprov").split() == [".lock.guard"]
    trial.apply()


def test_an_interrupt_gives_the_lock_back_when_what_runs_has_ended(site: Machine, trial: Trial) -> None:
    with hung(site):
        child = trial.start()
        site.wait_for(HUNG, 300)
        os.kill(child.pid, signal.SIGTERM)
        asked = time.monotonic()
        told = child.communicate(timeout=300)[0]
        assert child.returncode == 130, told
        assert time.monotonic() - asked < 90, told
        assert "still running there: sleep 613" in told
        assert "the lock goes when it ends" in told
        site.sh("test -e /run/gpuprov/lock && pkill -fx 'sleep 613'")
        site.wait_for("! test -e /run/gpuprov/lock", 30)
    trial.apply()


def test_applies_that_are_killed_are_completed(site: Machine, place: Path) -> None:
    trials(site, place, 4, 20)
