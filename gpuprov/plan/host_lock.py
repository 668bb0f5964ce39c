"""The program that takes and releases a host's lock, as a line of shell: the same code as the module gpuprov_lock."""

import re
from pathlib import Path

from gpuprov.host_code import fence, lock, marked
from gpuprov.host_code.fence import Owner
from gpuprov.plan.host_code import with_python


def program() -> str:
    """Return the program as one text, as sent to a host; it includes what the lock's module imports."""
    text = Path(str(lock.__file__)).read_text(encoding="utf-8")
    for module in (fence, marked):
        body = (
            Path(str(module.__file__)).read_text(encoding="utf-8").partition("from __future__ import annotations\n")[2]
        )
        imported = re.search(rf"^from \.{module.__name__.rpartition('.')[2]} import .*\n", text, re.MULTILINE)
        text = text.replace(imported[0], body) if imported else text
    return text


def command(action: str, owner: Owner, host: str, **more: object) -> str:
    """Return a shell command that runs the program as root; it prints one line of JSON. `action` and `more`: see
    gpuprov/host_code/lock.py."""
    return with_python(program(), {"action": action, "owner": of_host(owner, host), **more})


def of_host(owner: Owner, host: str) -> Owner:
    """Return a run as the owner of the lock of this host of its inventory only, not of another name for the same
    machine. The owner stored in a lock has the name under which it was taken."""
    return {"name": host, **owner}
