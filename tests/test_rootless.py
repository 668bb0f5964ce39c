"""The user's own docker configuration, written for real: by the user, and nowhere that the user could not write."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuprov.probe.base import Output
from gpuprov.probe.container_toolkit import USERS, parse_users
from gpuprov.render.reach import FILTERS
from tests.here import ROLES, play, program

pytestmark = [
    pytest.mark.install,
    pytest.mark.skipif(os.geteuid() != 0, reason="the host must be worked on as root"),
    pytest.mark.skipif(shutil.which("setpriv") is None, reason="no setpriv on this machine"),
]
UID = 54321
TASKS = ROLES / "container_toolkit" / "tasks" / "configure"
# What nvidia-ctk does to a docker configuration.
CTK = """import json, sys
name = next(word for word in sys.argv if word.startswith("--config=")).partition("=")[2]
try:
    found = json.load(open(name))
except OSError:
    found = {}
found.setdefault("runtimes", {})["nvidia"] = {"args": [], "path": "nvidia-container-runtime"}
json.dump(found, open(name, "w"))
"""


@pytest.fixture
def home() -> Iterator[Path]:
    """A user's home, in a folder that everybody may pass."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield furnished(Path(name))


def furnished(place: Path) -> Path:
    made = place / "home"
    made.mkdir(mode=0o755)
    os.chown(made, UID, UID)
    (place / "ctk.py").write_text(CTK)
    program(place, "nvidia-ctk", f'exec python3 {place}/ctk.py "$@"\n')
    (place / "filter_plugins").mkdir()
    for module in FILTERS:
        text = Path(str(module.__file__)).read_text()
        (place / "filter_plugins" / f"gpuprov_{module.__name__.rpartition('.')[2]}.py").write_text(text)
    return made


def apply(home: Path) -> subprocess.CompletedProcess[str]:
    variables: dict[str, Any] = {
        "__user": "kim",
        "__container_toolkit_users": {"kim": ["x", str(UID), str(UID), "", str(home), "/bin/sh"]},
        "container_toolkit_default_runtime": False,
    }
    include = {"name": "container_toolkit", "tasks_from": "configure/rootless"}
    return play(home.parent, {"tasks": [{"ansible.builtin.include_role": include, "vars": variables}]})


def as_user(*words: str) -> None:
    subprocess.run(["setpriv", f"--reuid={UID}", f"--regid={UID}", "--clear-groups", *words], check=True)


def test_the_user_gets_the_file_and_keeps_what_was_in_it(home: Path) -> None:
    done = apply(home)
    assert done.returncode == 0, done.stdout
    file = home / ".config" / "docker" / "daemon.json"
    assert "nvidia" in json.loads(file.read_text())["runtimes"]
    for path in (file, file.parent, file.parent.parent):
        assert path.stat().st_uid == UID
    assert [path.name for path in file.parent.iterdir()] == ["daemon.json"]
    file.write_text('{"data-root": "/scratch"}')
    file.chmod(0o600)
    again = apply(home)
    assert again.returncode == 0, again.stdout
    assert set(json.loads(file.read_text())) == {"data-root", "runtimes"}
    assert (file.stat().st_mode & 0o777, file.stat().st_uid) == (0o600, UID)


def test_a_link_leads_root_nowhere(home: Path) -> None:
    """The folders on the way are the user's to replace: what only root may write stays root's, and what only it may read unread."""
    victim = home.parent / "victim"
    victim.mkdir(mode=0o755)
    for place, name in ((home, ".config"), (home / ".config", "docker")):
        shutil.rmtree(home / ".config", ignore_errors=True)
        as_user("mkdir", "-p", str(place))
        as_user("ln", "-s", str(victim), str(place / name))
        done = apply(home)
        assert done.returncode != 0, done.stdout
        assert not list(victim.iterdir())
        assert (victim.stat().st_uid, victim.stat().st_mode & 0o777) == (os.geteuid(), 0o755)
        (place / name).unlink()
    secret = victim / "secret.json"
    secret.write_text('{"secret": "hidden word"}')
    secret.chmod(0o600)
    as_user("mkdir", "-p", str(home / ".config" / "docker"))
    as_user("ln", "-s", str(secret), str(home / ".config" / "docker" / "daemon.json"))
    done = apply(home)
    assert done.returncode != 0
    assert "cannot be read as kim" in " ".join(done.stdout.split())
    assert "hidden word" not in done.stdout
    assert "runtimes" not in secret.read_text()


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
