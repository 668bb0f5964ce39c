"""A resolved inventory as a file, without its secrets."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from gpuprov.core import safe_parse
from gpuprov.core.errors import GpuprovError
from gpuprov.core.safe_parse import Tree
from gpuprov.core.sanitize import secrets_in
from gpuprov.fleet.specs import Fleet as Judged
from gpuprov.fleet.specs import build_spec
from gpuprov.jobs.model import Fleet, Host, digest_of, spec_id
from gpuprov.spec.connection import is_left_out, list_texts, refuse_secrets
from gpuprov.spec.model import HostSpec, RawHost, is_connection, is_secret
from gpuprov.spec.repository import list_block_files, locate_values

# Host variables that are always kept, to slice by.
DOMAINS = ("site", "rack")
# Minimum length, in characters, of a secret that is searched for in the output: a shorter one would match ordinary
# words.
SHORTEST = 8
# Maximum size, in bytes, of a file whose digest is stored; a larger one (a .run file, a bundle) has its own checksum
# in the spec.
PINNED = 1 << 20


def freeze(judged: Judged, made_at: str = "") -> Fleet:
    """Freeze the specs of these hosts. Raises GpuprovError if a value to be written contains a secret's value.

    The hosts were read with `also`: every variable that is not of a connection is a domain.
    """
    known: dict[int, tuple[str, Tree]] = {}
    specs: dict[str, Tree] = {}
    files: dict[str, str] = {}
    hosts = []
    for raw, spec in judged.pairs:
        if id(raw.values) not in known:
            values = locate_values(raw.values, raw.origins)
            refuse_secrets(raw.name, values)
            known[id(raw.values)] = (spec_id(values), values)
            _assert_round_trip(raw.name, values, spec)
            files |= _map_pinned(spec)
        name, values = known[id(raw.values)]
        specs.setdefault(name, values)
        hosts.append(_make_host(raw, name))
    _refuse_leaks(judged, hosts, specs)
    kept = {group for host in hosts for group in host.groups}
    made = Fleet(
        made_at=made_at,
        files=dict(sorted(files.items())),
        groups={
            group: tuple(sorted(child for child in inner if child in kept))
            for group, inner in sorted(judged.children.items())
            if group == "all" or group in kept
        },
        specs=dict(sorted(specs.items())),
        hosts=tuple(hosts),
    )
    return msgspec.structs.replace(made, digest=digest_of(made))


def _make_host(raw: RawHost, spec: str) -> Host:
    reached = {name: value for name, value in sorted(raw.connection.items()) if is_connection(name)}
    return Host(
        name=raw.name,
        groups=raw.groups,
        spec=spec,
        connection={name: value for name, value in reached.items() if not is_left_out(name, value)},
        secrets=tuple(name for name, value in reached.items() if is_left_out(name, value) and value not in (None, "")),
        domains=dict(_list_domains(raw)),
    )


def _list_domains(raw: RawHost) -> Iterator[tuple[str, str]]:
    for name, value in sorted(raw.connection.items()):
        if is_connection(name) or value in (None, ""):
            continue
        if isinstance(value, str | int) and not is_secret(name):
            yield name, str(value)
        elif name not in DOMAINS:
            fix = "a domain is a name or a number, such as rack: r12: name another variable with --domain"
            raise GpuprovError(f"{raw.name}: the variable {name} is not a domain", fix)


def raw_hosts(hosts: Iterable[Host], specs: Mapping[str, Tree]) -> list[RawHost]:
    """Return the hosts as in the inventory; equal specs are one object, so that each is judged once. Raises
    GpuprovError for a variable that is not part of a connection."""
    raws = []
    for host in hosts:
        if strange := [name for name in host.connection if not is_connection(name) or is_secret(name)]:
            message = f"{host.name}: {strange[0]} is not a variable that says how a host is reached"
            raise GpuprovError(message, "freeze the inventory again, and slice that")
        raws.append(
            RawHost(name=host.name, groups=host.groups, values=specs[host.spec], connection=dict(host.connection))
        )
    return raws


def _assert_round_trip(host: str, values: Tree, spec: HostSpec) -> None:
    """Raise GpuprovError if the spec changes in a round trip through JSON."""
    try:
        again, _ = build_spec(RawHost(name=host, values=msgspec.json.decode(msgspec.json.encode(values))))
    except (TypeError, ValueError, msgspec.MsgspecError) as error:
        raise GpuprovError(
            f"{host}: its spec cannot be written as JSON: {error}", "quote what is meant as text"
        ) from error
    if again is None or (again.capabilities, again.gpu, again.reboot) != (spec.capabilities, spec.gpu, spec.reboot):
        raise GpuprovError(f"{host}: its spec changes when it is written as JSON", "quote what is meant as text")


def _map_pinned(spec: HostSpec) -> dict[str, str]:
    return {
        path: digest
        for fragment in spec.capabilities.values()
        for path in list_block_files(fragment)
        if (digest := digest_of_file(path))
    }


def digest_of_file(path: str) -> str:
    """Return the SHA-256 of a small file of this machine; empty if there is none, or a large one."""
    try:
        return hashlib.sha256(safe_parse.read_contents(path, PINNED)).hexdigest()
    except (OSError, safe_parse.Unreadable):
        return ""


def _refuse_leaks(judged: Judged, hosts: Sequence[Host], specs: Mapping[str, Tree]) -> None:
    """Raise GpuprovError if a secret's value, of whatever host, is part of a value that is not named as a secret, for
    example through a template."""
    known: dict[str, tuple[str, str]] = {}
    for (raw, _), host in zip(judged.pairs, hosts, strict=True):
        for name in host.secrets:
            for value in list_texts(raw.connection[name]):
                if len(value) >= SHORTEST:
                    known.setdefault(value, (host.name, name))
    if not known:
        return
    begins: dict[str, list[str]] = {}
    for value in known:
        begins.setdefault(value[:SHORTEST], []).append(value)
    leaked = {name: _find_leak(begins, spec) for name, spec in specs.items()}
    for host in hosts:
        values = {**host.domains, **host.connection}
        leaks = ((place, value) for place, content in values.items() if (value := _find_leak(begins, content)))
        place, value = next(leaks, ("its spec", leaked[host.spec]))
        if value:
            owner, name = known[value]
            whose = name if owner == host.name else f"{name} of {owner}"
            raise GpuprovError(
                f"{host.name}: {place} holds the value of {whose}, and no secret is written into this file",
                "say it in a variable whose name says that it is secret (password, token), or in a file",
            )


def _find_leak(begins: Mapping[str, Sequence[str]], value: object) -> str:
    """Return the secret contained in the value, or an empty text."""
    return next((secret for text in list_texts(value) for _, secret in secrets_in(text, begins)), "")
