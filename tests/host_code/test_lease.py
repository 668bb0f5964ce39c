"""The lease of a lock and its guard, as processes of this machine: expiry, renewal, fencing, boots, damage, a full
disk."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from gpuprov.host_code import guard, lock
from gpuprov.host_code.fence import Owner
from gpuprov.host_code.locked import BOOTED, LOST, explain_refusal
from gpuprov.host_code.marked import describe, list_running
from gpuprov.plan.host_lock import program as text_of_the_lock
from tests.host_code.modules import KIM

pytestmark = pytest.mark.install

RUN = f"friday-{os.getpid()}"
"""Processes of a run are looked for on the whole machine, where other tests may be at the same."""
OWNER: Owner = {**KIM, "run": RUN, "lease": 0.4}
OTHER: Owner = {**OWNER, "controller": "another", "host": "ops2"}
"""The same run, gone on with from another machine."""
Ask = Callable[..., dict[str, Any]]


@pytest.fixture
def ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ask:
    """The lock's program, with its folders below a temporary one; `boot` makes it another boot."""
    text = text_of_the_lock()
    text = text.replace("/run/gpuprov", f"{tmp_path}/run").replace("/var/lib/gpuprov", f"{tmp_path}/lib")
    monkeypatch.setattr(lock, "LOCK", f"{tmp_path}/run/lock")
    monkeypatch.setattr(lock, "KEPT", f"{tmp_path}/lib/lock")

    def asked(action: str, owner: Owner, *, boot: float = 0.0, slipped: float = 10.0, **more: Any) -> dict[str, Any]:
        # After another boot /run is empty, and the first process has started `boot` seconds ago.
        program = text.replace(
            "def read_first_start() -> float:",
            "def read_first_start() -> float:\n    if BOOT: return read_uptime() - BOOT",
            1,
        )
        program = program.replace("SLIPPED = 10.0", f"SLIPPED = {slipped}", 1)
        program = f"BOOT = {boot}\n" + program.replace("from __future__ import annotations\n", "", 1)
        program = "from __future__ import annotations\n" + program
        request = json.dumps({"action": action, "owner": owner, **more})
        done = subprocess.run(
            [sys.executable, "-IS", "-c", program], input=request, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return {**found, "guard": guard.write_guard(owner, found["token"])} if found.get("taken") else found

    return asked


def through(taken: dict[str, Any], script: str, *, marked: bool = True) -> subprocess.CompletedProcess[str]:
    """Python text through the guard, as Ansible sends a module that it pipes."""
    return subprocess.run([taken["guard"]], input=script, capture_output=True, text=True, check=False)


def other_boot(taken: dict[str, Any], what: str = "boot") -> None:
    """Have the guard be of another boot than this one."""
    file = Path(taken["guard"])
    text, old = file.read_text(), guard.identify_boot()[what != "boot"]
    assert f"'{old}'" in text
    file.write_text(text.replace(f"'{old}'", "'0'"))


@contextmanager
def started(taken: dict[str, Any]) -> Iterator[subprocess.Popen[str]]:
    """Something long that the run does on the host."""
    with subprocess.Popen([taken["guard"], "--", "sleep", "61.5"], text=True) as child:
        try:
            yield child
        finally:
            child.kill()


def test_a_run_that_is_heard_of_keeps_its_lock(ask: Ask) -> None:
    mine = ask("take", {**OWNER, "lease": 1.5})
    for _ in range(3):
        time.sleep(0.7)
        assert through(mine, "print(1)").stdout == "1\n"
        refused = ask("take", OTHER)
        assert not refused["taken"]
        assert 0 < refused["left"] <= 1.5
    time.sleep(1.6)
    assert ask("renew", OWNER)["held"], "nobody has taken it in the meantime"
    assert not ask("take", OTHER)["taken"]


def test_what_lost_its_lock_changes_nothing_and_says_so(ask: Ask, tmp_path: Path) -> None:
    mine = ask("take", OWNER)
    time.sleep(0.5)
    theirs = ask("take", OTHER)
    assert (theirs["taken"], theirs["over"]) == (True, True)
    assert int(theirs["token"].partition("-")[0]) == int(mine["token"].partition("-")[0]) + 1
    for words in ([], ["module.py"], ["--", "touch", str(tmp_path / "touched")]):
        done = subprocess.run(
            [mine["guard"], *words], input="x" * 1_000_000, capture_output=True, text=True, check=False
        )
        assert done.returncode == 1
        told = json.loads(done.stdout)
        assert told["failed"]
        assert "this run was taken over by kim on ops2 at 2" in told["msg"]
        assert LOST in told["msg"]
    assert not (tmp_path / "touched").exists()
    again = ask("take", {**OWNER, "token": mine["token"]})
    assert (again["taken"], again["lost"]["host"]) == (False, "ops2")
    assert "taken over by kim on ops2" in explain_refusal(again, (), "apply with")[0]
    assert not ask("release", OWNER)["released"], "the same run elsewhere is another owner"
    assert not ask("renew", OWNER)["held"]
    assert ask("release", OTHER)["released"]
    assert through(mine, "print(1)").returncode == 1, "also after the other run has ended"


def test_what_a_run_has_started_holds_its_lease(ask: Ask) -> None:
    mine = ask("take", OWNER)
    with started(mine):
        time.sleep(0.6)
        refused = ask("take", OTHER)
        assert (refused["taken"], refused["left"]) == (False, 0)
        assert "sleep 61.5" in refused["running"][0]
        assert "but this still runs: sleep 61.5" in explain_refusal(refused, (), "apply with")[0]
        assert ask("take", OTHER, broken=[RUN])["taken"], "a person who names the lock takes it"
    assert through(mine, "print(1)").returncode == 1


MODULE = {"10": "1", "11": "10"}
MODULE_LINES = {"10": "/bin/sh -c /usr/bin/python3.11 && sleep 0", "11": "/usr/bin/python3.11"}


@pytest.mark.parametrize(
    ("parents", "lines", "named"),
    [
        ({"11": "10"}, {"11": "sleep 613"}, ["sleep 613 (pid 11)"]),
        (
            {**MODULE, "12": "11", "13": "12"},
            {**MODULE_LINES, "12": "/bin/sh /usr/sbin/update-initramfs -u", "13": "gzip -9"},
            ["gzip -9 (pid 13, of /bin/sh /usr/sbin/update-initramfs -u)"],
        ),
        (
            {**MODULE, "12": "11", "13": "12", "14": "13", "15": "12"},
            {**MODULE_LINES, "12": "/bin/bash /usr/sbin/dkms build", "13": "make", "14": "cc1 a.c", "15": "sleep 3"},
            ["/bin/bash /usr/sbin/dkms build (pid 12, with 2 programs below it)"],
        ),
        (
            {**MODULE, "12": "11", "13": "11"},
            {**MODULE_LINES, "12": "apt-get update", "13": "lspci"},
            ["apt-get update (pid 12, of /usr/bin/python3.11)", "lspci (pid 13, of /usr/bin/python3.11)"],
        ),
        (MODULE, MODULE_LINES, ["/usr/bin/python3.11 (pid 11, of /bin/sh -c /usr/bin/python3.11 && sleep 0)"]),
    ],
    ids=["alone", "chain", "build", "side by side", "module"],
)
def test_what_runs_is_named_by_its_work(parents: dict[str, str], lines: dict[str, str], named: list[str]) -> None:
    assert describe(parents, lines) == named


@pytest.mark.skipif(os.getuid() != 0, reason="needs a process of another user")
def test_a_mark_that_another_user_writes_holds_nothing(ask: Ask) -> None:
    ask("take", OWNER)
    marked = {**os.environ, "GPUPROV_RUN": RUN}
    with subprocess.Popen(["sleep", "61.5"], env=marked, user=65534, group=65534, extra_groups=[]) as child:
        try:
            time.sleep(0.6)
            assert ask("take", OTHER)["over"]
        finally:
            child.kill()


def test_what_a_dead_run_has_started_keeps_the_host_from_who_takes_over(ask: Ask) -> None:
    """Its leader was killed on the controller; dpkg, which it had begun, still works on the host."""
    mine = ask("take", {**OWNER, "lease": 300})
    text = ask("take", OTHER)["text"]
    with started(mine):
        refused = ask("take", OTHER, stale=text, slipped=0.5)
        assert not refused["taken"]
        assert "sleep 61.5" in refused["running"][0]
        assert "this still runs: sleep 61.5" in explain_refusal(refused, (), "apply with")[0]
        assert through(mine, "print(1)").stdout == "1\n", "nothing was fenced"
    assert ask("take", OTHER, stale=text)["over"]


def test_of_many_at_once_one_takes_it_over(ask: Ask) -> None:
    ask("take", OWNER)
    time.sleep(0.5)
    owners = [{**OTHER, "controller": f"c{number}", "lease": 60} for number in range(8)]
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda owner: ask("take", owner), owners))
    winners = [answer for answer in answers if answer["taken"]]
    assert len(winners) == 1
    assert through(winners[0], "print(1)").stdout == "1\n"


