"""The garbage collector's threshold: in short commands most objects are modules and classes, which stay."""

import gc

# New objects after which Python looks for reference cycles. Its own 700 cost a tenth of a short command, and of
# Ansible's process.
OBJECTS = 200_000


def collect_seldom() -> None:
    """Have this process, and those that it forks, look for reference cycles seldom."""
    gc.set_threshold(OBJECTS)
