"""The client configuration token on the controller: judged and compared without revealing its content."""

import base64
import binascii
import hashlib
from datetime import UTC, datetime

import msgspec

from gpuprov.core import safe_parse
from gpuprov.host_code.json_members import Json
from gpuprov.spec.signing import VAULT

# 9999-12-31, the last day that Python knows.
LAST = 253402300799


class ControllerToken(msgspec.Struct, frozen=True, kw_only=True):
    """`sha256` of the content as it goes to the host; empty for a file in Ansible's vault."""

    sha256: str = ""
    # 0 if the token has no date.
    expires: int = 0
    problem: str = ""
    missing: bool = False


def read(path: str) -> ControllerToken:
    """Return the token file on this machine. Never raises; `problem`: its fault, if any."""
    try:
        content = safe_parse.read_contents(path)
    except OSError as error:
        return ControllerToken(problem=f"{path} cannot be read here: {error.strerror}", missing=True)
    except safe_parse.Unreadable as error:
        return ControllerToken(problem=f"{path} cannot be read: {error}")
    if content.startswith(VAULT):
        return ControllerToken()
    claims = _parse_claims(content)
    if claims is None:
        return ControllerToken(problem=f"{path} is not a client configuration token: it is not a signed JSON web token")
    expires = claims.get("exp")
    return ControllerToken(
        sha256=hashlib.sha256(content).hexdigest(), expires=int(expires) if isinstance(expires, int | float) else 0
    )


def _parse_claims(content: bytes) -> dict[str, Json] | None:
    parts = content.strip().split(b".")
    if len(parts) != 3:
        return None
    try:
        claims = safe_parse.parse_json(base64.urlsafe_b64decode(parts[1] + b"==="))
    except (binascii.Error, ValueError):
        return None
    return claims if isinstance(claims, dict) else None


def day(seconds: int) -> str:
    """Return a point in time as its day: 2027-03-01. A time outside the calendar becomes its first or last day."""
    return f"{datetime.fromtimestamp(min(max(seconds, 0), LAST), UTC):%Y-%m-%d}"
