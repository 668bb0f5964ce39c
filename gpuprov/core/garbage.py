"""How seldom Python looks for circles among objects: most of them, of short commands, are modules and classes that
stay."""

import gc

# New objects after which it looks. Its own 700 cost a tenth of a short command, and of Ansible's.
OBJECTS = 200_000


def collect_seldom() -> None:
    """Have this process, and those that it forks, look for circles seldom."""
    gc.set_threshold(OBJECTS)
