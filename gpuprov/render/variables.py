"""A fragment -> its role's variables. Names are computed, never mapped: `version` of `nvidia_driver` is `nvidia_driver_version`."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import cache
from typing import Any

import msgspec

from gpuprov import __version__
from gpuprov.capabilities import BY_NAME, CAPABILITIES
from gpuprov.render.carried import plugin_files, role_files
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
    catalog: dict[str, object] = {}
    for capability in BY_NAME.values():
        catalog |= capability.tables()
    return {"gpuprov_version": __version__, "gpuprov_catalog": dict(sorted(catalog.items()))}


def digest(name: str, fragment: Fragment, site: Mapping[str, object] | None = None) -> str:
    """sha256 over a capability's variables, what the site set for its role, and the role itself.

    Equal digests mean that the same thing was applied.
    """
    overrides = {key: value for key, value in (site or {}).items() if key.startswith(f"{name}_")}
    variables = json.dumps(role_variables(name, fragment) | overrides, sort_keys=True)
    return hashlib.sha256((role_digest(name) + variables).encode()).hexdigest()


@cache
def role_digest(name: str) -> str:
    """sha256 over the files of a role, the modules that it may use, and the catalogue's tables that roles decide by."""
    state = hashlib.sha256(json.dumps(fleet_variables(), sort_keys=True).encode())
    for path, file in (role_files(name) | plugin_files()).items():
        state.update(path.encode() + b"\0" + file.read_bytes() + b"\0")
    return state.hexdigest()


ROLES = ("host", *(capability.name for capability in CAPABILITIES))
