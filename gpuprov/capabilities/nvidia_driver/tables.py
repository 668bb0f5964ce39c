"""What tasks of the role `nvidia_driver` take from the catalogue."""

from __future__ import annotations

from collections.abc import Mapping

from gpuprov.probe import driver_packages, signing


def tables() -> Mapping[str, object]:
    """Where the site's key lies on a host, and the record of the kernels that gpuprov holds."""
    return {
        "signing": {
            "key_file": signing.KEY_FILE,
            "certificate_file": signing.CERTIFICATE_FILE,
            "settings_file": signing.SETTINGS_FILE,
        },
        "kernels_held": driver_packages.HELD_KERNELS,
    }
