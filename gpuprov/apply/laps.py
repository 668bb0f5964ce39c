"""How long the acts of a run took, batch by batch."""

from __future__ import annotations

import time

from gpuprov.apply.model import Lap


class Laps:
    """Told when an act begins; `all` has those that have begun, in order."""

    def __init__(self) -> None:
        self.all: list[Lap] = []
        self._since = 0.0

    def begins(self, name: str, batch: int, hosts: int) -> None:
        """An act begins, and with it ends the one before."""
        self.end()
        self._since = time.monotonic()
        self.all.append(Lap(name=name, batch=batch, hosts=hosts))

    def end(self) -> None:
        """The last act has ended."""
        if self._since:
            self.all[-1].seconds = round(time.monotonic() - self._since, 1)
        self._since = 0.0
