"""Reading hosts: over real ssh servers, locally, through Ansible, and hosts that cannot be read."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from gpuprov.core.errors import UnreachableError
from gpuprov.export import capture
from gpuprov.facts.collect import gather, reason_rules
from gpuprov.facts.collect.command import build
from gpuprov.facts.collect.gather import HostFacts
from gpuprov.facts.collect.script import TIMED_OUT, UID, compose, split
from gpuprov.facts.collect.settings import Settings
from gpuprov.facts.collect.transport import close_shared, run, site_host
from gpuprov.facts.collect.unreached import Unreached, without_host
from gpuprov.facts.probes.base import Facts, Output, Probe, ProbeFailed
from gpuprov.spec.model import RawHost
from tests.facts.collect.sshd import Sshd, free_ports
from tests.here import commands, program
from tests.taint.canary import Nest

pytestmark = pytest.mark.install

HELLO = Probe("hello", "echo hello; echo oops >&2; exit 4", lambda output: output)
BYTES = Probe("bytes", r"printf '\377\000x'; head -c 300000 /dev/zero | tr '\0' y", lambda output: output.text)


def failed(found: Facts | UnreachableError) -> UnreachableError:
    assert isinstance(found, UnreachableError), found
    return found


def facts(found: Facts | UnreachableError) -> Facts:
    assert isinstance(found, Facts), found
    return found


def test_many_hosts_over_ssh_in_one_go(sshd: Sshd) -> None:
    told: list[str] = []
    hosts = [(sshd.host(number), (HELLO, BYTES)) for number in range(3)]
    found = gather(hosts, on_done=lambda name, _result: told.append(name))
    assert list(found) == ["gpu01", "gpu02", "gpu03"]
    assert sorted(told) == sorted(found)
    for one in found.values():
        assert facts(one).get(HELLO) == Output("hello\n", 4, "oops\n")
        assert facts(one).get(BYTES) == "\N{REPLACEMENT CHARACTER}\x00x" + "y" * 300_000
        assert facts(one).outputs()[UID].text == "0\n"


def test_a_long_script_goes_through_standard_input(sshd: Sshd) -> None:
    probes = tuple(
        Probe(f"p{number}", f"echo {number} # {'x' * 2000}", lambda output: output.text) for number in range(150)
    )
    found = facts(gather([(sshd.host(), probes)])["gpu01"])
    assert [found.get(probe) for probe in probes] == [f"{number}\n" for number in range(150)]


def test_hosts_that_cannot_be_read_do_not_keep_the_others_back(sshd: Sshd) -> None:
    down = RawHost(name="down", connection={"ansible_host": "127.0.0.1", "ansible_port": free_ports(1)[0]})
    nowhere = RawHost(name="nowhere", connection={"ansible_host": "no-such-host.invalid"})
    refused = sshd.host(0, ansible_ssh_private_key_file="/dev/null")
    stranger = sshd.host(1, ansible_ssh_common_args="-F none -o UserKnownHostsFile=/dev/null")
    found = gather([(raw, (HELLO,)) for raw in (down, nowhere, refused, stranger, sshd.host(2))])
    assert "down (127.0.0.1:" in failed(found["down"]).message
    assert "Connection refused" in failed(found["down"]).message
    assert "ssh -o Port=" in failed(found["down"]).fix
    assert "ansible_host" in failed(found["nowhere"]).fix
    assert "Permission denied" in failed(found["gpu01"]).message
    assert "ansible_ssh_private_key_file" in failed(found["gpu01"]).fix
    assert "Host key verification failed" in failed(found["gpu02"]).message
    assert "accept it once by hand" in failed(found["gpu02"]).fix
    assert facts(found["gpu03"]).get(HELLO).status == 4


def test_a_host_that_does_not_answer_ends_by_the_time_out() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        connection: dict[str, object] = {"ansible_host": "127.0.0.1", "ansible_port": silent.getsockname()[1]}
        started = time.monotonic()
        with pytest.raises(UnreachableError, match=r"silent \(127.0.0.1:\d+\): no answer within 1 s"):
            run(RawHost(name="silent", connection=connection), compose([HELLO]), timeout=1)
    assert time.monotonic() - started < 4


def test_a_script_that_does_not_end_ends_by_the_time_out(sshd: Sshd) -> None:
    slow = Probe("slow", "sleep 20", lambda output: output)
    with pytest.raises(UnreachableError, match="the script did not end within 2 s"):
        run(sshd.host(), compose([slow]), timeout=2)


def test_what_a_snippet_leaves_running_does_not_hold_the_connection(sshd: Sshd) -> None:
    leaves = Probe("leaves", "sleep 15 & echo started", lambda output: output.text)
    started = time.monotonic()
    assert facts(gather([(sshd.host(), (leaves,))])["gpu01"]).get(leaves) == "started\n"
    assert time.monotonic() - started < 8


def test_a_snippet_that_did_not_end_is_not_parsed() -> None:
    found = HostFacts({"hello": Output("hel", TIMED_OUT)})
    with pytest.raises(ProbeFailed, match="hello did not end within 30 s on the host"):
        found.get(HELLO)


def test_too_much_output_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpuprov.facts.collect.children.LARGEST", 1 << 16)
    with pytest.raises(UnreachableError, match=r"here .*it printed more than 0 MiB"):
        run(RawHost(name="here", connection={"ansible_connection": "local"}), compose([BYTES]))


def by_sudo(folder: Path, script: str, **connection: object) -> RawHost:
    """This machine, on which another user is become by a sudo that is this script."""
    program(folder, "sudo", script)
    become = {"ansible_become": True, "ansible_become_user": "daemon", "ansible_become_exe": str(folder / "sudo")}
    return RawHost(name="here", connection={"ansible_connection": "local", **become, **connection})


def test_sudo_without_permission_names_the_way_out(tmp_path: Path) -> None:
    raw = by_sudo(tmp_path, "echo 'sudo: a password is required' >&2\nexit 1\n")
    with pytest.raises(UnreachableError, match="sudo: a password is required") as caught:
        run(raw, compose([HELLO]))
    assert "ansible_become_password" in caught.value.fix


def test_a_wrong_become_password_is_named_as_wrong(tmp_path: Path) -> None:
    script = "read -r _\nprintf 'Sorry, try again.\\nsudo: 1 incorrect password attempt\\n' >&2\nexit 1\n"
    with pytest.raises(UnreachableError, match="does not accept ansible_become_password") as caught:
        run(by_sudo(tmp_path, script, ansible_become_password="wrong"), compose([HELLO]))
    assert "correct ansible_become_password" in caught.value.fix
    assert "set ansible_become_password" not in caught.value.fix


def test_a_missing_key_file_is_named(sshd: Sshd) -> None:
    found = failed(gather([(sshd.host(ansible_ssh_private_key_file="/no/such/key"), (HELLO,))])["gpu01"])
    assert "the key file /no/such/key cannot be read: No such file or directory" in found.message
    assert found.fix.startswith("correct ansible_ssh_private_key_file")


def test_a_failure_of_sudo_is_shown_by_a_command_that_uses_sudo(sshd: Sshd) -> None:
    raw = sshd.host(ansible_become=True, ansible_become_user="no-such-user", ansible_user="root")
    found = failed(gather([(raw, (HELLO,))])["gpu01"])
    assert isinstance(found, Unreached)
    assert found.command.startswith("ssh -t ")
    assert found.command.endswith("127.0.0.1 sudo -u no-such-user true")


def test_a_become_password_reaches_sudo_once(tmp_path: Path) -> None:
    script = (
        'read -r first; read -r second && exit 9\n[ "$first" = "s3\'cret" ] || exit 1\n'
        'while [ "$1" != -- ]; do shift; done; shift; exec "$@"\n'
    )
    outputs = split(run(by_sudo(tmp_path, script, ansible_become_password="s3'cret"), compose([HELLO])).encode())
    assert outputs
    assert outputs["hello"] == Output("hello\n", 4, "oops\n")


def test_local_and_a_program_that_is_missing() -> None:
    local = RawHost(name="here", connection={"ansible_connection": "local"})
    odd = RawHost(name="odd", connection={"ansible_ssh_executable": "/no/such/ssh"})
    found = gather([(local, (HELLO,)), (odd, (HELLO,))])
    assert facts(found["here"]).get(HELLO).text == "hello\n"
    assert "/no/such/ssh" in failed(found["odd"]).message


@pytest.fixture
def tunnel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A connection plugin of the site's, in a folder that Ansible looks into."""
    told = 'DOCUMENTATION = """\nname: tunnel\nshort_description: x\ndescription: x\nauthor: x\noptions: {}\n"""\n'
    plugin = "from ansible.plugins.connection.local import *\nclass Connection(Connection):\n    transport = 'tunnel'\n"
    (tmp_path / "tunnel.py").write_text(told + plugin)
    monkeypatch.setenv("ANSIBLE_CONNECTION_PLUGINS", str(tmp_path))
    return tmp_path


