"""An upgrade that fails on its way, in one way after the other: the old driver stays whole, and the apply after the
last failure completes."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from gpuprov.simulate import container, faults, hosts
from tests.e2e.lab import Lab, spec_of
from tests.e2e.machine import Machine

pytestmark = pytest.mark.e2e
SLOW_COMPILER = '#!/bin/sh\ntest ! -e /run/slow || sleep 5\nexec "/usr/bin/${0##*/}" "$@"\n'
BROKEN_COMPILER = """#!/bin/sh
case "$PWD $*" in *nvidia*) echo "gcc: error: planted by a test" >&2; exit 1;; esac
exec "/usr/bin/${0##*/}" "$@"
"""


@pytest.fixture
def upgraded(lab: Lab, older: str, versions: tuple[str, str]) -> Machine:
    """The host with the older driver that the test before has left as it was; a new one where it did not."""
    machine = lab.machines.get("e2e-upgraded")
    if machine is not None:
        try:
            machine.has_driver(versions[1])
        except AssertionError:
            machine = None
    return machine or lab.simulated("upgraded", older)


@contextmanager
def compilers(machine: Machine, text: str) -> Iterator[None]:
    """Let this program stand before the compilers that module builds call."""
    machine.sh("cp -a /usr/local/bin /tmp/programs")
    for name in machine.sh("cd /usr/bin; ls gcc-[0-9]*").split():
        machine.write(f"/usr/local/bin/{name}", text, "0755")
    try:
        yield
    finally:
        machine.sh("rm -rf /usr/local/bin; mv /tmp/programs /usr/local/bin")


@pytest.mark.parametrize("how", ["4", pytest.param("4 corrupt", marks=pytest.mark.slow)], ids=["cut", "corrupt"])
def test_broken_mirror_in_the_middle_of_an_upgrade(
    lab: Lab, upgraded: Machine, versions: tuple[str, str], how: str
) -> None:
    """It ends a connection half-way, or hands out a package that is not what its index says."""
    folder, old = lab.inventory(spec_of(versions[0]), upgraded), lab.inventory(spec_of(versions[1]), upgraded)
    before = upgraded.state()
    faults.plant(upgraded.name, f"mirror-fails={how}", hosts.run)
    try:
        ran = lab.run("apply", folder, "--yes")
        assert int(upgraded.sh("wc -l < /run/gpuprov-sim/downloads.log")) >= 4, "the upgrade did not ask for packages"
    finally:
        faults.heal(upgraded.name, "mirror-fails", hosts.run)
    assert ran.code == 3, ran
    assert ".deb" in ran.text or "download" in ran.text.lower(), ran
    assert upgraded.state() == before
    upgraded.has_driver(versions[1])
    assert lab.run("verify", old).code == 0


def test_failed_module_build_leaves_the_old_driver(lab: Lab, upgraded: Machine, versions: tuple[str, str]) -> None:
    before = upgraded.packages()
    with compilers(upgraded, BROKEN_COMPILER):
        ran = lab.run("apply", lab.inventory(spec_of(versions[0]), upgraded), "--yes")
    assert ran.code == 3, ran
    assert "planted by a test" in ran.text or "build" in ran.text, ran
    assert upgraded.packages() == before
    upgraded.has_driver(versions[1])
    assert versions[0] not in upgraded.sh("dkms status; ls /usr/src /usr/share/nvidia-current-dkms 2>/dev/null || true")
    assert lab.run("verify", lab.inventory(spec_of(versions[1]), upgraded)).code == 0


def test_interrupted_while_modules_are_built(lab: Lab, upgraded: Machine, versions: tuple[str, str]) -> None:
    with compilers(upgraded, SLOW_COMPILER):
        upgraded.sh("touch /run/slow")
        running = lab.start("apply", lab.inventory(spec_of(versions[0]), upgraded), "--yes")
        upgraded.wait_for("pgrep -x make >/dev/null", 300)
        os.kill(running.child.pid, signal.SIGINT)
        upgraded.sh("rm /run/slow")
        ran = lab.finish(running)
    assert ran.code == 130, ran
    upgraded.has_driver(versions[1])
    assert lab.run("verify", lab.inventory(spec_of(versions[1]), upgraded)).code == 0


def test_killed_in_the_middle_of_dpkg(lab: Lab, upgraded: Machine, versions: tuple[str, str]) -> None:
    folder = lab.inventory(spec_of(versions[0]), upgraded)
    # dpkg waits after it has unpacked, so that the kill falls between unpacking and configuring.
    upgraded.write("/etc/dpkg/dpkg.cfg.d/wait", 'post-invoke="test ! -e /run/wait || sleep 600"\n')
    upgraded.sh("touch /run/wait")
    running = lab.start("apply", folder, "--yes")
    upgraded.wait_for(
        "dpkg-query -W -f '${db:Status-Abbrev}\n' | grep -q '^hU\\|^iU' && pgrep -fx 'sleep 600' >/dev/null", 600
    )
    running.kill()
    upgraded.sh(
        "pkill -KILL -x apt-get; pkill -KILL -x dpkg; pkill -KILL -fx 'sleep 600'; rm -f /run/wait "
        "/etc/dpkg/dpkg.cfg.d/wait"
    )
    killed = lab.finish(running)
    assert killed.code == -signal.SIGKILL, killed
    assert upgraded.sh("dpkg --audit") != "", "the kill left dpkg whole: the test proves nothing"
    assert upgraded.sh("ls /run/gpuprov/lock/owner.json /var/lib/gpuprov/applying.json").count("\n") == 2
    ran = lab.run("apply", folder, "--yes")
    assert ran.code == 0, ran
    upgraded.has_driver(versions[0])
    assert upgraded.sh("ls -A /run/gpuprov | grep -v guard || true").strip() == ""
    assert upgraded.sh("ls /var/lib/gpuprov").split() == [
        "checkpoints",
        "lock",
        "packages",
        "receipt.json",
        "written.json",
    ]
    assert lab.run("apply", folder, "--yes", "--json").json["hosts"][0]["state"] == "unchanged"


def test_two_applies_at_once(lab: Lab, newest: str, versions: tuple[str, str]) -> None:
    machine = lab.simulated("twice", newest)
    folder = lab.inventory(spec_of(versions[1]), machine)
    # dpkg waits, so that the first run holds the lock until the second one has had its answer, however fast either is.
    machine.write("/etc/dpkg/dpkg.cfg.d/wait", 'post-invoke="while test -e /run/wait; do sleep 1; done"\n')
    machine.sh("touch /run/wait")
    one = lab.start("apply", folder, "--yes")
    machine.wait_for("test -e /run/gpuprov/lock/owner.json", 120)
    other = lab.run("apply", folder, "--yes", "--full")
    machine.sh("rm /run/wait")
    won = lab.finish(one)
    assert other.code == 5, other
    assert "locked by" in other.text
    assert "since" in other.text
    assert won.code == 0, won
    machine.has_driver(versions[1])
    assert machine.sh("ls -A /run/gpuprov | grep -v guard || true").strip() == ""


def test_a_host_that_is_down_does_not_stop_the_others(lab: Lab, newest: str) -> None:
    down, up = lab.simulated("down", newest), lab.simulated("up", newest)
    folder = lab.inventory(spec_of("535"), down, up)
    up.sh("apt-mark unhold nvidia-smi >/dev/null")
    container.down(down.name)
    since = time.monotonic()
    ran = lab.run("apply", folder, "--yes")
    assert ran.code == 4, ran
    assert down.name in ran.text
    assert time.monotonic() - since < 120
    assert "nvidia-smi" in up.held()
    told = lab.run("verify", folder)
    assert told.code == 4, told
    assert "nvidia_driver" in told.text or "green" in told.text
