"""The resolved inventory, kept between runs, so that a run on unchanged sources need not import Ansible.

Never kept: results of scripts, plugins, templates or vaults, anything that looks like a secret, and inventories with
problems. A file belongs to one user (mode 0600), is written completely or not at all, and is ignored if it is damaged
or another user's.
"""

import hashlib
import os
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from gpuprov import __version__
from gpuprov.core import disk_cache
from gpuprov.core.safe_parse import Tree
from gpuprov.inventory.resolved import Resolved
from gpuprov.inventory.sources import find_ansible_config, is_host_list
from gpuprov.spec.model import RawHost
from gpuprov.spec.problem import Origin, Problem

FORMAT = 3
ROOM = "inventory"
LARGEST = 256 * 1024 * 1024
MOST_FILES = 20_000
_SECRET = re.compile(r"pass|secret|token|private_key|credential|api_?key", re.IGNORECASE)
_KEY_FILE = re.compile(r"private_key_file\Z")


class Entry(msgspec.Struct, array_like=True):
    """The contents of a cache file: values and places are stored once for all hosts that share them."""

    files: list[str]
    paths: list[tuple[str | int, ...]]
    groups: list[str]
    chains: list[list[int]]
    shapes: list[tuple[Tree, list[int]]]
    connections: list[tuple[Tree, dict[str, Origin]]]
    hosts: list[tuple[str, int, int, int]]
    warnings: list[Problem]


class Unkept(Exception):
    """Raised for sources that are never kept."""


def compute_key(paths: list[str]) -> str | None:
    """Return the name of the entry, a digest of all that the answer depends on; None for sources that are never
    kept."""
    digest = hashlib.sha256()

    def tell(*parts: str | bytes) -> None:
        for part in parts:
            data = part.encode("utf-8", "surrogateescape") if isinstance(part, str) else part
            digest.update(b"%d:" % len(data) + data)

    try:
        tell(str(FORMAT), __version__, sys.version, identify_ansible(), os.getcwd(), os.path.expanduser("~"))
        for name in sorted(os.environ):
            if name.startswith("ANSIBLE_"):
                tell(name, os.environ[name])
        config = find_ansible_config()
        if config is not None:
            tell(config, Path(config).read_bytes())
        for source in paths:
            tell("source", source)
        for name, content in read_contents(paths):
            tell(name, content)
    except (OSError, Unkept):
        return None
    return digest.hexdigest()


def read(name: str) -> Resolved | None:
    """Return the entry if there is a sound one of this user."""
    body = disk_cache.read(ROOM, f"{name}.msgpack")
    if body is None:
        return None
    try:
        return _unpack(msgspec.msgpack.decode(body, type=Entry))
    except (msgspec.MsgspecError, IndexError):
        return None


def write(name: str, resolved: Resolved) -> None:
    """Store the entry, unless it must not be kept or the folder cannot be written."""
    if not resolved.cacheable:
        return
    try:
        body = msgspec.msgpack.encode(pack_entry(resolved))
    except (Unkept, OverflowError, TypeError, UnicodeError):
        return
    disk_cache.write(ROOM, f"{name}.msgpack", body)


def identify_ansible() -> bytes:
    """Identify the Ansible that would be imported, without importing it."""
    from importlib.util import find_spec

    spec = find_spec("ansible")
    if spec is None or spec.origin is None:
        raise Unkept
    return spec.origin.encode() + (Path(spec.origin).parent / "release.py").read_bytes()


