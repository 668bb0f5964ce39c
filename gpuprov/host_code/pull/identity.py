"""The identity of this host, from the host's own files."""

from __future__ import annotations

from .config import Config
from .refused import Refused

# https://www.freedesktop.org/software/systemd/man/machine-id.html; of DMI: the kernel's
# Documentation/ABI/testing/sysfs-class-dmi
FILES = {
    "machine_id": "/etc/machine-id",
    "product_uuid": "/sys/class/dmi/id/product_uuid",
    "product_serial": "/sys/class/dmi/id/product_serial",
}
# The word in the puller's configuration, for hosts that are unknown before they boot.
DECLARED = "declared"


def read(what: str, config: Config) -> str:
    """Return one of the identifiers, in lower case; "" if the host has none."""
    if what == DECLARED:
        return config.declared.strip().lower()
    if what not in FILES:
        known = ", ".join([*FILES, DECLARED])
        raise Refused(f"the bundle asks for {what[:40]!r} of the host; allowed: {known}", "install the puller again")
    try:
        with open(FILES[what], encoding="utf-8", errors="replace") as file:
            return file.read(4096).strip().lower()
    except OSError:
        return ""