@pytest.mark.usefixtures("tunnel")
def test_any_other_connection_plugin_goes_through_ansible() -> None:
    raw = RawHost(name="far", connection={"ansible_connection": "tunnel", "ansible_user": "{{ 'x' }}"})
    assert facts(gather([(raw, (HELLO,))])["far"]).get(HELLO) == Output("hello\n", 4, "oops\n")


def test_the_longest_script_is_one_argument_on_the_way_through_ansible() -> None:
    """Linux takes 128 KiB for one (MAX_ARG_STRLEN, execve(2)): here, and on the host with what Ansible and su put
    around it."""
    raw = RawHost(name="far", connection={"ansible_become": True, "ansible_become_method": "su"})
    script = compose(capture.probes())
    words = build(Settings(raw), script).argv
    assert max(map(len, words)) < 131072 * 3 // 4  # in base64, which no shell has to quote
    assert len(script) > 131072
    unpacked = subprocess.run(["sh", "-c", words[-1].removesuffix(" | sh")], capture_output=True, check=True).stdout
    assert unpacked.decode() == script


def test_a_key_in_the_inventory_goes_through_ansible(sshd: Sshd, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANSIBLE_SSH_AGENT", "auto")
    key = (sshd.folder / "login").read_text()
    raw = sshd.host(ansible_ssh_private_key_file="", ansible_private_key=key, ansible_user="root")
    assert facts(gather([(raw, (HELLO,))])["gpu01"]).get(HELLO) == Output("hello\n", 4, "oops\n")


def test_an_outage_has_one_reason() -> None:
    ports = free_ports(1)[0]
    down: dict[str, object] = {"ansible_port": ports}
    hosts = [
        RawHost(name=f"gpu{n:02d}", connection=down | {"ansible_host": f"127.0.0.{n}", "ansible_user": f"u{n}"})
        for n in range(1, 4)
    ]
    found = [failed(one) for one in gather([(raw, (HELLO,)) for raw in hosts]).values()]
    assert all(isinstance(one, Unreached) for one in found)
    assert {one.reason for one in found if isinstance(one, Unreached)} == {
        f"ssh: connect to port {ports}: Connection refused"
    }
    assert {one.advice for one in found if isinstance(one, Unreached)} == {reason_rules.AWAY}
    assert "127.0.0.2" in found[1].fix
    assert found[1].message.startswith(f"gpu02 (127.0.0.2:{ports}): ssh: connect")


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("ssh: connect to host 192.0.2.7 port 22: No route to host", "ssh: connect to port 22: No route to host"),
        ("ssh: Could not resolve hostname gpu7.example: unknown", "ssh: Could not resolve the host's name: unknown"),
        ("ops@gpu7: Permission denied (publickey).", "Permission denied (publickey)."),
        ("Connection closed by 192.0.2.7 port 22", "Connection closed by the host, port 22"),
        ("Connection reset by 198.51.100.1 port 22", "Connection reset by the host, port 22"),
        ('Error: no container with name or ID "gpu7" found', "Error: no container of this name or ID found"),
        ("ssh: connect to host bastion port 22: refused", "ssh: connect to host bastion port 22: refused"),
        ("gpu70: gpu7.example.org is not gpu7-ib", "gpu70: gpu7.example.org is not gpu7-ib"),
    ],
)
def test_a_reason_does_not_repeat_the_host(said: str, reason: str) -> None:
    assert without_host(said, ("gpu7", "192.0.2.7", "gpu7.example")) == reason


