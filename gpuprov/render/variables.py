"""A fragment -> its role's variables. Names are computed, never mapped: `version` of `nvidia_driver` is `nvidia_driver_version`."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import cache
from typing import Any

import msgspec

from gpuprov import __version__, assets
from gpuprov.capabilities import CAPABILITIES
from gpuprov.catalog import cuda, dcgm, fabric, repositories, toolkit, toolkits, vgpu
from gpuprov.catalog.driver_sets import GPU_SERVICES, all_driver_packages, kernel_module_table
from gpuprov.catalog.platforms import platforms
from gpuprov.probe import container_engines, container_toolkit, house, nvidia, signing, virtualization
from gpuprov.probe.repositories import REPOSITORIES
from gpuprov.probe.vgpu import GRIDD
from gpuprov.spec.model import Fragment, HostSpec


def role_variables(name: str, fragment: Fragment) -> dict[str, Any]:
    """Every field of a fragment as the variable of its role, in the order of the model."""
    plain = msgspec.json.decode(msgspec.json.encode(fragment))
    return {f"{name}_{key}": value for key, value in plain.items()}


def host_variables(spec: HostSpec) -> dict[str, Any]:
    """All variables of one host: the house's, then each role's."""
    variables: dict[str, Any] = {
        "gpuprov_capabilities": list(spec.capabilities),
        "gpuprov_reboot": spec.reboot,
        "gpuprov_gpu": msgspec.to_builtins(spec.gpu) if spec.gpu else {},
        "gpuprov_digests": {name: digest(name, fragment, spec.site) for name, fragment in spec.capabilities.items()},
    }
    for name, fragment in spec.capabilities.items():
        variables |= role_variables(name, fragment)
    return variables


def fleet_variables() -> dict[str, Any]:
    """What is the same for every host: the catalogue's tables that the roles decide by."""
    return {
        "gpuprov_version": __version__,
        "gpuprov_catalog": {
            "platforms": platforms(),
            "flavours": kernel_module_table(),
            "driver_packages": all_driver_packages(),
            "cuda_drivers": cuda.floors(),
            "cuda_toolkit": {**toolkits.tables(), "scripts": {nvidia.LIBRARIES.name: nvidia.LIBRARIES.script}},
            "gpu_services": GPU_SERVICES,
            "signing": signing_tables(),
            "dcgm": dcgm.tables(),
            "fabric_manager": fabric.tables(),
            "vgpu_guest": {**vgpu.tables(), "scripts": {p.name: p.script for p in (virtualization.FUNCTIONS, GRIDD)}},
            "repositories": {**repositories.tables(), "script": REPOSITORIES.script},
            "container_toolkit": {**toolkit.tables(), "scripts": toolkit_scripts()},
        },
    }


def signing_tables() -> dict[str, object]:
    """Where the site's key lies on a host, which DKMS takes one, and how the role reads what the firmware trusts."""
    return {
        "key_file": signing.KEY_FILE,
        "certificate_file": signing.CERTIFICATE_FILE,
        "settings_file": signing.SETTINGS_FILE,
        "dkms_since": signing.DKMS_SINCE,
        "scripts": {
            probe.name: probe.script for probe in (signing.ENROLLED, house.DKMS_KEY_ENROLLED, house.SECURE_BOOT)
        },
    }


def toolkit_scripts() -> dict[str, str]:
    """The probes that container_toolkit's role reads a host with, as the checks do."""
    return {probe.name: probe.script for probe in (container_engines.ENGINES, container_toolkit.TOOLKIT)}


def digest(name: str, fragment: Fragment, site: Mapping[str, object] | None = None) -> str:
    """sha256 over a capability's variables, what the site set for its role, and the role itself.

    Equal digests mean that the same thing was applied.
    """
    overrides = {key: value for key, value in (site or {}).items() if key.startswith(f"{name}_")}
    variables = json.dumps(role_variables(name, fragment) | overrides, sort_keys=True)
    return hashlib.sha256((role_digest(name) + variables).encode()).hexdigest()


@cache
def role_digest(name: str) -> str:
    """sha256 over the files of a role, and over the catalogue's tables that roles decide by."""
    state = hashlib.sha256(json.dumps(fleet_variables(), sort_keys=True).encode())
    folder = assets.root() / "roles" / name
    for file in sorted(path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts):
        state.update(str(file.relative_to(folder)).encode() + b"\0" + file.read_bytes() + b"\0")
    return state.hexdigest()


ROLES = ("host", *(capability.name for capability in CAPABILITIES))
