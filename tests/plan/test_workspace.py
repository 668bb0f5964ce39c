"""The private folder of a run: what is in it, who may read it, and that nothing of it stays."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuprov.plan.workspace import PREFIX, close_connections, remove_leftovers, workspace
from gpuprov.spec.kernel import Kernel
from gpuprov.spec.model import HostSpec, RawHost
from tests.facts.collect.sshd import SSHD, Sshd


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Sshd]:
    (tmp_path / "sshd").mkdir()
    running = Sshd(tmp_path / "sshd", 1)
    yield running
    running.stop()


@pytest.mark.install
def test_the_folder_is_private_and_gone_after_an_error(place: Path) -> None:
    pair = (
        RawHost(name="gpu1", connection={"ansible_become_password": "hidden word"}),
        HostSpec(name="gpu1", capabilities={"kernel": Kernel()}),
    )

    def work() -> None:
        with workspace([pair]) as folder:
            assert folder.parent == place
            assert folder.stat().st_mode & 0o777 == 0o700
            assert "hidden word" in (folder / "project" / "inventory.yml").read_text()
            assert (folder / "project" / "site.yml").is_file()
            remove_leftovers(place)
            assert folder.is_dir(), "a folder in use is not a leftover"
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        work()
    assert not list(place.iterdir())


def test_a_leftover_goes_and_what_is_not_ours_stays(place: Path) -> None:
    (place / f"{PREFIX}dead").mkdir()
    (place / f"{PREFIX}dead" / "in-use").touch()
    (place / f"{PREFIX}dead" / "project").mkdir()
    (place / f"{PREFIX}other").mkdir()
    remove_leftovers(place)
    assert [path.name for path in place.iterdir()] == [f"{PREFIX}other"]


@pytest.mark.skipif(not SSHD, reason="no sshd on this machine")
def test_ssh_masters_are_ended(server: Sshd, tmp_path: Path) -> None:
    sockets = tmp_path / "control"
    sockets.mkdir()
    host = server.host().connection
    command = ["ssh", "-M", "-N", "-f", "-o", f"ControlPath={sockets}/one", "-o", "ControlPersist=60"]
    command += ["-p", str(host["ansible_port"]), "-i", str(host["ansible_ssh_private_key_file"])]
    command += [*str(host["ansible_ssh_common_args"]).split(), "root@127.0.0.1"]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    assert (sockets / "one").is_socket()
    close_connections(sockets)
    asked = subprocess.run(
        ["ssh", "-O", "check", "-o", f"ControlPath={sockets}/one", "any-host"], capture_output=True, check=False
    )
    assert asked.returncode != 0
    assert not (sockets / "one").exists()
