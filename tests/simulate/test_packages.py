"""The repository's server on the host, and what the host's apt is told."""

from __future__ import annotations

import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from http.client import IncompleteRead
from pathlib import Path

import pytest

from gpuprov.simulate.description import Description
from gpuprov.simulate.parts import packages
from gpuprov.simulate.repository.signing import KEYRING

CONTENT = b"x" * 100_000


@pytest.fixture
def get(tmp_path: Path) -> Iterator[Callable[[str], bytes]]:
    """Fetches a path from a server of tmp_path/repository."""
    for folder in ("repository", "faults"):
        (tmp_path / folder).mkdir()
    for name in ("a.deb", "b~1.deb", "c.deb", "Packages"):
        (tmp_path / "repository" / name).write_bytes(CONTENT)
    environment = {
        "GPUPROV_SIM_REPOSITORY": str(tmp_path / "repository"),
        "GPUPROV_SIM_FAULTS": str(tmp_path / "faults"),
        "GPUPROV_SIM_RUN": str(tmp_path / "run"),
    }
    command = [sys.executable, str(packages.ASSETS / "serve-repository"), "0"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout
        port = server.stdout.readline().split()[-1]

        def fetch(path: str) -> bytes:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", timeout=10) as answer:
                content: bytes = answer.read()
                return content

        yield fetch
        server.terminate()


def fault(tmp_path: Path, parameter: str) -> None:
    time.sleep(0.01)  # a fault that is switched on again has another time stamp
    (tmp_path / "faults/mirror-fails").write_text(parameter, encoding="utf-8")


def log(tmp_path: Path) -> list[str]:
    return (tmp_path / "run/downloads.log").read_text(encoding="utf-8").splitlines()


def test_it_fails_at_the_nth_package_and_each_after(get: Callable[[str], bytes], tmp_path: Path) -> None:
    get("a.deb")
    fault(tmp_path, "2")
    assert get("a.deb") == CONTENT
    for name in ("b%7e1.deb", "b%7e1.deb", "c.deb"):
        with pytest.raises(IncompleteRead) as cut:
            get(name)
        assert 0 < len(cut.value.partial) < len(CONTENT)
    assert get("a.deb") == get("Packages") == CONTENT
    (tmp_path / "faults/mirror-fails").unlink()
    assert get("c.deb") == CONTENT
    assert log(tmp_path)[2:5] == ["b~1.deb\tcut", "b~1.deb\tcut", "c.deb\tcut"]


def test_the_part_brings_source_key_and_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / KEYRING).write_bytes(b"key")
    monkeypatch.setattr(packages, "repository", lambda _description: tmp_path)
    made = packages.part("a", Description())
    assert made.files[packages.KEYRING].content == b"key"
    source = made.files["/etc/apt/sources.list.d/gpuprov-sim.sources"].content
    assert isinstance(source, bytes)
    assert f"Signed-By: {packages.KEYRING}" in source.decode()
    assert made.units == (packages.UNIT,)
    assert f"/etc/systemd/system/{packages.UNIT}" in made.files
    assert packages.PRELOAD_FILE in made.files
    assert packages.PRELOAD_FILE not in packages.part("a", Description(kind="machine")).files
    assert packages.volumes(Description()) == ((tmp_path, packages.PLACE),)
