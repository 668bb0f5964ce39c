"""Modules that one host builds for others: the package that they travel in, and whether it is for a host.

It lies in the cache of the machine that runs gpuprov, beside a description: `version` of the DKMS package, `flavour`, `kernels`,
`sha256` of the package, `sums` (the SHA-256 of the list of the modules' checksums).
"""

from __future__ import annotations

import json
import re
from typing import Any, Mapping

from ..caches import caches
from ..files import digest

SUFFIX = "-prebuilt"
"""What the name of such a package has after that of the DKMS package in whose place it stands."""
FOLDER = "/var/lib/gpuprov/prebuilt"
Known = Mapping[str, Any]


def package_of(driver: Known) -> str:
    """What the package is called that stands for the DKMS package."""
    return str(driver["module"]) + SUFFIX


def place_of(driver: Known) -> str:
    """Where it lies on a host until it is installed, without its ending."""
    return f"{FOLDER}/{package_of(driver)}"


def wanted_version(driver: Known) -> str:
    return str(driver["packages"][driver["module"]])


def cache(environment: Mapping[str, str], *words: str) -> str:
    """Where package and description lie here, without their endings. Its name is made of what hosts say: it is one file of that
    folder, whatever they say."""
    return f"{caches(environment)}/gpuprov/modules/" + re.sub("[^A-Za-z0-9.+~@%_-]", "_", "-".join(words))


def known(path: str) -> dict[str, Any]:
    """The description of what lies in the cache; nothing where there is none, or it is none."""
    try:
        with open(f"{path}.json", encoding="utf-8") as file:
            found = json.load(file)
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def sound(path: str) -> str:
    """The sums of the modules in the cache; empty where the package is not as it was made."""
    mine = known(path)
    return str(mine.get("sums", "")) if mine and digest(f"{path}.deb") == mine.get("sha256") else ""


def problem(builder: str, host: str, driver: Known, theirs: Known) -> str:
    """Why what the build host has is not for this host, and the fix; empty if it is."""
    wanted = wanted_version(driver)
    says = f"nvidia_driver.build_host {builder}: "
    if not theirs:
        return (
            f"{says}it has packed no modules of {driver['module']} {wanted} for this machine to give out, and is not in this run. "
            f"Fix: gpuprov apply --full --limit {builder}"
        )
    if (theirs.get("version"), theirs.get("flavour")) != (wanted, driver["flavour"]):
        return (
            f"{says}it has {theirs.get('version')} ({theirs.get('flavour')}), and {host} would get {wanted} ({driver['flavour']}). "
            "Fix: name an exact nvidia_driver.version and one kernel_modules for both"
        )
    built = theirs.get("kernels") or []
    if lacking := [kernel for kernel in driver["kernels"] if kernel not in built]:
        return (
            f"{says}it builds for {', '.join(built)}, and {host} can boot {', '.join(lacking)}. "
            f"Fix: install that kernel on {builder} and apply it, or remove it from {host}"
        )
    return ""


def gone(builder: str, host: str, *, failed: bool) -> str:
    """What is said where the build host of this run has given nothing out."""
    fix = "Fix: correct what stopped it, and apply again"
    if failed:
        return f"nvidia_driver.build_host {builder} failed in this run; nothing was installed on {host}. {fix}"
    return f"nvidia_driver.build_host {builder} has packed no modules in this run; nothing was installed. {fix}"


def lacks(driver: Known, theirs: Known) -> bool:
    """Whether the package has to be installed. Modules that were signed or built anew have the same version."""
    same = driver["prebuilt_sums"] and driver["prebuilt_sums"] == theirs.get("sums")
    there = package_of(driver) in driver["prebuilt"] and driver["installed"] == wanted_version(driver)
    return not (same and there)


def trial(driver: Known, local: list[str], *, untried: bool) -> dict[str, list[str]]:
    """The transaction as it is tried. What the build host is only now building is not there, and DKMS cannot leave without it: its
    package moves along in the trial."""
    kept = driver["source_packages"] if untried else []
    return {
        "try_install": [*driver["before"], *driver["install"], *(driver["stand_in"] if untried else local)],
        "try_remove": [name for name in driver["remove"] if name not in kept],
    }