def test_the_lock_outlives_the_runs_own_reboot(ask: Ask, tmp_path: Path) -> None:
    owner = {**OWNER, "lease": 30}
    mine = ask("take", owner)
    assert subprocess.run([mine["guard"], "--reboot", "true"], check=False).returncode == 0
    other_boot(mine)
    for file in (tmp_path / "run" / "lock").iterdir():
        file.unlink()
    (tmp_path / "run" / "lock").rmdir()
    assert ask("take", OTHER, boot=20.0)["left"] == pytest.approx(10, abs=2), "the lease counts from the boot"
    assert through(mine, "print(1)").stdout == "1\n"
    again = ask("take", {**owner, "token": mine["token"]}, boot=20.0)
    assert (again["taken"], again["over"], again["token"]) == (True, False, mine["token"])
    assert not ask("take", OTHER, boot=20.0)["taken"]
    assert through(again, "print(1)").stdout == "1\n"
    other_boot(again)
    assert BOOTED in through(again, "print(1)").stdout, "one reboot is the run's own, and no other one"


def test_a_reboot_that_did_not_come_about_permits_no_other_one(ask: Ask) -> None:
    mine = ask("take", {**OWNER, "lease": 30})
    assert subprocess.run([mine["guard"], "--reboot", "sh", "-c", "exit 7"], check=False).returncode == 7
    other_boot(mine)
    assert BOOTED in through(mine, "print(1)").stdout


