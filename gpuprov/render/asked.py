"""What a spec asks of each capability, as one word: the receipt on a host remembers by it what was applied."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from functools import cache
from typing import Any

import msgspec

from gpuprov.capabilities import BY_NAME
from gpuprov.spec.model import Fragment, HostSpec

ASKED = "what is asked for"
"""What is another where a digest is."""
SCHEME = "3"
"""Of this way to make one. What an earlier gpuprov wrote has another, and cannot be compared."""
FORM = re.compile(rf"{SCHEME}:[0-9a-f]{{20}}")


def digests(spec: HostSpec) -> dict[str, str]:
    """By capability, a digest of its block without what is left at a default, and of what the site set for it."""
    return {name: _digest(name, block, _site(name, spec.site)) for name, block in spec.capabilities.items()}


def is_comparable(digest: str) -> bool:
    """Whether a digest of a receipt was made in this way."""
    return FORM.fullmatch(digest) is not None


def is_changed(before: str, now: str) -> bool:
    """Whether something else is asked for now; False where the one before cannot be compared."""
    return is_comparable(before) and before != now


def _site(name: str, site: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    return tuple((key, repr(value)) for key, value in sorted(site.items()) if key.startswith(f"{name}_"))


def _digest(name: str, block: Fragment, site: tuple[tuple[str, str], ...]) -> str:
    usual = _usual(name)
    own = {field: one for field in block.__struct_fields__ if (one := getattr(block, field)) != getattr(usual, field)}
    plain = msgspec.json.encode([msgspec.to_builtins(own), site], order="sorted")
    return f"{SCHEME}:{hashlib.sha256(plain).hexdigest()[:20]}"


@cache
def _usual(name: str) -> Fragment:
    return BY_NAME[name].fragment()