def test_paramiko_judges_host_keys(sshd: Sshd, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    raw = sshd.host(ansible_connection="paramiko", ansible_ssh_common_args="", ansible_user="root")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert "not found in known_hosts" in failed(gather([(raw, (HELLO,))])["gpu01"]).message
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh" / "known_hosts").write_text((sshd.folder / "known_hosts").read_text())
    assert facts(gather([(raw, (HELLO, BYTES))])["gpu01"]).get(HELLO) == Output("hello\n", 4, "oops\n")
    both = sshd.host(ansible_password="x")
    assert "do not go together" in failed(gather([(both, (HELLO,))])["gpu01"]).message


def test_testinfra_reaches_the_same_host_over_one_connection(sshd: Sshd) -> None:
    control_path = f"{tempfile.mkdtemp(prefix='gp-', dir='/tmp')}/%C"
    host: object = site_host(sshd.host(), control_path=control_path)
    assert host.check_output("id -u") == "0"  # type: ignore[attr-defined]
    assert len(list(Path(control_path).parent.iterdir())) == 1
    close_shared(control_path)
    assert not Path(control_path).parent.exists()
    deadline = time.monotonic() + 10  # the master was told to end, and does so on its own
    while _running(control_path.removesuffix("/%C")) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert _running(control_path.removesuffix("/%C")) == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupt_ends_every_child(number: int) -> None:
    """SIGTERM is timeout(1)'s and systemd's, SIGHUP a terminal's that is closed."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        code = (
            "import signal\nfrom gpuprov.facts.collect import gather\nfrom gpuprov.spec.model import RawHost\n"
            "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # a shell's job in the background ignores it
            f"gather([(RawHost(name=str(n), connection={{'ansible_host': '127.0.0.1', 'ansible_port': {port}}}), ())"
            " for n in range(5)])\n"
        )
        child = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE)
        marker = f"Port={port}"
        _wait(lambda: _running(marker) == 5)
        os.kill(child.pid, number)
        _out, error = child.communicate(timeout=5)
    assert b"KeyboardInterrupt" in error
    assert _running(marker) == 0


def _running(marker: str) -> int:
    return sum(line.startswith("ssh") and marker in line for line in commands())


def _wait(condition: object) -> None:
    assert callable(condition)
    for _ in range(200):
        if condition():
            return
        time.sleep(0.05)
    raise TimeoutError


def test_nothing_of_the_inventory_is_a_template_on_the_way_through_ansible(tunnel: Path) -> None:
    """Not a value, and not a name: the lookup that asks for a value was once made with the variable's name."""
    nest = Nest(tunnel / "nest")
    connection: dict[str, object] = {"ansible_connection": "tunnel"}
    connection |= {f"ansible_{n}": canary for n, canary in enumerate(nest.all())}
    connection |= {f"ansible_x') }}}}{canary}": 1 for canary in nest.templates()}
    connection["ansible_user"] = connection["ansible_ssh_common_args"] = nest.templates()[0]
    raw = RawHost(name="far", connection=connection)
    assert facts(gather([(raw, (HELLO,))])["far"]).get(HELLO).text == "hello\n"
    assert nest.flown() == []