@pytest.mark.parametrize("what", ["boot", "first process"])
def test_what_works_on_over_somebody_else_s_reboot_is_refused(ask: Ask, tmp_path: Path, what: str) -> None:
    mine = ask("take", {**OWNER, "lease": 30})
    other_boot(mine, what)
    for words in ([], ["module.py"], ["--", "touch", str(tmp_path / "x")], ["--reboot", "touch", str(tmp_path / "x")]):
        done = subprocess.run([mine["guard"], *words], input="x" * 99, capture_output=True, text=True, check=False)
        told = json.loads(done.stdout)
        assert (done.returncode, told["failed"]) == (1, True)
        assert BOOTED in told["msg"]
        assert LOST in told["msg"]
    assert not (tmp_path / "x").exists()


def test_after_a_boot_a_run_that_does_not_come_back_loses_it(ask: Ask, tmp_path: Path) -> None:
    mine = ask("take", {**OWNER, "lease": 30})
    (tmp_path / "run" / "lock" / "owner.json").unlink()
    (tmp_path / "run" / "lock").rmdir()
    assert ask("take", OTHER, boot=31.0)["over"]
    assert through(mine, "print(1)").returncode == 1


def test_a_run_whose_other_hosts_still_boot_keeps_the_host(ask: Ask, tmp_path: Path) -> None:
    owner = {**OWNER, "lease": 30}
    mine = ask("take", owner)
    (tmp_path / "run" / "lock" / "owner.json").unlink()
    (tmp_path / "run" / "lock").rmdir()
    assert ask("renew", owner, boot=25.0)["held"]
    kept = json.loads((tmp_path / "run" / "lock" / "owner.json").read_text(encoding="utf-8"))
    assert kept["token"] == mine["token"]
    assert kept["at"] == pytest.approx(float(Path("/proc/uptime").read_text().split()[0]), abs=10)


