"""Conversion of a rendered host's variables back to its spec, the inverse of render/variables.py, so that a play is
judged by what it will do."""

import json
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from typing import TypeVar, get_args

import msgspec

from gpuprov import __version__
from gpuprov.capabilities import CAPABILITIES
from gpuprov.core import safe_parse
from gpuprov.core.errors import GpuprovError
from gpuprov.core.safe_parse import Tree, TreeView
from gpuprov.spec.model import SITE_VARIABLES, Fragment, GpuSpec, HostSpec, Reboot

RENDERED = "gpuprov_version"
F = TypeVar("F", bound=Fragment)


@cache
def names() -> tuple[str, ...]:
    """Return the names of the variables that `spec_of` reads, as far as a host has them."""
    own = [RENDERED, "gpuprov_capabilities", "gpuprov_reboot", "gpuprov_gpu"]
    fields = (name for capability in CAPABILITIES for name, _ in _fields(capability.name, capability.fragment))
    return (*own, *sorted(SITE_VARIABLES), *fields)


def prepare() -> None:
    """Have msgspec learn the types of all blocks, as it does at the first conversion, so that forked processes know
    them."""
    names()
    for capability in CAPABILITIES:
        with suppress(msgspec.ValidationError):
            msgspec.convert({}, capability.fragment)


def spec_of(host: str, groups: Iterable[str], variables: TreeView) -> HostSpec:
    """Return the host's spec. Raises GpuprovError for variables of another version, or that the roles would not
    accept."""
    given = {name: variables[name] for name in names() if name in variables}  # Ansible's own kinds of text and lists
    plain: Tree = safe_parse.parse_json(json.dumps(given))
    rendered = str(plain.get(RENDERED, ""))
    if rendered != __version__:
        raise GpuprovError(
            f"this project was rendered by gpuprov {rendered or 'of an unknown version'}, and gpuprov {__version__} "
            "is installed here",
            f"render it again, or: pip install gpuprov=={rendered or 'VERSION'}",
        )
    blocks: dict[str, Fragment] = {}
    for capability in CAPABILITIES:
        if capability.name in plain.get("gpuprov_capabilities", ()):
            values = {
                field: plain[name] for name, field in _fields(capability.name, capability.fragment) if name in plain
            }
            blocks[capability.name] = _typed(host, capability.name, values, capability.fragment)
    gpu = plain.get("gpuprov_gpu") or None
    return HostSpec(
        name=host,
        groups=tuple(groups),
        gpu=_typed(host, "gpu", gpu, GpuSpec) if gpu else None,
        reboot=_reboot(host, plain.get("gpuprov_reboot", "never")),
        capabilities=blocks,
        site={name: value for name, value in plain.items() if name in SITE_VARIABLES},
    )


@cache
def _fields(name: str, fragment: type[Fragment]) -> list[tuple[str, str]]:
    """Return each variable of a role, and the field that it holds."""
    return [(f"{name}_{item.encode_name}", item.encode_name) for item in msgspec.structs.fields(fragment)]


def _reboot(host: str, value: object) -> Reboot:
    try:
        allowed: Reboot = msgspec.convert(value, Reboot)
    except msgspec.ValidationError as error:
        raise GpuprovError(
            f"{host}: gpuprov_reboot is {value!r}", f"set it to {' or '.join(get_args(Reboot))}"
        ) from error
    return allowed


def _typed(host: str, name: str, values: object, kind: type[F]) -> F:
    try:
        return msgspec.convert(values, kind)
    except msgspec.ValidationError as error:
        raise GpuprovError(
            f"{host}: the variables of {name} are not what gpuprov renders: {error}",
            "render the project again; a value is changed in the inventory that it came from",
        ) from error
