"""The user's own docker configuration, written for real: by the user, and nowhere that the user could not write."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gpuprov.facts.probes.base import Output
from gpuprov.facts.probes.containers.container_toolkit import USERS, parse_users
from tests.here import program
from tests.host_code.modules import on_host
from tests.host_code.modules import step as do_step

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="the host must be worked on as root"),
    pytest.mark.skipif(shutil.which("setpriv") is None, reason="no setpriv on this machine"),
]
UID = 54321


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The home of the user kim, in a folder that everybody may pass."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        made = Path(name) / "home"
        made.mkdir(mode=0o755)
        os.chown(made, UID, UID)
        kim = SimpleNamespace(pw_uid=UID, pw_gid=UID, pw_dir=str(made))
        found = pwd.getpwnam
        monkeypatch.setattr(pwd, "getpwnam", lambda user: kim if user == "kim" else found(user))
        program(Path(name), "systemctl", f'echo "$(id -u) $XDG_RUNTIME_DIR $*" >> {name}/told; [ ! -e {name}/none ]\n')
        (Path(name) / "told").touch()
        (Path(name) / "told").chmod(0o666)
        monkeypatch.setenv("PATH", f"{name}:{os.environ['PATH']}")
        monkeypatch.setattr(on_host("rootless"), "PROGRAMS", f"{name}:/usr/bin:/bin")
        yield made


def step(capsys: pytest.CaptureFixture[str], name: str, **given: Any) -> dict[str, Any]:
    """A step of the module, as the action has it taken."""
    return do_step(capsys, "engines", step=name, given={"user": "kim", **given})


def as_user(*words: str) -> None:
    subprocess.run(["setpriv", f"--reuid={UID}", f"--regid={UID}", "--clear-groups", *words], check=True)


def test_the_user_gets_the_file_and_it_keeps_its_mode(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = home / ".config" / "docker" / "daemon.json"
    assert step(capsys, "own")["answer"] == {"path": str(file), "text": ""}
    assert step(capsys, "write_own", text='{"a": 1}\n')["answer"] == {"reloaded": True}
    told = f"{UID} /run/user/{UID} --user kill --kill-who=main --signal=HUP docker.service\n"
    assert (home.parent / "told").read_text().endswith(told), "as every systemd from EL 8's on takes it"
    assert file.read_text() == '{"a": 1}\n'
    for path in (file, file.parent, file.parent.parent):
        assert path.stat().st_uid == UID
    assert [path.name for path in file.parent.iterdir()] == ["daemon.json"]
    file.write_text('{"data-root": "/scratch"}')
    file.chmod(0o600)
    (home.parent / "none").touch()
    assert step(capsys, "own")["answer"]["text"] == '{"data-root": "/scratch"}'
    assert step(capsys, "write_own", text="{}")["answer"] == {"reloaded": False}
    assert (file.read_text(), file.stat().st_mode & 0o777, file.stat().st_uid) == ("{}", 0o600, UID)


def test_a_link_leads_root_nowhere(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The folders on the way are the user's to replace: what only root may write stays root's, and what only it may
    read unread."""
    victim = home.parent / "victim"
    victim.mkdir(mode=0o755)
    for place, name in ((home, ".config"), (home / ".config", "docker")):
        shutil.rmtree(home / ".config", ignore_errors=True)
        as_user("mkdir", "-p", str(place))
        as_user("ln", "-s", str(victim), str(place / name))
        assert "cannot be written as kim" in step(capsys, "write_own", text="{}")["msg"]
        assert not list(victim.iterdir())
        assert (victim.stat().st_uid, victim.stat().st_mode & 0o777) == (os.geteuid(), 0o755)
        (place / name).unlink()
    secret = victim / "secret.json"
    secret.write_text('{"secret": "hidden word"}')
    secret.chmod(0o600)
    as_user("mkdir", "-p", str(home / ".config" / "docker"))
    as_user("ln", "-s", str(secret), str(home / ".config" / "docker" / "daemon.json"))
    told = step(capsys, "own")
    assert told["failed"]
    assert "cannot be read as kim" in told["msg"]
    assert "hidden word" not in str(told)
    step(capsys, "write_own", text='{"runtimes": {}}')
    assert "runtimes" not in secret.read_text()


def test_what_is_no_file_and_who_is_no_user_are_told(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    as_user("mkdir", "-p", str(home / ".config" / "docker" / "daemon.json"))
    assert "cannot be read as kim: it is not a file. Fix: " in step(capsys, "own")["msg"]
    assert "there is no user nobody-at-all" in step(capsys, "own", user="nobody-at-all")["msg"]


def test_an_account_is_the_hosts_own() -> None:
    root = on_host("rootless").find_account("root")
    assert (root.uid, root.file) == (0, "/root/.config/docker/daemon.json")


def test_reading_a_host_follows_no_users_link_either(home: Path) -> None:
    docker = home / ".config" / "docker"
    as_user("mkdir", "-p", str(docker))
    program(home.parent, "getent", f"echo kim:x:{UID}:{UID}::{home}:/bin/sh\n")
    secret = home.parent / "secret.json"
    secret.write_text('{"secret": "hidden word"}')
    secret.chmod(0o600)
    environment = {**os.environ, "PATH": f"{home.parent}:{os.environ['PATH']}"}
    for target, told in ((secret, ""), (None, '{"own": 1}')):
        if target:
            as_user("ln", "-s", str(target), str(docker / "daemon.json"))
        else:
            (docker / "daemon.json").unlink()
            (docker / "daemon.json").write_text('{"own": 1}')
        done = subprocess.run(["sh", "-c", USERS.script], capture_output=True, text=True, env=environment, check=True)
        assert parse_users(Output(done.stdout))["kim"].daemon == told
