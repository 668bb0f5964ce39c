"""`python -m tests.fuzz --guided SECONDS`: the same targets, with cases that atheris chooses by the code that they
reach.

atheris (`make guided` installs it) makes strings of bytes; here they take the place of chance in what makes a case.
https://github.com/google/atheris
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import traceback
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.fuzz.targets import Target

CORPUS = Path("build/fuzz")
"""Strings of bytes that reached code which none before had reached: the next run begins with them."""
LIMIT = 20
"""Seconds that a case may take, at most."""


class Bytes(Random):
    """Draws from a string of bytes, and zeros when that is used up."""

    def __init__(self, data: bytes) -> None:
        super().__init__(0)
        self._data, self._at = data, 0

    def getrandbits(self, k: int, /) -> int:
        size = (k + 7) // 8
        piece = self._data[self._at : self._at + size]
        self._at += size
        return int.from_bytes(piece.ljust(size, b"\0"), "little") & ((1 << k) - 1)

    def random(self) -> float:
        return self.getrandbits(32) / (1 << 32)


def chosen(targets: tuple[Target, ...], data: bytes) -> tuple[Target, Random]:
    """The target that a string's first two bytes name, and chance as the others have it."""
    return targets[int.from_bytes(data[:2], "little") % len(targets)], Bytes(data[2:])


def fuzz(seconds: int, only: str = "") -> None:
    """Does not return: the exit code is 0 if nothing was found."""
    try:
        import atheris
    except ImportError:
        sys.exit(
            "atheris is missing. Fix: make guided, or pip install --require-hashes -r locks/atheris.txt; it has "
            "wheels for Linux"
        )
    with atheris.instrument_imports(include=["gpuprov"]):
        from tests.fuzz.targets import targets
        from tests.fuzz.whole import warm

    some = tuple(target for target in targets() if only in target.name)
    CORPUS.mkdir(parents=True, exist_ok=True)
    corpus, findings = CORPUS.resolve(), set[str]()
    os.chdir(tempfile.mkdtemp(prefix="gpuprov-fuzz-"))
    if any(target.name.startswith("whole.") for target in some):
        warm()
    said = os.fdopen(os.dup(1), "w", buffering=1)

    def once(data: bytes) -> None:
        target, chance = chosen(some, data)
        with open(os.devnull, "w", encoding="utf-8") as null, contextlib.redirect_stdout(null):
            try:
                target.judge(target.make(chance))
            except Exception as error:
                _found(error, target.name, data)

    def _found(error: Exception, name: str, data: bytes) -> None:
        last: Any = traceback.extract_tb(error.__traceback__)[-1]
        told = (
            f"{name}: {type(error).__name__}: {str(error)[:200]!a} at "
            f"{last.filename.rpartition('gpuprov/')[2]}:{last.lineno}"
        )
        if told not in findings:
            findings.add(told)
            (corpus / "findings").mkdir(exist_ok=True)
            (corpus / "findings" / f"{len(findings)}-{os.getpid()}").write_bytes(data)
            print(told, file=said)

    words = [
        f"-max_total_time={seconds}",
        f"-timeout={LIMIT}",
        "-rss_limit_mb=4096",
        "-max_len=512",
        "-print_final_stats=1",
    ]
    atheris.Setup([sys.argv[0], *words, str(corpus)], once)
    with contextlib.suppress(SystemExit):
        atheris.Fuzz()
    sys.exit(int(bool(findings)))
