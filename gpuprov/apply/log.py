"""The log of a run: everything that Ansible printed, readable by this user only."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType

from gpuprov.core import terminal
from gpuprov.core.errors import GpuprovError
from gpuprov.core.sanitize import MASK, cleaned
from gpuprov.plan.saved import SHORTEST
from gpuprov.report.files import refuse_anothers, state_folder

# Maximum number of logs of one run in one second.
MOST = 1000


class Log:
    """A file of mode 0600. Secret values are never written to it, whatever Ansible prints."""

    def __init__(self, folder: Path | None, run: str, secrets: Iterable[str] = ()) -> None:
        place = folder or state_folder("log")
        self.path = place / f"{datetime.now(UTC):%Y-%m-%dT%H-%M-%SZ}-{run}.log"
        words = sorted({word for word in secrets if len(word) >= SHORTEST}, key=len, reverse=True)
        self._secret = re.compile("|".join(map(re.escape, words))) if words else None
        try:
            place.mkdir(parents=True, exist_ok=True, mode=0o700)
            if folder is None:
                refuse_anothers(place)
            handle = self._opened()
        except OSError as error:
            raise self._refused(error) from error
        self._file = os.fdopen(handle, "w", encoding="utf-8", errors="replace", buffering=1)
        self._is_begun = self._is_lost = False

    def _opened(self) -> int:
        """Open a new file. Jobs of one roll-out share a name, and may begin in the same second: later files get a
        number."""
        first = self.path
        for number in range(2, MOST):
            with suppress(FileExistsError):
                return os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            self.path = first.with_stem(f"{first.stem}-{number}")
        return os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)

    def _refused(self, error: OSError) -> GpuprovError:
        return GpuprovError(f"cannot write the log {self.path}: {error.strerror}", "name another folder: --log-dir")

    def write(self, text: str) -> None:
        """Write one or more lines, sanitized, since a log is read on a terminal, and without Ansible's colours.

        Raises GpuprovError if the first line cannot be written. If the disk fills up later, the work on the hosts
        continues.
        """
        plain = re.sub(r"\x1b\[[0-9;]*m", "", self.masked(text.replace("\r\n", "\n")))
        try:
            if not self._is_lost:
                self._file.write(cleaned(self.masked(plain)).rstrip("\n") + "\n")
        except OSError as error:
            if not self._is_begun:
                raise self._refused(error) from error
            self._is_lost = True
            terminal.warning(f"the log {self.path} ends here: {error.strerror}; the run goes on without it")
        self._is_begun = True

    def masked(self, text: str) -> str:
        """Return the text without secrets."""
        return self._secret.sub(MASK, text) if self._secret else text

    def __enter__(self) -> Log:
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _value: BaseException | None, _trace: TracebackType | None
    ) -> None:
        with suppress(OSError):  # the lines that had no room
            self._file.close()
