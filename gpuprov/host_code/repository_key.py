"""The key of a package source, on the machine that runs Ansible: read or fetched, cached, and judged. A host never
fetches it."""

from __future__ import annotations

import base64
import hashlib
import os
from typing import Any, Callable, ContextManager, Mapping

from . import openpgp
from .caches import get_cache_folder
from .packages.model import Refused
from .pull.received import receive_parts
from .sources import Source

# Maximum size of a fetched key in bytes: NVIDIA's have 3 KiB.
MOST = 1 << 20
# Maximum number of seconds without an answer from the server.
SECONDS = 30
# Maximum number of seconds for the complete key.
PATIENCE = 120.0


def find_cached(url: str, environment: Mapping[str, str]) -> str:
    """Return the path at which this machine caches a fetched key."""
    return os.path.join(get_cache_folder(environment), "gpuprov", "keys", hashlib.sha256(url.encode()).hexdigest())


def fetch_key(desired: Source, environment: Mapping[str, str], fetch: Callable[[str], bytes]) -> tuple[str, list[str]]:
    """Return the key in base64, and warnings. Raises Refused."""
    of, url = desired["of"], desired.get("key_url") or ""
    if desired.get("key"):
        data = str(desired["key"])
    elif desired.get("key_file"):
        data = encode_data(_read(desired["key_file"], of))
    else:
        data = fetch_bytes(desired, find_cached(url, environment), fetch)
    verdict = openpgp.judge(data, desired.get("fingerprint") or "")
    if verdict["problem"]:
        raise Refused(
            f"{of}: the key of {desired['url']}, {desired.get('key_file') or url or 'as given'}, is "
            f"refused: {verdict['problem']}; nothing "
            "was written. Fix: the right key, or, if its owner publishes another fingerprint now, that one in the "
            "inventory"
        )
    return data, [f"{of}: {'; '.join(verdict['warnings'])}"] if verdict["warnings"] else []


def open_address(ask: Callable[[], ContextManager[Any]]) -> bytes:
    """Return the server's answer to a request for a key."""
    data = b""
    for part in receive_parts(ask, PATIENCE):
        data += part
        if len(data) > MOST:
            raise ValueError(f"it has more than {int(MOST >> 20)} MiB")
    return data


def fetch_over_https(url: str) -> bytes:
    """Fetch an address, and follow redirects to https only. Raises OSError, ValueError."""
    import urllib.request  # takes longer to load than all else here

    def ask() -> Any:
        reply = urllib.request.urlopen(url, timeout=SECONDS)
        if not reply.geturl().startswith("https://"):
            reply.close()
            raise ValueError("it leads to an address that is not https")
        return reply

    return open_address(ask)


def fetch_bytes(desired: Source, place: str, fetch: Callable[[str], bytes]) -> str:
    of, url, fingerprint = desired["of"], desired.get("key_url") or "", desired.get("fingerprint") or ""
    if not url.startswith("https://"):
        raise Refused(
            f"{of}: the key of {desired['url']} is {url or 'nowhere'}; it comes from a file or over "
            "https only, since anybody on the way "
            "can change it otherwise. Fix: key_file, a file beside the inventory, or key_url with https and its "
            "fingerprint"
        )
    if not fingerprint:
        raise Refused(
            f"{of}: no fingerprint says which key {url} should have, and gpuprov knows none that is "
            "confirmed. Fix: repository with "
            "this url, key_url, and as fingerprint what the owner publishes (gpg --show-keys FILE shows a key's)"
        )
    kept = encode_data(_read(place, of)) if os.path.exists(place) else ""
    verdict = openpgp.judge(kept, fingerprint)
    if not verdict["problem"] and not verdict["warnings"]:
        return kept
    try:
        fresh = fetch(url)
    except Exception as error:
        if kept:
            return kept
        raise Refused(
            f"{of}: this machine could not fetch the key {url}: {error}; nothing was written. "
            "Fix: https_proxy in the environment of "
            "gpuprov, or the key in a file beside the inventory (repository.key_file)"
        ) from error
    os.makedirs(os.path.dirname(place), mode=0o700, exist_ok=True)
    with open(f"{place}.{os.getpid()}", "wb") as file:
        file.write(fresh)
    os.replace(file.name, place)
    return encode_data(fresh)


def _read(path: str, of: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise Refused(
            f"{of}: this machine cannot read the key {path}: {error.strerror}; nothing was written. "
            "Fix: a file that is there, beside "
            "the inventory (repository.key_file)"
        ) from error


def encode_data(data: bytes) -> str:
    return base64.b64encode(data).decode()
