"""What the control machine keeps and repeats: archives that lie about sizes, a damaged store of roll-outs, secrets in
what is said."""

from __future__ import annotations

import contextlib
import io
import sqlite3
import string
import tarfile
import tempfile
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from gpuprov.core import sanitize
from gpuprov.core.errors import GpuprovError
from gpuprov.core.safe_parse import Unreadable, archives
from gpuprov.fleet.policy import events
from gpuprov.host_code.pull.config import PLACES, find_misplacement
from gpuprov.rollout import store
from gpuprov.rollout.kept import Kept
from gpuprov.spec.build import convert
from tests.fuzz import mutate

if TYPE_CHECKING:
    from tests.fuzz.targets import Target

SECONDS = 5.0
SECRET = "hunter2-Hunter2"
WORDS = ("gpu1: {} is wrong", '{{"a": "{}"}}', "deb {} main", "{}", "x{}y", "a\n{}\nb", "{}{}")
HOSTS = ("mirror.example", "h:8443", "[fd00::1]", "127.0.0.1")


def _archive(random: Random) -> bytes:
    """Members that say of themselves what is not so, in each of the ways that a header has."""
    made = io.BytesIO()
    form = random.choice((tarfile.PAX_FORMAT, tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT))
    size = random.choice((0, 1, 512, -1, -512, 1 << 31, (1 << 33) - 1, 1 << 50, 1 << 62, 1 << 70))
    with tarfile.open(fileobj=made, mode="w", format=form) as file:
        for number in range(random.randint(1, 4)):
            entry = tarfile.TarInfo(random.choice(("sos/hostname", "x", "a/../b", "sos/sos_commands/kernel/dmesg")))
            entry.size = number * 10
            if random.random() < 0.7 and form == tarfile.PAX_FORMAT:
                key = random.choice(
                    ("size", "GNU.sparse.realsize", "GNU.sparse.size", "GNU.sparse.map", "mtime", "path")
                )
                entry.pax_headers = {key: str(size), "GNU.sparse.major": random.choice("01"), "GNU.sparse.minor": "0"}
            file.addfile(entry, io.BytesIO(b"x" * entry.size))
        if form != tarfile.PAX_FORMAT and 0 <= size < (1 << 33):
            entry = tarfile.TarInfo("last")
            entry.size = size
            file.addfile(entry)
    data = bytearray(made.getvalue())
    for _ in range(random.choice((0, 0, 1, 3))):
        data[random.randrange(min(len(data), 2048))] = random.randrange(256)
    return bytes(data)


def _judge_archive(data: bytes) -> None:
    with tempfile.NamedTemporaryFile(dir=".") as file:
        Path(file.name).write_bytes(data)
        began = time.monotonic()
        with contextlib.suppress(Unreadable):
            list(archives.list_members(Path(file.name), lambda name: name.startswith("sos")))
        assert time.monotonic() - began < SECONDS, "an archive is waited for"


@cache
def _store() -> bytes:
    with tempfile.TemporaryDirectory(dir=".") as place:
        found = store.Store(Path(place).absolute())
        found.begin(Kept("friday", "d", 1.0, "ann", True, 1), [("gpu1", "192.0.2.1")], events.Started(at=1.0, by="ann"))
        found.record("friday", 1, [events.Paused(at=float(n), by="bob", why="w" * 50) for n in range(60)])
        found.close()
        db = sqlite3.connect(found.file)
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        db.close()
        return found.file.read_bytes()


def _damaged(random: Random) -> bytes:
    data = bytearray(_store())
    for _ in range(random.choice((1, 1, 2, 20))):
        data[random.randrange(len(data))] = random.randrange(256)
    if random.random() < 0.2:
        at = random.randrange(0, len(data), 4096)
        data[at : at + 4096] = bytes(4096)
    return bytes(data[: random.randrange(len(data))] if random.random() < 0.1 else data)


def _judge_store(data: bytes) -> None:
    with tempfile.TemporaryDirectory(dir=".") as place:
        folder = Path(place).absolute()
        (folder / "friday").mkdir()
        (folder / "rollouts.sqlite").write_bytes(data)
        found = store.Store(folder)
        try:
            for one in found.all():
                found.events(one.id)
        finally:
            found.close()


def _address(random: Random) -> tuple[str, str]:
    """A URL with a password, and the password."""
    letters = string.ascii_letters + string.digits + "+_.~!*,;=&%-"
    password = "PW" + "".join(random.choice(letters) for _ in range(random.randint(6, 30)))
    user = random.choice(("", "bob", "a%40b"))
    scheme = random.choice(("https", "http", "ftp", "rsync", "git+https"))
    return f"{scheme}://{user}:{password}@{random.choice(HOSTS)}{random.choice(('', '/', '/a/b', '/x@y'))}", password


def _judge_said(case: tuple[str, str, str]) -> None:
    """Neither the password of an address nor a hidden text is in what is shown, in a message, or of a place of the
    puller."""
    address, password, words = case
    sanitize.hide(SECRET)
    try:
        for secret, text in ((password, words.replace("{}", address)), (SECRET, words.replace("{}", SECRET))):
            assert secret not in sanitize.cleaned(text), "a secret is shown"
            assert sanitize.cleaned(sanitize.cleaned(text)) == sanitize.cleaned(text), "masked again it is another text"
            (_, message, fix), *_ = convert(text, int, ("a",))[1]
            assert secret not in message + fix, "a secret is in a message"
        for name in PLACES:
            for place in (address, f"rsync:{address}"):
                assert password not in find_misplacement(name, place), "a password is in a refusal"
                assert find_misplacement(name, place), "a password is taken"
    finally:
        sanitize.reveal()


def _said(random: Random) -> tuple[str, str, str]:
    address, password = _address(random)
    words = random.choice(WORDS) if random.random() < 0.7 else f"{mutate.text(random, WORDS)[:2000]} {{}} "
    return address, password, words.replace("{{", "{").replace("}}", "}")


def control() -> Iterator[Target]:
    """The targets."""
    from tests.fuzz.targets import Target, allowing

    yield Target("control.archive", _archive, allowing(_judge_archive, Unreadable), 0.3)
    yield Target("control.store", _damaged, allowing(_judge_store, GpuprovError), 0.1)
    yield Target("control.said", _said, _judge_said, 0.3)
