"""Noisy logins: whatever a login prints, whatever its shell, umask, locale and sudo are, all commands say the same of
the host.

And true faults are named as what they are, in the same words by every command.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuprov.simulate import container, hosts
from gpuprov.simulate.description import Description
from tests.e2e import logins
from tests.e2e.lab import Lab, Ran
from tests.e2e.logins import BLOCKED, NOISES, UNREACHED, Login
from tests.e2e.machine import Machine

pytestmark = pytest.mark.e2e
NAME = "e2e-logins"
TIME = "net.ipv4.tcp_keepalive_time"
CORE = tuple(user for user in NOISES if user.name in ("chatter", "fish"))
"""Whom apply is tried with where minutes count: what a login prints, and a shell that is not of POSIX."""
OTHERS = tuple(user for user in NOISES if user not in CORE)
FEW = ("--forks", "4")
"""All users are of one host: more at a time only wait for each other, until the time for one is over."""


class Site:
    """One host, and inventories that reach it as many hosts: one for each of its users."""

    def __init__(self, machine: Machine, folder: Path) -> None:
        self.machine = machine
        self._lab = Lab(folder, ExitStack())

    def inventory(self, users: Iterable[Login], value: int = 601, **more: Any) -> Path:
        """The users as hosts that should have one sysctl."""
        base = {
            "ansible_host": self.machine.host.address,
            "ansible_ssh_private_key_file": str(self.machine.host.key_file),
            "ansible_ssh_common_args": "-F none -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null",
            "ansible_become": True,
        }
        variables = {user.name: {**base, "ansible_user": user.name, **user.variables, **more} for user in users}
        kept = {
            name: {key: value for key, value in one.items() if value is not None} for name, one in variables.items()
        }
        spec = {"gpuprov": {"kernel": {"sysctl": {TIME: str(value)}}}}
        path = self._lab.folder / "logins.yaml"
        path.write_text(json.dumps({"all": {"vars": spec, "hosts": kept}}))
        return path

    def run(self, *words: str | Path) -> Ran:
        return self._lab.run(*words)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """The host with its users."""
    container.down(NAME)
    try:
        machine = Machine(hosts.up(NAME, Description()))
        machine.sh(logins.setup())
        yield Site(machine, tmp_path_factory.mktemp("logins"))
    finally:
        container.down(NAME)


def verdicts(ran: Ran) -> dict[str, list[tuple[str, str]]]:
    """Of `verify --json`: each host's checks, with what they say."""
    found: dict[str, list[tuple[str, str]]] = {}
    for row in ran.json:
        found.setdefault(row["host"], []).append((row["check"], row["status"]))
    return found


def agree(told: dict[str, Any], users: Iterable[Login]) -> None:
    """Every user's host was told of, and all alike."""
    assert set(told) == {user.name for user in users}
    assert len({json.dumps(one, sort_keys=True, default=str) for one in told.values()}) == 1, told


@pytest.mark.parametrize(
    ("kind", "users"),
    [
        ("ssh", NOISES),
        ("paramiko", CORE),
        pytest.param("paramiko", OTHERS, marks=pytest.mark.slow),
    ],
    ids=["ssh", "paramiko", "paramiko-others"],
)
def test_noise_does_not_matter_to_verify_and_export(site: Site, kind: str, users: tuple[Login, ...]) -> None:
    more: dict[str, Any] = {"ansible_connection": kind}
    if kind == "paramiko":
        more |= {"ansible_ssh_common_args": None, "ansible_host_key_checking": False}
    inventory = site.inventory(users, **more)
    done = site.run("verify", inventory, "--json", *FEW)
    assert done.code == 1, done  # the sysctl differs, and nothing else
    told = verdicts(done)
    agree(told, users)
    first = told[users[0].name]
    assert [check for check, status in first if status in ("fail", "error", "unreachable")] == ["kernel.sysctl"]
    assert {("host.root", "pass"), ("host.writable", "pass")} <= set(first)
    exported = site.run("export", inventory, *FEW)
    assert exported.code == 0, exported
    everything = yaml.safe_load(exported.out)["all"]["hosts"]
    agree({name: one.get("gpuprov") for name, one in everything.items()}, users)


