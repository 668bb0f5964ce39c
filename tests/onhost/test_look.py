"""The program by which a plan asks a host, as it goes there: with this machine's own package manager."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gpuprov.onhost import look
from gpuprov.plan.host_code import program
from gpuprov.resources import Packages

TRIED = {**msgspec.to_builtins(Packages(of="a tool")), "driver": {}}
has_apt = pytest.mark.skipif(not shutil.which("apt-get"), reason="apt is asked")


def ask(**asked: Any) -> dict[str, Any]:
    request = {"texts": [], "sources": [], "transactions": [], "without": [], "max_age": 10**9, **asked}
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


@has_apt
def test_it_says_what_would_move_and_what_would_be_held() -> None:
    told = ask(transactions=[{**TRIED, "hold": ["bash"]}])
    assert told["problem"] == ""
    assert told["transactions"] == [{"rows": ["hold bash"], "refused": "", "another_driver": False}]
    assert set(told["installed"]) == {"bash"}


@has_apt
def test_what_cannot_be_installed_is_refused_and_the_next_is_asked() -> None:
    told = ask(transactions=[{**TRIED, "install": ["no-such-package"], "hint": "name another"}, TRIED])
    refused, nothing = told["transactions"]
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


def test_texts_are_those_of_short_files(tmp_path: Path) -> None:
    """What is no file, or another's by a link, is none; nor does a pipe hold it up."""
    places = {name: str(tmp_path / name) for name in ("text", "bytes", "long", "link", "folder", "pipe", "none")}
    Path(places["text"]).write_text("mode = cdi\n")
    Path(places["bytes"]).write_bytes(b"\x80\xff\n")
    Path(places["long"]).write_bytes(b"x" * (look.LONGEST + 1))
    Path(places["link"]).symlink_to(places["text"])
    Path(places["folder"]).mkdir()
    os.mkfifo(places["pipe"])
    told = ask(texts=list(places.values()))["texts"]
    assert told == {places["text"]: "mode = cdi\n", places["bytes"]: "\\x80\\xff\n"}
