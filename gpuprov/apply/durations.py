"""Durations of a run's acts, batch by batch."""

import time

from gpuprov.apply.model import Lap


class Laps:
    """Durations of the acts that have begun, in order (`all`); updated when an act begins."""

    def __init__(self) -> None:
        self.all: list[Lap] = []
        self._since = 0.0

    def begins(self, name: str, batch: int, hosts: int) -> None:
        """Begin an act, and end the previous one."""
        self.end()
        self._since = time.monotonic()
        self.all.append(Lap(name=name, batch=batch, hosts=hosts))

    def end(self) -> None:
        """End the last act."""
        if self._since:
            self.all[-1].seconds = round(time.monotonic() - self._since, 1)
        self._since = 0.0