def test_a_lock_removed_by_hand_is_free(ask: Ask, tmp_path: Path) -> None:
    mine = ask("take", OWNER)
    (tmp_path / "run" / "lock" / "owner.json").unlink()
    (tmp_path / "run" / "lock").rmdir()
    assert ask("take", OTHER)["over"] is False
    assert through(mine, "print(1)").returncode == 1, "and whoever had it is refused"


def test_a_lock_of_the_version_before_has_no_lease(ask: Ask, tmp_path: Path) -> None:
    old = {key: value for key, value in OWNER.items() if key != "lease"}
    (tmp_path / "run" / "lock").mkdir(parents=True)
    (tmp_path / "run" / "lock" / "owner.json").write_text(json.dumps(old), encoding="utf-8")
    refused = ask("take", OTHER)
    assert (refused["taken"], refused["left"], refused["id"]) == (False, None, RUN)
    assert "lease" not in " ".join(explain_refusal(refused, (), "apply with"))
    assert ask("take", OTHER, broken=[RUN])["taken"]


@pytest.mark.parametrize("clock", ["/bin/date"])
def test_a_clock_that_jumps_moves_nothing(ask: Ask, tmp_path: Path, clock: str) -> None:
    """Files with times of another century, as a clock that was set leaves them, and a count that no uptime can have."""
    ask("take", {**OWNER, "lease": 30})
    for stamp in (0, 4_000_000_000):
        for file in (tmp_path / "run" / "lock").iterdir():
            os.utime(file, (stamp, stamp))
        assert ask("take", OTHER)["left"] == pytest.approx(30, abs=5)
    for text in ("99999999999\n", "", "x\n", "-5\n"):
        (tmp_path / "run" / "lock" / "renewed").write_text(text, encoding="utf-8")
        assert ask("take", OTHER)["left"] == pytest.approx(30, abs=5)


def test_a_damaged_fence_lets_nobody_pass_and_is_made_anew(ask: Ask, tmp_path: Path) -> None:
    mine = ask("take", OWNER)
    for text in ("", "7", "x" * 5000, f"{mine['token']}9 a b c d\n"):
        (tmp_path / "lib" / "lock" / "fence").write_text(text, encoding="utf-8")
        assert through(mine, "print(1)").returncode == 1
        assert LOST in json.loads(through(mine, "print(1)").stdout)["msg"]
    assert not ask("take", {**OWNER, "token": mine["token"]})["taken"]
    assert not ask("renew", OWNER)["held"], "what nobody's guard lets pass is kept by nobody"
    (tmp_path / "lib" / "lock" / "fence").unlink()
    assert "damaged or gone" in json.loads(through(mine, "print(1)").stdout)["msg"]
    fresh = ask("take", OWNER)
    assert int(fresh["token"].partition("-")[0]) == int(mine["token"].partition("-")[0]) + 1
    assert through(fresh, "print(1)").stdout == "1\n"


def test_a_fence_without_anything_to_count_from_is_later_than_all(ask: Ask, tmp_path: Path) -> None:
    (tmp_path / "lib" / "lock").mkdir(parents=True)
    (tmp_path / "lib" / "lock" / "fence").write_text("\0\0\0", encoding="utf-8")
    assert int(ask("take", OWNER)["token"].partition("-")[0]) > 1_700_000_000


def test_names_of_another_controller_cannot_speak_in_the_message(ask: Ask) -> None:
    mine = ask("take", OWNER)
    time.sleep(0.5)
    ask("take", {**OTHER, "user": 'x"}\n; touch $(y)', "host": "\x1b[2J"})
    told = json.loads(through(mine, "print(1)").stdout)["msg"]
    assert "taken over by x_____touch_$(y)".replace("$(y)", "__y_") in told
    assert "\x1b" not in told


