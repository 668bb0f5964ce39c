"""The number of hosts that are reached at a time; it adapts: an sshd that drops connections gets fewer."""

import os

# Hosts per core: enough to fill a core with key exchanges while some hosts are slow or down. On 2 cores and 50 sshd,
# 16 to 32 at a time took 0.8 of the time of all at once; 64 gained nothing.
PER_CORE = 16


class Pace:
    """The limit of --forks, or none (0); lowered if hosts, or the jump host before them, drop connections."""

    def __init__(self, forks: int = 0) -> None:
        self.forks = forks

    @property
    def most(self) -> int:
        """Maximum number of hosts that are read at a time."""
        return self.forks or PER_CORE * (os.cpu_count() or 1)

    def slow_down(self, tried: int) -> None:
        """Lower the limit to a quarter of `tried`."""
        self.forks = max(1, tried // 4)
