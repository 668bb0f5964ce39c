"""What a person at a real bash, zsh or fish is offered on TAB."""

from __future__ import annotations

import os
import pty
import re
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.install

INVENTORY = """
all:
  vars: {gpuprov: {nouveau: {}}}
  children:
    training: {hosts: {"gpu[01:02].dc1.example.com": {}}}
    inference: {hosts: {infer01: {}, "2001:db8::5": {}}}
"""
# The line as it is typed -> the same line as TAB leaves it. Each has one way to go on.
LINES = [
    ("gpuprov veri", "gpuprov verify"),
    ("gpuprov verify inv", "gpuprov verify inventory.yaml"),
    ("gpuprov verify -i inv", "gpuprov verify -i inventory.yaml"),
    ("gpuprov verify --limit tr", "gpuprov verify --limit training"),
    ("gpuprov verify --limit=inferen", "gpuprov verify --limit=inference"),
    ("gpuprov verify --limit training,infer0", "gpuprov verify --limit training,infer01"),
    ("gpuprov verify --limit training:infer0", "gpuprov verify --limit training:infer01"),
    ("gpuprov verify --limit 2001:db8:", "gpuprov verify --limit 2001:db8::5"),
    ("gpuprov verify --limit gpu01", "gpuprov verify --limit gpu01.dc1.example.com"),
    ("gpuprov verify --limit @aga", "gpuprov verify --limit @again.retry"),
    ("gpuprov capture infer0", "gpuprov capture infer01"),
    ("gpuprov verify --only nouveau,persi", "gpuprov verify --only nouveau,persistence"),
    ("gpuprov mig layouts --gpu H200-S", "gpuprov mig layouts --gpu H200-SXM"),
    ("gpuprov explain nvidia_driver.kernel_m", "gpuprov explain nvidia_driver.kernel_modules"),
]
IDS = [typed for typed, _ in LINES]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shells")
    (folder / "inventory.yaml").write_text(INVENTORY)
    (folder / "again.retry").write_text("infer01\n")
    return folder


def environment(place: Path) -> dict[str, str]:
    keep = {name: value for name, value in os.environ.items() if not name.startswith("GPUPROV")}
    own = {"HOME": str(place), "TERM": "dumb", "LC_ALL": "C.UTF-8", "HISTFILE": ""}
    return keep | own | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}


class Shell:
    """An interactive shell on a terminal of its own; `typed` shows how TAB leaves a line."""

    def __init__(self, command: list[str], setup: str, place: Path) -> None:
        self._ours, theirs = pty.openpty()
        self._child = subprocess.Popen(
            command,
            cwd=place,
            env=environment(place),
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)
        os.write(self._ours, f"{setup}; echo rea''dy\n".encode())
        self._until(lambda shown: "ready\r" in shown)

    def typed(self, line: str) -> str:
        os.write(self._ours, f"\x15{line}\t".encode())
        time.sleep(0.2)
        os.write(self._ours, b"\x01echo '<<<' '\x05' '>>>'\n")
        shown = self._until(lambda text: re.search(r"<<< .* >>>\r", text) is not None)
        (line,) = re.findall(r"<<< (.*) >>>\r", shown)[-1:]
        return line.strip()

    def _until(self, done: object) -> str:
        assert callable(done)
        shown, end = "", time.monotonic() + 60
        while not done(shown):
            assert time.monotonic() < end, shown
            if select.select([self._ours], [], [], 1)[0]:
                shown += os.read(self._ours, 65536).decode(errors="replace")
        return shown

    def end(self) -> None:
        self._child.kill()
        self._child.wait()
        os.close(self._ours)


def started(name: str, command: list[str], setup: str, place: Path) -> Iterator[Shell]:
    if shutil.which(name) is None:
        pytest.skip(f"{name} is not installed")
    shell = Shell(command, setup, place)
    yield shell
    shell.end()


@pytest.fixture(scope="module")
def bash(place: Path) -> Iterator[Shell]:
    setup = """PS1='> '; bind 'set enable-bracketed-paste off'; eval "$(_GPUPROV_COMPLETE=bash_source gpuprov)" """
    yield from started("bash", ["bash", "--norc", "--noprofile", "-i"], setup, place)


@pytest.fixture(scope="module")
def zsh(place: Path) -> Iterator[Shell]:
    setup = """PS1='> '; unsetopt zle_bracketed_paste; autoload -Uz compinit; compinit -u; bindkey -e
eval "$(_GPUPROV_COMPLETE=zsh_source gpuprov)" """.replace("\n", "; ")
    yield from started("zsh", ["zsh", "-f", "-i"], setup, place)


@pytest.mark.parametrize(("line", "expected"), LINES, ids=IDS)
def test_bash(bash: Shell, line: str, expected: str) -> None:
    assert bash.typed(line) == expected


@pytest.mark.parametrize(("line", "expected"), LINES, ids=IDS)
def test_zsh(zsh: Shell, line: str, expected: str) -> None:
    assert zsh.typed(line) == expected


@pytest.mark.parametrize(("line", "expected"), LINES, ids=IDS)
def test_fish(line: str, expected: str, place: Path) -> None:
    if shutil.which("fish") is None:
        pytest.skip("fish is not installed")
    script = f"_GPUPROV_COMPLETE=fish_source gpuprov | source; complete -C '{line}'"
    done = subprocess.run(
        ["fish", "--no-config", "-c", script],
        cwd=place,
        env=environment(place),
        capture_output=True,
        text=True,
        check=True,
    )
    word = expected.rpartition(" ")[2]
    assert [offer.split("\t")[0] for offer in done.stdout.splitlines()] == [word]
