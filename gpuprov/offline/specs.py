"""Which spec a bundle was made for: its values, whatever the host is called."""

from __future__ import annotations

from gpuprov.slices.model import spec_id
from gpuprov.spec.model import RawHost


def identifier(raw: RawHost) -> str:
    """Equal specs have equal ones. What a site may change without other packages (whether to reboot) is left out."""
    return spec_id({name: value for name, value in raw.values.items() if name != "reboot"})
