"""The program that takes and releases a host's lock, as a line of shell: the module gpuprov_lock is the same one."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from pathlib import Path

from gpuprov.onhost import lock, marked
from gpuprov.shared import reach

# EL 8's python3 is 3.6, too old for the program; a newer one that Ansible is told to use lies beside it.
_PYTHON = f"""for python in python3 {reach.BESIDE} {reach.PLATFORM}; do
  "$python" -c 'import sys; sys.exit(sys.version_info < (3, 8))' 2>/dev/null && break
done"""


def program() -> str:
    """The program as one text, as it goes to a host: what the module of the lock imports from beside it stands in it."""
    text, beside = (Path(str(one.__file__)).read_text(encoding="utf-8") for one in (lock, marked))
    return text.replace("from .marked import running\n", beside.partition("from __future__ import annotations\n")[2])


def command(action: str, owner: Mapping[str, object], **more: object) -> str:
    """Shell that runs the program as root; it prints one line of JSON. `action` and `more`: see gpuprov/onhost/lock.py."""
    return with_python(program(), {"action": action, "owner": owner, **more})


def with_python(text: str, request: Mapping[str, object]) -> str:
    """Shell that runs a program with the host's Python, the request on its standard input."""
    return f'{_PYTHON}\nprintf %s {shlex.quote(json.dumps(request))} | "$python" -IS -c {shlex.quote(text)}'
