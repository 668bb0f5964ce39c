"""Runs that lose a host: killed and gone on with from another machine, or stopped until another run has taken the host
over.

Each controller is a machine of its own: another host name (a UTS namespace), another home.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from gpuprov.fleet.specs import load_fleet
from gpuprov.host_code.locked import BOOTED
from gpuprov.jobs import cut, frozen
from gpuprov.simulate import container, hosts, inventory
from gpuprov.simulate.description import Description
from tests.e2e.kills import send
from tests.e2e.lab import GPUPROV, descendants
from tests.e2e.machine import Machine

pytestmark = pytest.mark.e2e
NAME = "e2e-lease"
LEASE = 6
SPEC = "all: {vars: {gpuprov: {nouveau: {}}}}\n"
# mkinitramfs waits in it, so that a run can be cut off in a module that goes on by itself.
HOOK = (
    '#!/bin/sh\n[ "$1" = prereqs ] && exit 0\n: >/run/waiting\nwhile [ -e /run/wait ]; do sleep 0.1; done\nrm -f '
    "/run/waiting\n"
)
# What the first call of ssh, which reads the host, has printed comes when the run wakes up.
GATE = """#!/bin/sh
[ -e {place}/waiting ] && exec ssh "$@"
ssh "$@" >{place}/out 2>{place}/err
status=$?
: >{place}/waiting
while [ -e {place}/asleep ]; do sleep 0.1; done
cat {place}/out
cat {place}/err >&2
exit $status
"""
UNDO = "rm -rf /etc/modprobe.d/gpuprov.conf /var/lib/gpuprov /run/gpuprov /run/waiting; touch /run/wait"
STATE = "find /etc /var/lib/gpuprov -type f -not -path '*/mtab' -printf '%p %T@\\n' | sort; cut -d' ' -f22 /proc/1/stat"
BUT_LOCK = STATE.replace("-type f", "-type f -not -path '/var/lib/gpuprov/lock/*'")


@pytest.fixture(scope="module")
def machine() -> Iterator[Machine]:
    container.down(NAME)
    try:
        machine = Machine(hosts.up(NAME, Description()))
        machine.write("/etc/initramfs-tools/hooks/wait", HOOK, "0755")
        yield machine
    finally:
        container.down(NAME)


class Site:
    """The host's inventory, and machines that apply it."""

    def __init__(self, machine: Machine, place: Path) -> None:
        self.machine, self.place = machine, place
        (place / "hosts").mkdir()
        inventory.write([machine.host], place / "hosts" / "hosts.yaml")
        (place / "hosts" / "spec.yaml").write_text(SPEC, encoding="utf-8")
        machine.sh(UNDO)

    def start(self, controller: str, *more: str) -> subprocess.Popen[str]:
        home = self.place / controller
        home.mkdir(exist_ok=True)
        folders = {name: str(home) for name in ("HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME")}
        words = [GPUPROV, "apply", str(self.place / "hosts"), "--yes", "--json", "--lease", str(LEASE), *more]
        return subprocess.Popen(
            ["unshare", "--uts", "sh", "-c", 'hostname "$0"; exec "$@"', controller, *map(str, words)],
            env={**os.environ, **folders}, text=True, cwd=home, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def apply(self, controller: str, *more: str) -> tuple[int, dict[str, Any], str]:
        return self.told(self.start(controller, *more))

    def told(self, child: subprocess.Popen[str]) -> tuple[int, dict[str, Any], str]:
        out, error = child.communicate(timeout=300)
        assert out, error
        return child.returncode, json.loads(out), error

    def job(self, name: str, nouveau: dict[str, Any], read: datetime) -> Path:
        """A job that asks for this, of an inventory that was read then."""
        folder = self.place / name
        folder.mkdir()
        inventory.write([self.machine.host], folder / "hosts.yaml")
        (folder / "spec.yaml").write_text(json.dumps({"all": {"vars": {"gpuprov": {"nouveau": nouveau}}}}))
        fleet = frozen.freeze(
            load_fleet([str(folder / "hosts.yaml"), str(folder / "spec.yaml")]), f"{read:%Y-%m-%dT%H:%M:%SZ}"
        )
        return cut.save(cut.cut(fleet), folder / "jobs")[0]

    def work(self, job: Path, run: str) -> tuple[int, str, str]:
        """Its exit code, what became of the host, and why."""
        words = [GPUPROV, "fleet", "work", str(job), "--results", str(self.place / run), "--act", "apply", "--run", run]
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=300)
        result = json.loads((self.place / run / f"{NAME}.json").read_text())
        return done.returncode, result["state"], result.get("message", "")

    def cut_off(self, child: subprocess.Popen[str], number: int, but: tuple[str, ...] = ()) -> list[int]:
        """Send a signal to all of a controller's processes, but for programs of these names, while its module works on
        the host; the processes."""
        until = time.monotonic() + 120
        while "waiting" not in self.machine.sh("ls /run").split():
            assert child.poll() is None, child.communicate()
            assert time.monotonic() < until, self.machine.sh("ps -ef")
            time.sleep(0.3)
        family = [
            pid
            for pid in (child.pid, *descendants(child.pid))
            if Path(f"/proc/{pid}/comm").read_text().strip() not in but
        ]
        for pid in family:
            send(pid, number)
        return family


@pytest.fixture
def site(machine: Machine, tmp_path: Path) -> Site:
    return Site(machine, tmp_path)


