"""Digests of a spec for each capability: the receipt on a host uses them to record what was applied."""

import hashlib
import re
from functools import cache

import msgspec

from gpuprov.capabilities import BY_NAME
from gpuprov.spec.model import Fragment, HostSpec, Site

# The name of what differs when a digest does.
SPEC = "the spec"
# Version of the digests. Digests by earlier versions of gpuprov, whose receipts list no resources, have another
# version and cannot be compared.
SCHEME = "4"
FORM = re.compile(rf"{SCHEME}:[0-9a-f]{{20}}")


def digests(spec: HostSpec) -> dict[str, str]:
    """Return by capability the digest of its block without defaults, and of the site's overrides for it."""
    return {
        name: _compute_digest(name, block, _list_overrides(name, spec.site))
        for name, block in spec.capabilities.items()
    }


def is_comparable(digest: str) -> bool:
    """Return whether a digest in a receipt has the current version."""
    return FORM.fullmatch(digest) is not None


def is_changed(before: str, now: str) -> bool:
    """Return whether the spec has changed; False if the earlier digest cannot be compared."""
    return is_comparable(before) and before != now


def _list_overrides(name: str, site: Site) -> tuple[tuple[str, str], ...]:
    return tuple((key, repr(value)) for key, value in sorted(site.items()) if key.startswith(f"{name}_"))


def _compute_digest(name: str, block: Fragment, site: tuple[tuple[str, str], ...]) -> str:
    defaults = _default_block(name)
    own = {
        field: value
        for field in block.__struct_fields__
        if (value := getattr(block, field)) != getattr(defaults, field)
    }
    plain = msgspec.json.encode([msgspec.to_builtins(own), site], order="sorted")
    return f"{SCHEME}:{hashlib.sha256(plain).hexdigest()[:20]}"


@cache
def _default_block(name: str) -> Fragment:
    return BY_NAME[name].fragment()
