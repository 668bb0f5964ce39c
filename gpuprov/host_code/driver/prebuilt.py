"""Modules that one host builds for others: the package that contains them, and whether it fits a host.

It is in the cache of the machine that runs gpuprov, beside a description.
"""

from __future__ import annotations

import json
import re
from typing import Mapping, TypedDict

from ..caches import get_cache_folder
from ..files import compute_digest

# Suffix that such a package's name adds to that of the DKMS package which it replaces.
SUFFIX = "-prebuilt"
FOLDER = "/var/lib/gpuprov/prebuilt"


class Driver(TypedDict, total=False):
    """The driver of a host, as its role receives it: `module` is the DKMS package."""

    module: str
    module_file: str
    flavour: str
    packages: Mapping[str, str]
    kernels: list[str]
    prebuilt: list[str]
    prebuilt_sums: str
    installed: str
    install: list[str]
    remove: list[str]
    before: list[str]
    stand_in: list[str]
    source_packages: list[str]
    reload: bool
    moves: bool


class Trial(TypedDict, total=False):
    """The transaction that is tried."""

    try_install: list[str]
    try_remove: list[str]


class Description(TypedDict, total=False):
    """A description of packed modules: `version` of the DKMS package, `sha256` of the package, `sums` (the SHA-256 of
    the list of the modules' checksums)."""

    version: str
    flavour: str
    kernels: list[str]
    sha256: str
    sums: str


def name_package(driver: Driver) -> str:
    """Return the name of the package that stands in for the DKMS package."""
    return str(driver["module"]) + SUFFIX


def place_of(driver: Driver) -> str:
    """Return the package's path on a host until it is installed, without its suffix."""
    return f"{FOLDER}/{name_package(driver)}"


def make_version(driver: Driver) -> str:
    return str(driver["packages"][driver["module"]])


def make_cache_path(environment: Mapping[str, str], *words: str) -> str:
    """Return the path of package and description on this machine, without their suffixes.

    The name is derived from what hosts report: it is one file of that folder, whatever they report.
    """
    return f"{get_cache_folder(environment)}/gpuprov/modules/" + re.sub("[^A-Za-z0-9.+~@%_-]", "_", "-".join(words))


def read_description(path: str) -> Description:
    """Return the description of the package in the cache; empty if there is none, or it is invalid."""
    try:
        with open(f"{path}.json", encoding="utf-8") as file:
            content: Description = json.load(file)
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def check_sums(path: str) -> str:
    """Return the sums of the modules in the cache; "" if the package is not as it was made."""
    packed = read_description(path)
    return str(packed.get("sums", "")) if packed and compute_digest(f"{path}.deb") == packed.get("sha256") else ""


def find_problem(builder: str, host: str, driver: Driver, offered: Description) -> str:
    """Return the reason why the build host's package does not fit this host, and the fix; "" if it fits."""
    version = make_version(driver)
    says = f"nvidia_driver.build_host {builder}: "
    if not offered:
        return (
            f"{says}it has packed no modules of {driver['module']} {version} for this machine to give out, and is "
            f"not in this run. Fix: gpuprov apply --full --limit {builder}"
        )
    if (offered.get("version"), offered.get("flavour")) != (version, driver["flavour"]):
        return (
            f"{says}it has {offered.get('version')} ({offered.get('flavour')}), and {host} would get {version} "
            f"({driver['flavour']}). "
            "Fix: name an exact nvidia_driver.version and one kernel_modules for both"
        )
    built = offered.get("kernels") or []
    if lacking := [kernel for kernel in driver["kernels"] if kernel not in built]:
        return (
            f"{says}it builds for {', '.join(built)}, and {host} can boot {', '.join(lacking)}. "
            f"Fix: install that kernel on {builder} and apply it, or remove it from {host}"
        )
    return ""


def describe_missing_builder(builder: str, host: str, *, failed: bool) -> str:
    """Return the message for a run whose build host has provided nothing."""
    fix = "Fix: correct what stopped it, and apply again"
    if failed:
        return f"nvidia_driver.build_host {builder} failed in this run; nothing was installed on {host}. {fix}"
    return f"nvidia_driver.build_host {builder} has packed no modules in this run; nothing was installed. {fix}"


def is_lacking(driver: Driver, offered: Description) -> bool:
    """Return whether the package has to be installed. Modules that were signed or built again have the same version."""
    same = driver["prebuilt_sums"] and driver["prebuilt_sums"] == offered.get("sums")
    is_installed = name_package(driver) in driver["prebuilt"] and driver["installed"] == make_version(driver)
    return not (same and is_installed)


def plan_trial(driver: Driver, local: list[str], *, untried: bool) -> Trial:
    """Return the transaction for the trial. A package that the build host is still building does not exist yet, and
    DKMS cannot be removed without it: its package is part of the trial."""
    kept = driver["source_packages"] if untried else []
    return {
        "try_install": [*driver["before"], *driver["install"], *(driver["stand_in"] if untried else local)],
        "try_remove": [name for name in driver["remove"] if name not in kept],
    }
