"""Archives and programs beside the inventory, which a spec names with their SHA-256."""

import os
import stat
from functools import cache

from gpuprov.core.safe_parse import explain_refusal
from gpuprov.host_code.files import compute_digest


def explain_unusable(path: str, sha256: str) -> str:
    """Return the reason why a file of this machine is not what a spec names; empty if it is."""
    try:
        status = os.stat(path)
        if stat.S_ISDIR(status.st_mode):
            return "is a folder"
        if what := explain_refusal(path):
            return f"is {what}"
        if not status.st_size:
            return "is empty"
        digest = _digest(path, status.st_size, status.st_mtime_ns) if sha256 else ""
    except FileNotFoundError:
        return "is not there"
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    if sha256 and not digest:
        return "cannot be read"
    return "" if digest == sha256.lower() else f"has the SHA-256 {digest}, and sha256 is {sha256.lower()}"


@cache
def _digest(path: str, _size: int, _changed: int) -> str:
    """Return the SHA-256 of a file, computed once until the file changes."""
    return compute_digest(path)