def test_the_guards_of_the_latest_tokens_stay(ask: Ask, tmp_path: Path) -> None:
    for number in range(12):
        last = ask("take", {**OWNER, "run": f"r{number}", "lease": 0})
    kept = sorted(int(name.partition("-")[0]) for name in os.listdir(tmp_path / "lib" / "lock" / "guards"))
    assert kept == list(range(12 - guard.GUARDS, 13))
    assert through(last, "print(1)").stdout == "1\n"


def test_who_logs_in_comes_to_the_guard_whatever_folders_were_closed(ask: Ask, tmp_path: Path) -> None:
    """A site that closed /var/lib/gpuprov: what a run does as the login user goes through the guard, too."""
    ask("take", OWNER)
    folders = [tmp_path / "lib", tmp_path / "lib" / "lock", tmp_path / "lib" / "lock" / "guards"]
    for folder in folders:
        folder.chmod(0o700)
    ask("take", OWNER)
    assert [folder.stat().st_mode & 0o777 for folder in folders] == [0o711] * 3


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a small file system")
def test_a_full_disk_is_told_and_takes_nothing(tmp_path: Path) -> None:
    """In a mount namespace of its own: /var/lib/gpuprov on a file system that is full."""
    text = text_of_the_lock()
    text = text.replace("/run/gpuprov", f"{tmp_path}/run").replace("/var/lib/gpuprov", f"{tmp_path}/lib")
    (tmp_path / "lock.py").write_text(text, encoding="utf-8")
    (tmp_path / "lib").mkdir()
    request = json.dumps({"action": "take", "owner": OWNER})
    release = json.dumps({"action": "release", "owner": OWNER})
    script = f"""mount -t tmpfs -o size=64k tmpfs {tmp_path}/lib || exit 77
cat /dev/zero >{tmp_path}/lib/full 2>/dev/null
echo '{request}' | {sys.executable} -IS {tmp_path}/lock.py 2>&1 | tail -n 1; ls {tmp_path}/run
rm {tmp_path}/lib/full
echo '{request}' | {sys.executable} -IS {tmp_path}/lock.py
cat /dev/zero >{tmp_path}/lib/full 2>/dev/null
echo '{release}' | {sys.executable} -IS {tmp_path}/lock.py"""
    done = subprocess.run(["unshare", "--mount", "sh", "-c", script], capture_output=True, text=True, check=False)
    if done.returncode == 77 or "unshare" in done.stderr:
        pytest.skip("no mount namespaces here")
    lines = done.stdout.splitlines()
    assert "No space left on device" in lines[0]
    assert json.loads(lines[1])["taken"]
    assert json.loads(lines[2])["released"], "what is given back needs no room"


def test_what_began_while_the_host_was_taken_over_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The old run wakes up between the look at its processes and the new token."""
    for name, place in (("BASE", "run"), ("LOCK", "run/lock"), ("KEPT", "lib/lock")):
        monkeypatch.setattr(lock, name, f"{tmp_path}/{place}")
    mine = lock.take({**OWNER, "lease": 0})
    path = guard.write_guard(OWNER, mine["token"])
    monkeypatch.setattr(lock, "SLIPPED", 0.5)
    children: list[subprocess.Popen[bytes]] = []
    fenced = lock.give_token

    def late(*given: Any) -> str:
        if not children:
            children.append(subprocess.Popen([path, "--", "sleep", "61.5"]))
            while not list_running(RUN):
                time.sleep(0.05)
        return fenced(*given)

    monkeypatch.setattr(lock, "give_token", late)
    try:
        refused = lock.take(OTHER)
        assert not refused["taken"]
        assert "sleep 61.5" in refused["running"][0]
        assert subprocess.run([path], input=b"", capture_output=True, check=False).returncode == 1, (
            "it is fenced by now"
        )
    finally:
        children[0].kill()
        children[0].wait()
    assert lock.take(OTHER)["taken"]