def applied(site: Site, users: tuple[Login, ...]) -> None:
    """plan and apply of each user agree: the sysctl is what there is to do, and it is done. One at a time: all are one
    machine, which is refused under two names."""
    site.machine.sh(
        "rm -rf /etc/sysctl.d/90-gpuprov.conf /var/lib/gpuprov; sysctl -q -w net.ipv4.tcp_keepalive_time=7200"
    )
    hosts_told: dict[str, Any] = {}
    for user in users:
        planned = site.run("plan", site.inventory([user], 605), "--json")
        assert planned.code == 1, planned
        hosts_told |= {one["host"]: one for one in planned.json["hosts"]}
    agree(
        {name: [one["run"], one["settings"], one["diffs"], one["blocked"]] for name, one in hosts_told.items()}, users
    )
    assert all(one["diffs"] for one in hosts_told.values()), hosts_told
    assert not any("package manager" in str(one["unpredicted"]) for one in hosts_told.values()), hosts_told
    for number, user in enumerate(users):
        value = 610 + number
        done = site.run("apply", site.inventory([user], value), "--yes", "--json")
        assert done.code == 0, done
        assert [one["state"] for one in done.json["hosts"]] == ["changed"], done
        assert site.machine.sh(f"cat /proc/sys/{TIME.replace('.', '/')}").strip() == str(value)
        mode = site.machine.sh("stat -c '%a %U' /etc/sysctl.d/90-gpuprov.conf /var/lib/gpuprov/receipt.json")
        assert mode.splitlines() == ["644 root", "644 root"], user.name


def test_noise_does_not_matter_to_plan_and_apply(site: Site) -> None:
    applied(site, CORE)


@pytest.mark.slow
def test_no_noise_matters_to_plan_and_apply(site: Site) -> None:
    applied(site, OTHERS)


def test_a_fault_is_named_in_the_same_words_by_every_command(site: Site) -> None:
    inventory = site.inventory(UNREACHED)
    done = site.run("verify", inventory, "--json")
    rows = {row["host"]: row for row in done.json}
    assert {row["status"] for row in rows.values()} == {"unreachable"}, done
    others = [site.run(*words) for words in (("plan", inventory), ("apply", inventory, "--yes"), ("export", inventory))]
    assert [ran.code for ran in (done, *others)] == [4] * 4, others
    for user in UNREACHED:
        said, way = user.said
        assert said in rows[user.name]["found"], rows[user.name]
        assert way in rows[user.name]["fix"], rows[user.name]
        for ran in others:
            assert said in ran.text, (user.name, ran)
            assert way in ran.text, (user.name, ran)


def blocked(site: Site, user: Login, words: tuple[str, ...]) -> None:
    """plan and apply refuse by a check with a name, and verify fails it, in the same words; reading alone needs no
    Python."""
    inventory = site.inventory([user], 666)
    before = site.machine.sh(f"cat /proc/sys/{TIME.replace('.', '/')}")
    for command, code in ((("verify",), 1), (("plan",), 1), (("apply", "--yes"), 3)):
        ran = site.run(command[0], inventory, *command[1:])
        assert ran.code == code, ran
        if (command[0], words[0]) == ("verify", "host.python"):
            assert "UNREACHABLE" not in ran.out, ran
            continue
        for word in words:
            assert word in ran.text, (word, ran)
    assert site.machine.sh(f"cat /proc/sys/{TIME.replace('.', '/')}") == before


def test_what_keeps_gpuprov_from_working_is_a_check_with_a_name(site: Site) -> None:
    for user in BLOCKED:
        blocked(site, user, user.said)
    plain = NOISES[0]
    site.machine.sh("mount --bind /etc /etc; mount -o remount,ro,bind /etc")
    try:
        blocked(site, plain, ("host.writable", "read-only: /etc", "mount -o remount,rw"))
    finally:
        site.machine.sh("umount /etc")
    site.machine.sh("for p in /usr/bin/python3*; do mv $p /opt/; done")
    try:
        blocked(site, plain, ("host.python", "no Python", "install python3 on the host"))
    finally:
        site.machine.sh("mv /opt/python3* /usr/bin/")


def test_an_ordinary_user_with_nothing_to_do(site: Site) -> None:
    """plan, apply and verify agree: host.root fails, and by name."""
    user = BLOCKED[0]
    now = int(site.machine.sh(f"cat /proc/sys/{TIME.replace('.', '/')}"))
    root = site.run("apply", site.inventory([NOISES[-1]], now), "--yes")
    assert root.code == 0, root
    inventory = site.inventory([user], now)
    for command in (("verify",), ("plan",), ("apply", "--yes")):
        ran = site.run(command[0], inventory, *command[1:])
        assert ran.code == 1, ran
        assert "host.root" in ran.text
        assert "set ansible_become: true" in ran.text


def test_a_full_tmp_without_exec_does_not_matter(site: Site) -> None:
    site.machine.sh(
        "mount -t tmpfs -o noexec,size=16k,mode=1777 tmpfs /tmp; head -c 1M /dev/zero > /tmp/full 2>/dev/null || true"
    )
    try:
        done = site.run("apply", site.inventory([NOISES[-1]], 690), "--yes")
        assert done.code == 0, done
    finally:
        site.machine.sh("umount /tmp")
