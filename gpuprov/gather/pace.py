"""How many hosts are reached at a time, and what is learnt of it while they are: an sshd that drops connections gets fewer."""

from __future__ import annotations

import os

PER_CORE = 16
"""Enough to fill a core with key exchanges while some hosts are slow or down. On 2 cores and 50 sshd, 16 to 32 at a time took 0.8 of
the time of all at once; 64 gained nothing."""


class Pace:
    """The limit that --forks gives, or none (0); lowered where hosts, or the jump host before them, drop connections."""

    def __init__(self, forks: int = 0) -> None:
        self.forks = forks

    @property
    def most(self) -> int:
        """Hosts that are read at a time."""
        return self.forks or PER_CORE * (os.cpu_count() or 1)

    def slow_down(self, tried: int) -> None:
        """Reach a quarter of what was tried."""
        self.forks = max(1, tried // 4)