def test_a_killed_run_goes_on_from_another_machine(site: Site) -> None:
    first = site.start("ops1", "--run", "friday")
    site.cut_off(first, signal.SIGKILL)
    first.communicate()
    time.sleep(LEASE + 1)  # the lease is over, and what the run started still works on the host
    code, told, _ = site.apply("ops2", "--run", "friday")
    host = told["hosts"][0]
    assert (code, told["locked"], host["state"]) == (5, [NAME], "locked"), told
    assert "it is not heard of any more, but this still runs" in host["message"]
    assert "hooks/wait" in host["message"]
    site.machine.sh("rm /run/wait")
    time.sleep(LEASE)
    code, told, error = site.apply("ops2", "--run", "friday")
    assert (code, told["hosts"][0]["state"]) == (0, "changed"), told
    assert told["run"] == "friday"
    assert "is not heard of any more: its lock is taken over" in " ".join(Path(told["log"]).read_text().split()), error
    assert not site.machine.sh("ls /run/gpuprov /var/lib/gpuprov | grep -E 'lock$|applying' | grep -v '^lock$' || true")


def test_a_run_that_slept_before_it_had_the_lock_changes_nothing(site: Site) -> None:
    """It has read the host, and comes to its lock when another run has been there and is gone."""
    site.machine.sh("rm /run/wait")
    gate = site.place / "gate"
    gate.write_text(GATE.format(place=site.place))
    gate.chmod(0o755)
    (site.place / "asleep").touch()
    first = site.start("ops1", "--run", "monday", "-e", f"ansible_ssh_executable={gate}")
    until = time.monotonic() + 120
    while not (site.place / "waiting").exists():
        assert first.poll() is None, first.communicate()
        assert time.monotonic() < until
        time.sleep(0.2)
    code, told, _ = site.apply("ops2", "--run", "friday")
    assert (code, told["hosts"][0]["state"]) == (0, "changed"), told
    site.machine.sh("rm /etc/modprobe.d/gpuprov.conf")  # so that the first would have something to do
    before = site.machine.sh(STATE)
    (site.place / "asleep").unlink()
    code, told, error = site.told(first)
    host = told["hosts"][0]
    assert (code, host["state"]) == (5, "locked"), (told, error)
    assert "root on ops2 at 2" in host["message"]
    assert "has had it since (run friday). Nothing was changed" in host["message"]
    assert site.machine.sh(STATE) == before


def test_an_old_job_that_comes_back_days_later_changes_nothing(site: Site) -> None:
    """What it asks for was read before the host was brought to another spec."""
    site.machine.sh("rm /run/wait")
    days = timedelta(days=3)
    old, new = (
        site.job("old", {}, datetime.now(UTC) - days),
        site.job("new", {"modules": ["nouveau"]}, datetime.now(UTC)),
    )
    assert site.work(new, "monday")[:2] == (0, "changed")
    before = site.machine.sh(STATE)
    code, state, message = site.work(old, "friday")
    assert (code, state) == (3, "blocked"), message
    assert re.search("(kernel|nouveau) was brought to another spec at 2", message), message
    assert "after what is asked here was read (2" in message
    assert site.machine.sh(STATE) == before
    assert site.work(new, "again")[:2] == (0, "unchanged"), "a job that asks for what is there is never old"
    assert site.work(site.job("anew", {}, datetime.now(UTC)), "tuesday")[:2] == (0, "changed")


def test_a_run_that_slept_changes_nothing(site: Site) -> None:
    first = site.start("ops1")
    asleep = site.cut_off(first, signal.SIGSTOP)
    site.machine.sh("rm /run/wait")
    time.sleep(LEASE + 2)
    code, told, _ = site.apply("ops2")
    assert told["hosts"][0]["state"] == "changed", told
    before = site.machine.sh(STATE)
    for pid in reversed(asleep):
        send(pid, signal.SIGCONT)
    code, told, error = site.told(first)
    host = told["hosts"][0]
    assert (code, host["state"]) == (5, "locked"), (told, error)
    assert "this run was taken over by root on ops2 at 2" in host["message"]
    assert "Nothing more is changed by this run" in host["message"]
    assert site.machine.sh(STATE) == before
    assert site.apply("ops2")[1]["hosts"][0]["state"] == "unchanged"


def test_a_run_whose_host_is_rebooted_by_somebody_else_changes_nothing_more(site: Site) -> None:
    """Between two of its modules: the next one reaches a host that is up again."""
    first = site.start("ops1")
    asleep = site.cut_off(first, signal.SIGSTOP, but=("ssh",))
    site.machine.sh("rm /run/wait")
    until = time.monotonic() + 60
    while site.machine.sh("pgrep -f lib/gpuprov/lock/guards || true"):  # the module ends, and ssh keeps its answer
        assert time.monotonic() < until
        time.sleep(0.2)
    container.reboot(NAME)
    before = site.machine.sh(BUT_LOCK)
    for pid in reversed(asleep):
        send(pid, signal.SIGCONT)
    code, told, error = site.told(first)
    host = told["hosts"][0]
    assert (code, host["state"]) == (3, "failed"), (told, error)
    assert BOOTED in host["message"]
    assert "Nothing more is changed by this run" in host["message"]
    assert site.machine.sh(BUT_LOCK) == before
    code, told, error = site.apply("ops2")
    assert (code, told["hosts"][0]["state"]) == (0, "changed"), (told, error, "its lock was given back")