def read_contents(paths: list[str]) -> Iterator[tuple[str, bytes]]:
    """Yield every file that the answer depends on, in a fixed order."""
    beside = ["group_vars", "host_vars", "vars_plugins"]
    trees: list[str] = []
    for source in paths:
        if is_host_list(source):
            continue
        trees.append(source)
        if not os.path.isdir(source):
            trees += [os.path.join(os.path.dirname(source), name) for name in beside]
    trees += [os.path.join(os.getcwd(), name) for name in beside]
    for home in (os.environ.get("ANSIBLE_HOME", "~/.ansible"), "/usr/share/ansible"):
        trees += [os.path.join(os.path.expanduser(home), "plugins", name) for name in ("vars", "inventory")]
    files = list(dict.fromkeys(file for tree in trees for file in list_files(tree)))
    if len(files) > MOST_FILES or sum(os.path.getsize(file) for file in files) > LARGEST:
        raise Unkept
    sources = [source for source in paths if not is_host_list(source)]
    for file in files:
        content = Path(file).read_bytes()
        is_source = any(file == source or file.startswith(source + "/") for source in sources)
        if b"$ANSIBLE_VAULT" in content or b"!vault" in content or (is_source and os.access(file, os.X_OK)):
            raise Unkept
        yield file, content


def list_files(tree: str) -> Iterator[str]:
    if os.path.isfile(tree):
        yield tree
    seen: set[str] = set()
    for place, folders, names in os.walk(tree, followlinks=True):
        real = os.path.realpath(place)
        folders[:] = [] if real in seen else sorted(name for name in folders if not name.startswith("."))
        seen.add(real)
        for name in sorted(names):
            path = os.path.join(place, name)
            if not name.startswith(".") and os.path.isfile(path):
                yield path


def pack_entry(resolved: Resolved) -> Entry:
    entry = Entry([], [], list(resolved.groups), [], [], [], [], list(resolved.warnings))
    files: dict[str, int] = {}
    paths: dict[tuple[str | int, ...], int] = {}
    group_numbers = {name: number for number, name in enumerate(resolved.groups)}
    chains: dict[tuple[str, ...], int] = {}
    shapes: dict[tuple[int, int], int] = {}
    connections: dict[tuple[int, int], int] = {}
    for host in resolved.hosts:
        chain = chains.setdefault(host.groups, len(chains))
        if chain == len(entry.chains):
            entry.chains.append([group_numbers[name] for name in host.groups])
        shape = shapes.setdefault((id(host.values), id(host.origins)), len(shapes))
        if shape == len(entry.shapes):
            refuse_unkept(host.values)
            places: list[int] = []
            for path, origin in host.origins.items():
                number = paths.setdefault(path, len(paths))
                places += (number, files.setdefault(origin.file, len(files)), origin.line, origin.column)
            entry.shapes.append((host.values, places))
        connection = connections.setdefault((id(host.connection), id(host.places)), len(connections))
        if connection == len(entry.connections):
            refuse_unkept(host.connection)
            entry.connections.append((host.connection, host.places))
        entry.hosts.append((host.name, chain, shape, connection))
    entry.files, entry.paths = list(files), list(paths)
    return entry


def _unpack(entry: Entry) -> Resolved:
    chains = [tuple(entry.groups[number] for number in chain) for chain in entry.chains]
    shapes = []
    for values, places in entry.shapes:
        rows = iter(places)
        origins = {
            entry.paths[path]: Origin(entry.files[file], line, column)
            for path, file, line, column in zip(rows, rows, rows, rows, strict=True)
        }
        shapes.append((values, origins))
    hosts = tuple(
        RawHost(
            name=name,
            groups=chains[chain],
            values=shapes[shape][0],
            origins=shapes[shape][1],
            connection=entry.connections[connection][0],
            places=entry.connections[connection][1],
        )
        for name, chain, shape, connection in entry.hosts
    )
    return Resolved(hosts=hosts, groups=tuple(entry.groups), warnings=tuple(entry.warnings))


def refuse_unkept(value: object, name: str = "") -> None:
    """Raise Unkept for a secret-like name, a template, or a type that would not be restored unchanged."""
    if _SECRET.search(name) and not _KEY_FILE.search(name):
        raise Unkept
    if isinstance(value, Mapping):
        for key_, item in value.items():
            if type(key_) is not str:
                raise Unkept
            refuse_unkept(item, key_)
    elif isinstance(value, list):
        for item in value:
            refuse_unkept(item)
    elif value is not None and type(value) not in (str, int, float, bool):
        raise Unkept
