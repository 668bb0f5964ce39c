"""Identity of the spec that a bundle was made for: its values, whatever the host is called, and wherever the inventory
lies."""

import hashlib
from collections.abc import Mapping
from typing import Any

from gpuprov.core import safe_parse
from gpuprov.jobs.model import spec_id
from gpuprov.spec.model import RawHost
from gpuprov.spec.repository import FILES, locate_values


def identifier(raw: RawHost) -> str:
    """Return the same id for equal specs. What a site may change without other packages (whether to reboot) is left
    out. A file beside the inventory counts by its content: it is brought to the site with the inventory."""
    values = locate_values(raw.values, raw.origins)
    return spec_id({name: _read_content(value) for name, value in values.items() if name != "reboot"})


def _read_content(value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    named = "sha256" in value
    return {
        key: (None if named else _compute_digest(inner))
        if key in FILES and isinstance(inner, str) and inner
        else _read_content(inner)
        for key, inner in value.items()
    }


def _compute_digest(path: str) -> str:
    try:
        return hashlib.sha256(safe_parse.read_named(path, safe_parse.FILE)).hexdigest()
    except OSError:
        return path  # check says what is wrong with it
