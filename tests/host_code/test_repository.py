"""A package source and its key as one state: where the key comes from, and the trial with the real zypper."""

from __future__ import annotations

import base64
import io
import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from gpuprov.host_code import openpgp, repository, repository_key, sources
from gpuprov.host_code.packages.model import Refused
from gpuprov.host_code.packages.zypper import Zypper
from tests.e2e import package_repository
from tests.e2e.package_repository import Key

URL = "https://mirror.example/key.asc"


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> tuple[Key, Key]:
    found = [package_repository.make_key(tmp_path_factory.mktemp("keys") / name) for name in ("good", "bad")]
    for key in found:
        package_repository.end(key)
    return found[0], found[1]


def block(**changed: Any) -> Any:
    """What is wanted."""
    return {
        "name": "test", "of": "the site", "url": "https://mirror.example/x", "suite": "/", "components": [],
        "signed": "index",
        "fingerprint": "", "key_file": "", "key_url": "", **changed,
    }  # fmt: skip


def never(url: str) -> bytes:
    raise AssertionError(url)


@pytest.mark.install
def test_a_key_of_a_file(keys: tuple[Key, Key]) -> None:
    wanted = block(key_file=str(keys[0].file), fingerprint=keys[0].fingerprint)
    text, warnings = repository_key.fetch_key(wanted, {}, never)
    assert (base64.b64decode(text), warnings) == (keys[0].file.read_bytes(), [])
    with pytest.raises(
        Refused, match=rf"^the site: the key of .* is refused: .*expected is {keys[1].fingerprint}.*Fix"
    ):
        repository_key.fetch_key(wanted | {"fingerprint": keys[1].fingerprint}, {}, never)
    with pytest.raises(Refused, match="cannot read the key /nowhere: No such file"):
        repository_key.fetch_key(block(key_file="/nowhere"), {}, never)


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"key_url": "http://mirror.example/key.asc"}, "from a file or over https only"),
        ({}, "is nowhere; it comes from a file"),
        ({"key_url": URL}, "no fingerprint says which key"),
    ],
)
def test_a_key_that_nobody_can_vouch_for_is_not_fetched(changed: dict[str, Any], why: str) -> None:
    with pytest.raises(Refused, match=why):
        repository_key.fetch_key(block(**changed), {}, never)


@pytest.mark.install
@pytest.mark.parametrize(
    ("part", "pause", "why"), [(b"x", 0.05, "within 0.3 s"), (b"x" * (1 << 20), 0, "more than 1 MiB")]
)
def test_a_key_that_comes_slowly_or_without_end_is_given_up(
    part: bytes, pause: float, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Dribble(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            time.sleep(pause)
            return part

    monkeypatch.setattr(repository_key, "PATIENCE", 0.3)
    with pytest.raises((OSError, ValueError), match=why):
        repository_key.open_address(Dribble)


def test_a_key_is_fetched_once_and_kept(keys: tuple[Key, Key], tmp_path: Path) -> None:
    wanted, asked = block(key_url=URL, fingerprint=keys[0].fingerprint), []

    def fetch(url: str) -> bytes:
        asked.append(url)
        return keys[0].file.read_bytes()

    def broken(url: str) -> bytes:
        raise OSError("no route to host")

    home = {"XDG_CACHE_HOME": str(tmp_path)}
    with pytest.raises(
        Refused,
        match=r"could not fetch the key https://mirror\.example/key\.asc: no route to host; nothing was written",
    ):
        repository_key.fetch_key(wanted, home, broken)
    first = repository_key.fetch_key(wanted, home, fetch)
    assert repository_key.fetch_key(wanted, home, never) == first
    assert asked == [URL]
    Path(repository_key.find_cached(URL, home)).write_bytes(keys[1].file.read_bytes())
    assert repository_key.fetch_key(wanted, home, fetch) == first, "what is kept is judged again"
    assert len(asked) == 2


@pytest.mark.install
@pytest.mark.skipif(shutil.which("zypper") is None, reason="zypper is not installed: apt-get install zypper")
@pytest.mark.skipif(os.getuid() != 0, reason="zypper wants to be root")
def test_zypper_takes_an_index_of_this_key_and_of_no_other(keys: tuple[Key, Key], tmp_path: Path) -> None:
    folder = tmp_path / "repository"
    package_repository.rpm(folder, keys[0], packages=False)
    before = subprocess.run(["rpm", "-q", "gpg-pubkey"], capture_output=True, text=True, check=False).stdout
    for key, word in ((keys[0], ""), (keys[1], "ignature")):
        wanted = block(url=f"file://{folder}", fingerprint=key.fingerprint)
        text = openpgp.armour_keys(key.file.read_bytes(), each=True)
        planned: Any = {
            "name": "test", "fingerprints": [key.fingerprint], "key": {"text": text},
            "source": {"text": sources.format_text(wanted, "suse")},
        }  # fmt: skip
        if not word:
            repository.try_repository(wanted, planned, "suse")
            continue
        with pytest.raises(
            Refused, match=rf"^the site: this host cannot use file://.*{word}.*Fix: the key that its owner"
        ):
            repository.try_repository(wanted, planned, "suse")
    assert subprocess.run(["rpm", "-q", "gpg-pubkey"], capture_output=True, text=True, check=False).stdout == before


class Failing(Zypper):
    """A manager that cannot fetch."""

    def fetch(self, source: str) -> None:
        raise Refused(f"no lists of {source}")


def test_what_cannot_be_fetched_is_taken_away_again(tmp_path: Path) -> None:
    new, old = tmp_path / "key.asc", tmp_path / "test.repo"
    old.write_text("before\n")
    planned = {
        "name": "test", "imports": False, "key": {"path": str(new), "text": "key", "before": None},
        "source": {"path": str(old), "text": "after\n", "before": "before\n"},
    }  # fmt: skip
    with pytest.raises(Refused, match=r"was taken away again: no lists of test\. Fix"):
        repository.put(Failing(None), block(), planned, "suse")  # type: ignore[arg-type]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["test.repo"]
    assert old.read_text() == "before\n"
