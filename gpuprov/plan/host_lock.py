"""The program that takes and releases a host's lock, as a line of shell: the module gpuprov_lock is the same one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from gpuprov.onhost import fence, lock, marked
from gpuprov.plan.host_code import with_python


def program() -> str:
    """The program as one text, as it goes to a host: what the module of the lock imports from beside it stands in it."""
    text = Path(str(lock.__file__)).read_text(encoding="utf-8")
    for module in (fence, marked):
        body = (
            Path(str(module.__file__)).read_text(encoding="utf-8").partition("from __future__ import annotations\n")[2]
        )
        imported = re.search(rf"^from \.{module.__name__.rpartition('.')[2]} import .*\n", text, re.MULTILINE)
        text = text.replace(imported[0], body) if imported else text
    return text


def command(action: str, owner: Mapping[str, object], host: str, **more: object) -> str:
    """Shell that runs the program as root; it prints one line of JSON. `action` and `more`: see gpuprov/onhost/lock.py."""
    return with_python(program(), {"action": action, "owner": of_host(owner, host), **more})


def of_host(owner: Mapping[str, object], host: str) -> dict[str, object]:
    """A run as the owner of the lock of this host of its inventory, and of no other's that may be the same machine. An owner as a lock
    has it says by which name that was taken."""
    return {"name": host, **owner}
