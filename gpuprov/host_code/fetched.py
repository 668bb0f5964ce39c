"""A file that a spec names by its SHA-256: a download is written to a temporary file, verified, and moved into place
only if it matches."""

from __future__ import annotations

import hashlib
import os
import tempfile
from typing import Any, Callable, ContextManager, Iterable, NamedTuple

from .files import make_folder
from .pull.received import PART, receive_parts

# Maximum number of seconds for a complete download.
PATIENCE = 3600


class Refused(Exception):
    """The fetched file differs from the requested one, or nothing was fetched; the message says which."""


class OtherDigest(Refused):
    """A complete file was fetched, but it is another one."""


class Wanted(NamedTuple):
    """The file at `path` with this SHA-256, of at most so many bytes, readable by root only unless `mode` allows
    more."""

    path: str
    sha256: str
    most: int
    mode: int = 0o600


def find_in_bundle(sha256: str) -> str:
    """Return the path of a bundle's own copy of a file on this host; "" in a run without a bundle."""
    bundle = os.environ.get("GPUPROV_BUNDLE", "")
    return os.path.join(bundle, "files", sha256) if bundle else ""


def put(desired: Wanted, parts: Iterable[bytes]) -> None:
    """Write the file from its parts. Raises Refused, and then leaves nothing behind."""
    folder = os.path.dirname(desired.path)
    if desired.mode == 0o600:
        os.makedirs(folder, mode=0o700, exist_ok=True)
    else:
        make_folder(folder)
    handle, aside = tempfile.mkstemp(prefix=".gpuprov-", dir=folder)
    try:
        total = hashlib.sha256()
        with os.fdopen(handle, "wb") as file:
            size = 0
            for part in parts:
                size += len(part)
                if size > desired.most:
                    raise Refused(f"it is larger than {int(desired.most >> 20)} MiB, and such a file is not")
                total.update(part)
                file.write(part)
            os.fchmod(file.fileno(), desired.mode)
            file.flush()
            os.fsync(file.fileno())
        if total.hexdigest() != desired.sha256:
            raise OtherDigest(f"its SHA-256 is {total.hexdigest()}, and the spec says {desired.sha256}")
        os.rename(aside, desired.path)
    except BaseException:
        os.unlink(aside)
        raise


def put_file(desired: Wanted, source: str) -> None:
    """Do the same from a file on this machine."""
    with open(source, "rb") as file:
        put(desired, iter(lambda: file.read(PART), b""))


def put_answer(desired: Wanted, ask: Callable[[], ContextManager[Any]]) -> None:
    """Do the same from a server, with the request `ask`, in PATIENCE seconds altogether."""
    put(desired, receive_parts(ask, PATIENCE))
