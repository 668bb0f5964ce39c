"""Rehearsals on real simulated hosts: no real host is contacted, and an interrupt leaves nothing."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuprov.rehearse.model import ACTS
from gpuprov.simulate import hosts, image

pytestmark = pytest.mark.e2e
PATIENCE = 600
INVENTORY = """
all:
  vars:
    gpuprov: {{nouveau: {{}}, kernel: {{limits: {{memlock: unlimited}}}}}}
    ansible_host: 127.0.0.1
    ansible_port: {port}
    ansible_user: admin
    ansible_password: wrong
    ansible_ssh_executable: {folder}/ssh
    ansible_ssh_common_args: -o ProxyCommand='touch {folder}/proxied'
  hosts:
    "real[1:3]": {{}}
"""
SHELL = "#!/bin/sh\ntouch {folder}/proxied\nexit 255\n"
CONFIG = "[defaults]\nremote_user = admin\n[ssh_connection]\nssh_args = -o ProxyCommand='touch {folder}/proxied'\n"


@pytest.fixture
def real(tmp_path: Path) -> Iterator[socket.socket]:
    """What the inventory calls real hosts: a port that must never be connected to, and programs that must never run."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        (tmp_path / "inventory.yaml").write_text(INVENTORY.format(port=port, folder=tmp_path))
        (tmp_path / "ssh").write_text(SHELL.format(folder=tmp_path))
        (tmp_path / "ssh").chmod(0o755)
        (tmp_path / "ansible.cfg").write_text(CONFIG.format(folder=tmp_path))
        (tmp_path / "home").mkdir()
        yield server


def begin(folder: Path, *options: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "gpuprov", "rehearse", "inventory.yaml", *options]
    env = {**os.environ, "HOME": str(folder / "home"), "XDG_CACHE_HOME": str(image.cache_dir().parent)}
    env |= {"ANSIBLE_SSH_EXTRA_ARGS": f"-o ProxyCommand='touch {folder}/proxied'"}
    return subprocess.Popen(
        command, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )


def untouched(server: socket.socket, folder: Path) -> None:
    """Nobody connected, and no proxy was started."""
    assert select.select([server], [], [], 0) == ([], [], [])
    assert not (folder / "proxied").exists()


def left(text: str) -> list[str]:
    """Hosts of this rehearsal that are still there."""
    run = re.search(r"\b(re-[0-9a-f]{4}-)", text)
    assert run, text
    return [row.name for row in hosts.listing() if row.name.startswith(run[1])]


def test_a_rehearsal_is_green_and_contacts_no_real_host(real: socket.socket, tmp_path: Path) -> None:
    child = begin(tmp_path, "--json")
    out, err = child.communicate(timeout=PATIENCE)
    assert child.returncode == 0, err + out
    (one,) = json.loads(out)["rehearsals"]
    assert one["hosts"] == ["real1", "real2", "real3"]
    assert {step["name"]: step["verdict"] for step in one["steps"]} == dict.fromkeys(ACTS, "ok")
    assert "/etc/modprobe.d/gpuprov.conf: new" in one["seen"]["files"]
    assert {waived["check"] for waived in one["judged"]["waived"]} == {"host.gpu", "nouveau.running"}
    assert left(err) == []
    untouched(real, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(("sign", "number"), [("bringing up", signal.SIGTERM), ("Act 2", signal.SIGINT)])
def test_an_interrupt_leaves_no_host(real: socket.socket, tmp_path: Path, sign: str, number: int) -> None:
    """As Ctrl-C does it: to every process of the foreground; SIGTERM to the one alone."""
    child = begin(tmp_path)
    assert child.stderr
    told = ""
    for line in child.stderr:
        told += line
        if sign in line:
            break
    if number == signal.SIGINT:
        os.killpg(child.pid, number)
    else:
        child.send_signal(number)
    out, err = child.communicate(timeout=PATIENCE)
    assert child.returncode == 130, told + err + out
    assert "interrupted: the simulated hosts were removed" in out
    assert "Traceback" not in err
    assert left(told) == []
    untouched(real, tmp_path)
