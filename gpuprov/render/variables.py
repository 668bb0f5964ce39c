"""A fragment -> its role's variables. Names are computed, never mapped: `version` of `nvidia_driver` is
`nvidia_driver_version`."""

from functools import cache
from typing import Any

import msgspec

from gpuprov import __version__
from gpuprov.capabilities import BY_NAME, CAPABILITIES
from gpuprov.host_code.json_members import Json
from gpuprov.render.spec_digest import digests
from gpuprov.spec.model import Fragment, HostSpec

ROLES = ("host", *(capability.name for capability in CAPABILITIES))


def role_variables(name: str, fragment: Fragment) -> dict[str, Json]:
    """Return every field of a fragment as the variable of its role, in the order of the model."""
    plain = msgspec.json.decode(msgspec.json.encode(fragment))
    return {f"{name}_{key}": value for key, value in plain.items()}


def fleet_variables() -> dict[str, Any]:
    """Return the variables shared by all hosts: the catalogue's tables by which the roles decide."""
    return {"gpuprov_version": __version__, "gpuprov_catalog": _catalog()}


@cache
def _catalog() -> dict[str, object]:
    """Return the tables of all capabilities, by name."""
    tables: dict[str, object] = {}
    for capability in BY_NAME.values():
        tables |= capability.tables()
    return dict(sorted(tables.items()))


def host_variables(spec: HostSpec) -> dict[str, Json]:
    """Return all variables of one host: the house's, then each role's."""
    variables: dict[str, Json] = {
        "gpuprov_capabilities": list(spec.capabilities),
        "gpuprov_reboot": spec.reboot,
        "gpuprov_on_failure": spec.on_failure,
        "gpuprov_gpu": msgspec.to_builtins(spec.gpu) if spec.gpu else {},
    }
    for name, fragment in spec.capabilities.items():
        variables |= role_variables(name, fragment)
    return {**variables, "gpuprov_digests": digests(spec)}
