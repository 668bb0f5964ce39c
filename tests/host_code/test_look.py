"""The program by which a plan asks a host, as it goes there: with this machine's own package manager."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gpuprov.host_code import look, streams
from gpuprov.plan.host_code import program
from gpuprov.resources import Packages
from gpuprov.simulate.repository import index
from gpuprov.simulate.repository.signing import Signer
from tests import public_keys
from tests.e2e import package_repository as signed
from tests.host_code import package_repository

TRIED = {**msgspec.to_builtins(Packages(of="a tool")), "driver": {}}
has_apt = pytest.mark.skipif(not shutil.which("apt-get"), reason="apt is asked")


NOTHING: dict[str, Any] = {"texts": [], "sources": [], "transactions": [], "without": [], "max_age": 10**9}


def ask(**asked: Any) -> dict[str, Any]:
    request = {**NOTHING, **asked}
    # -I and -S: without gpuprov itself, as on a host.
    done = subprocess.run(
        [sys.executable, "-IS", "-c", program(look.__name__)],
        input=json.dumps(request), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def test_it_fits_into_an_argument() -> None:
    """Linux takes 128 KiB in one: MAX_ARG_STRLEN, https://man7.org/linux/man-pages/man2/execve.2.html"""
    assert len(program(look.__name__)) < 96 << 10


@pytest.fixture
def without_lists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have apt know what is installed alone: reading this machine's lists takes seconds."""
    (tmp_path / "lists/partial").mkdir(parents=True)
    settings = {"Dir::State::lists": f"{tmp_path}/lists", "Dir::Etc::sourceparts": "/dev/null"}
    settings |= {"Dir::Cache::pkgcache": "", "Dir::Cache::srcpkgcache": "", "Dir::Etc::sourcelist": "/dev/null"}
    (tmp_path / "apt.conf").write_text("".join(f'{name} "{value}";\n' for name, value in settings.items()))
    monkeypatch.setenv("APT_CONFIG", str(tmp_path / "apt.conf"))


@pytest.mark.install
@has_apt
@pytest.mark.usefixtures("without_lists")
def test_each_transaction_has_its_own_answer() -> None:
    """What would be held, what cannot be installed, and what asks for nothing."""
    impossible = {**TRIED, "install": ["no-such-package"], "fix": "name another"}
    told = ask(transactions=[{**TRIED, "hold": ["bash"]}, impossible, TRIED])
    held, refused, nothing = told["transactions"]
    assert told["problem"] == ""
    assert held == {"rows": ["hold bash"], "refused": "", "another_driver": False}
    assert set(told["installed"]) == {"bash"}
    assert refused["refused"].startswith("apt cannot install a tool: ")
    assert refused["refused"].endswith("Fix: name another")
    assert nothing == {"rows": [], "refused": "", "another_driver": False}


@has_apt
def test_a_source_that_cannot_be_is_refused_and_nothing_is_written() -> None:
    source = {"name": "test", "of": "the site", "url": "https://mirror.example", "key": "no key", "fingerprint": ""}
    (told,) = ask(sources=[{"suite": "/", "components": [], "signed": "packages", **source}])["sources"]
    assert told["files"] == []
    assert "OpenPGP" in told["refused"]
    assert not Path("/etc/apt/sources.list.d/gpuprov-test.sources").exists()


@pytest.fixture
def room(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder for temporary files; apt reads in it as a user of its own."""
    with tempfile.TemporaryDirectory(prefix="gpuprov-test-") as folder:
        Path(folder).chmod(0o755)
        monkeypatch.setenv("TMPDIR", folder)
        yield Path(folder)


def block(key: str, fingerprint: str, url: str) -> dict[str, Any]:
    named = {"name": "test", "of": "the site", "suite": "/", "components": [], "signed": "packages"}
    return {**named, "url": url, "key": key, "fingerprint": fingerprint}


@pytest.mark.install  # apt is asked again and again
@has_apt
@pytest.mark.skipif(not shutil.which("apt-ftparchive"), reason="apt-ftparchive is asked")
def test_what_is_tried_and_read_sees_the_sources_that_are_still_to_be_added(room: Path, tmp_path: Path) -> None:
    """And those that cannot be used are none, with what is tried beside them."""
    keys = [signed.make_key(tmp_path / name) for name in ("good", "bad")]
    for key in keys:
        signed.end(key)
    with tempfile.TemporaryDirectory(prefix="gpuprov-test-") as folder:
        Path(folder).chmod(0o755)
        package_repository.apt(Path(folder))
        index.apt(Path(folder), index.Release("nobody", "nothing", ""), Signer(keys[0].home))
        wanted = {**TRIED, "install": ["gp-user"]}
        urls = ("file:/nowhere", f"file:{folder}")
        several = [block(key.file.read_text(), key.fingerprint, url) for key, url in zip(keys[::-1], urls, strict=True)]
        told = ask(sources=several, transactions=[wanted], reading="apt-cache madison gp-driver")
        refused = ask(sources=several[:1], transactions=[wanted, TRIED])
    assert told["problem"] == refused["problem"] == ""
    assert [bool(one["refused"]) for one in told["sources"]] == [True, False]
    assert sorted(told["transactions"][0]["rows"]) == [
        *(f"Inst {name} {package_repository.NEW}-1" for name in ("gp-driver", "gp-lib")),
        "Inst gp-user 1.0-1",
    ]
    assert streams.unpack_streams(told["printed"]).split()[2].decode() == f"{package_repository.NEW}-1"
    assert "Unable to locate package gp-user" in refused["transactions"][0]["refused"]
    assert refused["transactions"][1]["refused"] == ""
    assert [*room.iterdir()] == []
    assert not Path("/etc/apt/sources.list.d/gpuprov-test.sources").exists()


@pytest.mark.install
@has_apt
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_nothing_is_left_where_it_is_ended(number: signal.Signals, room: Path) -> None:
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}/x"
        request = json.dumps({**NOTHING, "sources": [block(public_keys.GOOD, public_keys.GOOD_FINGERPRINT, url)]})
        with subprocess.Popen(
            [sys.executable, "-IS", "-c", program(look.__name__)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as asked:
            assert asked.stdin
            asked.stdin.write(request)
            asked.stdin.close()
            server.settimeout(60)
            with server.accept()[0]:  # apt is there
                assert [*room.iterdir()]
                asked.send_signal(number)
                assert asked.wait(30) == 1
    assert [*room.iterdir()] == []


def test_texts_are_those_of_short_files(tmp_path: Path) -> None:
    """What is not a file, or another's by a link, is none; nor does a pipe hold it up."""
    places = {name: str(tmp_path / name) for name in ("text", "bytes", "long", "link", "folder", "pipe", "none")}
    Path(places["text"]).write_text("mode = cdi\n")
    Path(places["bytes"]).write_bytes(b"\x80\xff\n")
    Path(places["long"]).write_bytes(b"x" * (look.LONGEST + 1))
    Path(places["link"]).symlink_to(places["text"])
    Path(places["folder"]).mkdir()
    os.mkfifo(places["pipe"])
    told = ask(texts=list(places.values()))["texts"]
    assert told == {places["text"]: "mode = cdi\n", places["bytes"]: "\\x80\\xff\n"}
