"""What the role `nvidia_driver` decides by."""

from __future__ import annotations

from collections.abc import Mapping

from gpuprov.capabilities.base import scripts
from gpuprov.catalog import cuda, drivers, fabric, repositories
from gpuprov.catalog.driver_any import of_any_drivers
from gpuprov.catalog.driver_sets import all_driver_packages, kernel_module_table
from gpuprov.probe import house, signing
from gpuprov.probe.precompiled import PRECOMPILED
from gpuprov.probe.runfile import RUNFILE


def tables() -> Mapping[str, object]:
    return {
        "flavours": kernel_module_table(),
        "settled_branches": list(drivers.settled()),
        "driver_packages": all_driver_packages(),
        "cuda_drivers": cuda.floors(),
        "signing": _signing(),
        "precompiled": PRECOMPILED.script,
        "runfile": {"script": RUNFILE.script, "packages": of_any_drivers()},
        "fabric_manager": fabric.tables(),
        "repositories": repositories.tables(),
    }


def _signing() -> Mapping[str, object]:
    """Where the site's key lies on a host, which DKMS takes one, and how the role reads what the firmware trusts."""
    return {
        "key_file": signing.KEY_FILE,
        "certificate_file": signing.CERTIFICATE_FILE,
        "settings_file": signing.SETTINGS_FILE,
        "dkms_since": signing.DKMS_SINCE,
        "scripts": scripts(signing.ENROLLED, house.DKMS_KEY_ENROLLED, house.SECURE_BOOT),
    }
