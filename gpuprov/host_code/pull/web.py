"""Files from a folder or an https server, and results to them: with limits of size and time, and verified
certificates."""

from __future__ import annotations

import http.client
import re
import ssl
import urllib.error
import urllib.parse
import urllib.request
from typing import Any

from . import kept
from .config import Config
from .limits import CONFIG, FETCH, SOCKET
from .received import receive_parts
from .refused import Refused, Unfetched

# Maximum size of an answer to a result, in bytes; nobody reads it.
LARGEST = 1 << 20
AGAIN = "the next run tries again; see that the place can be reached from this host, and that the file is there"


class _Nowhere(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        """Refuse redirects: a token only goes to the configured location."""


def get(config: Config, name: str, largest: int) -> bytes:
    """Return a file below the source."""
    place = f"{config.source.rstrip('/')}/{name}"
    if config.source.startswith("/"):
        try:
            return kept.read_contents(place, largest)
        except OSError as error:
            raise Unfetched(f"{place} cannot be read: {error.strerror}", AGAIN) from None
    place = f"{config.source.rstrip('/')}/{urllib.parse.quote(name)}"
    return exchange_data(config, place, largest)


def put(config: Config, name: str, data: bytes) -> None:
    """Send a file to the location of results."""
    exchange_data(config, f"{config.results.rstrip('/')}/{urllib.parse.quote(name)}", LARGEST, data)


def exchange_data(config: Config, place: str, largest: int, data: bytes | None = None) -> bytes:
    """Return the server's answer. Its text is never repeated: it must not reach a journal or a result."""
    request = urllib.request.Request(place, data=data, method="PUT" if data is not None else "GET")
    if data is not None:
        request.add_header("Content-Type", "application/json")
    if config.token_file:
        request.add_unredirected_header("Authorization", f"Bearer {read_token(config.token_file)}")
    answer = bytearray()
    try:
        context = ssl.create_default_context(cafile=config.ca_file or None)
        opener = urllib.request.build_opener(urllib.request.HTTPSHandler(context=context), _Nowhere)
        for part in receive_parts(lambda: opener.open(request, timeout=SOCKET), FETCH):
            answer += part
            if len(answer) > largest:
                raise Refused(f"{place} has more than {largest} bytes", "name the folder that gpuprov bundle wrote")
    except urllib.error.HTTPError as error:
        message = f"{error.code} {http.client.responses.get(error.code, '')}".strip()
        raise Unfetched(f"{place} answers {message}", AGAIN) from None
    except (http.client.RemoteDisconnected, http.client.IncompleteRead):
        raise Unfetched(f"{place}: the connection ended early", AGAIN) from None
    except http.client.HTTPException as error:
        raise Unfetched(f"{place} answers what is not HTTP ({type(error).__name__})", AGAIN) from None
    except ValueError:
        raise Unfetched(f"{place} cannot be asked for: it is not an address", AGAIN) from None
    except OSError as error:
        raise Unfetched(f"{place}: {getattr(error, 'reason', error)}", AGAIN) from None
    return bytes(answer)


def read_token(file: str) -> str:
    """Return the bearer token in a file, which nothing prints."""
    # https://www.rfc-editor.org/rfc/rfc6750#section-2.1
    fix = "put the token there, one line of letters, digits and -._~+/=, mode 0600"
    try:
        data = kept.read_contents(file, CONFIG, own=True).strip()
    except OSError as error:
        raise Refused(f"{file} cannot be read: {error.strerror}", fix) from None
    if not re.fullmatch(rb"[A-Za-z0-9._~+/-]+=*", data):
        lines = len(data.splitlines())
        what = "is empty" if not lines else f"has {lines} lines" if lines > 1 else "has characters that no token has"
        raise Refused(f"{file} {what}", fix)
    return data.decode("ascii")
