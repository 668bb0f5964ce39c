"""Files from a folder or an https server, and results to them: with limits of size and time, and nobody else's certificate."""

from __future__ import annotations

import contextlib
import http.client
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from typing import Any

from . import kept
from .config import Config
from .limits import CONFIG, FETCH, SOCKET
from .refused import Refused, Unfetched

_BLOCK = 1 << 16
AGAIN = "the next run tries again; see that the place can be reached from this host, and that the file is there"


class _Nowhere(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        """A token goes to the place that is configured, and to no other."""


def get(config: Config, name: str, largest: int) -> bytes:
    """A file below the source."""
    place = f"{config.source.rstrip('/')}/{name}"
    if config.source.startswith("/"):
        try:
            return kept.contents(place, largest)
        except OSError as error:
            raise Unfetched(f"{place} cannot be read: {error.strerror}", AGAIN) from None
    place = f"{config.source.rstrip('/')}/{urllib.parse.quote(name)}"
    data, until = bytearray(), time.monotonic() + FETCH
    with _asked(config, place) as answer:
        try:
            while block := answer.read(_BLOCK):
                data += block
                if len(data) > largest:
                    raise Refused(f"{place} has more than {largest} bytes", "name the folder that gpuprov bundle wrote")
                if time.monotonic() > until:
                    raise Unfetched(f"{place} did not end within {FETCH:g} s", AGAIN)
            left = getattr(answer, "length", 0)
        except (OSError, http.client.HTTPException) as error:
            raise Unfetched(f"{place}: {error}", AGAIN) from None
    if left:
        raise Unfetched(f"{place} ended {left} bytes early", AGAIN)
    return bytes(data)


def put(config: Config, name: str, data: bytes) -> None:
    """A file below the place of results."""
    with _asked(config, f"{config.results.rstrip('/')}/{urllib.parse.quote(name)}", data):
        pass


@contextlib.contextmanager
def _asked(config: Config, place: str, data: bytes | None = None) -> Any:
    request = urllib.request.Request(place, data=data, method="PUT" if data is not None else "GET")
    if data is not None:
        request.add_header("Content-Type", "application/json")
    if config.token_file:
        try:
            token = kept.contents(config.token_file, CONFIG, own=True).decode().strip()
        except OSError as error:
            raise Refused(
                f"{config.token_file} cannot be read: {error.strerror}", "put the token there, mode 0600"
            ) from None
        request.add_unredirected_header("Authorization", f"Bearer {token}")
    try:
        context = ssl.create_default_context(cafile=config.ca_file or None)
        opener = urllib.request.build_opener(urllib.request.HTTPSHandler(context=context), _Nowhere)
        with opener.open(request, timeout=SOCKET) as answer:
            yield answer
    except urllib.error.HTTPError as error:
        raise Unfetched(f"{place} answers {error.code} {error.reason}", AGAIN) from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise Unfetched(f"{place}: {error}", AGAIN) from None
