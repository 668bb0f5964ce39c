"""Code that runs as root on a host names no place that others can write to, unless it says how it is safe there."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import gpuprov
from tests.contracts.test_imports import nodes

HOUSE = Path(str(gpuprov.__file__)).parent
ROOT = HOUSE.parent
SHARED = re.compile(
    r"(?<![\w.@/-])(/tmp|/var/tmp|/dev/shm|/run/user|/home|/run/lock|~/|\$HOME|\$\{HOME)(?=[/\"'\s.;)}]|\Z|\w)"
)
SAFE = {
    ("roles/host/files/clear.sh", "~/"): "Ansible's own folder, cleared as the user whose it is",
    ("gpuprov/host_code/rootless.py", "/run/user"): "in the environment of a program that runs as that user",
    ("gpuprov/host_code/efa.py", "/var/tmp"): "a new folder of a random name (tempfile)",
    ("gpuprov/host_code/mps/daemon.py", "/dev/shm"): "its size is read and set; nothing is written there",
    ("gpuprov/host_code/driver/actions.py", "/tmp"): "named in a message",
    ("gpuprov/rules/reach.py", "/tmp"): "whether it can be written; nothing is written there",
    ("gpuprov/bundle/resolve.py", "/var/tmp"): "a new folder of a random name (mktemp -d)",
}
ROOMS = ("host_code", "bundle", "checkpoints", "accept", "apply", "pull", "rules", "fleet/drain")
"""Packages with programs for hosts; commands of probes are in `gpuprov.facts.probes`, and they write nothing."""


def texts(path: Path) -> Iterator[str]:
    """Yield the strings of a program without its docstrings, or the lines of another file without comments."""
    if path.suffix != ".py":
        yield from (line for line in path.read_text(encoding="utf-8").splitlines() if not line.lstrip().startswith("#"))
        return
    passed = {id(node.value) for node in nodes(path) if isinstance(node, ast.Expr)}
    for node in nodes(path):
        if isinstance(node, ast.JoinedStr) and id(node) not in passed:
            passed |= {id(part) for part in node.values}
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "X" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in passed:
            yield node.value


def files() -> Iterator[Path]:
    yield from (path for room in ROOMS for path in sorted((HOUSE / room).rglob("*.py")))
    for folder in ("roles", "plugins", "playbooks"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in (".yml", ".sh", ".py", ".j2", ".service") and "meta" not in path.parts:
                yield path


def named() -> dict[tuple[str, str], str]:
    return {
        (str(path.relative_to(ROOT)), found): text
        for path in files()
        for text in texts(path)
        for found in SHARED.findall(text)
    }


def test_no_place_of_others() -> None:
    found = named()
    assert {place: text[:200] for place, text in found.items() if place not in SAFE} == {}
    assert SAFE.keys() == found.keys(), "each excuse is needed"


def test_what_would_be_unsafe_is_found() -> None:
    for text in ("/tmp/gpuprov.lock", "cp x /var/tmp/a", "echo > ~/x", "$HOME/.cache", "dest: /home/ops/x", "/dev/shm"):
        assert SHARED.search(text), text
    for text in ("/var/lib/gpuprov/tmp", "/etc/tmpfiles.d", "https://x/home", "/usr/share/tmp/x", "homes"):
        assert not SHARED.search(text), text


def test_temporary_names_are_the_systems() -> None:
    """`tempfile` and `mktemp` make names that nobody knows beforehand, and open nothing that is there."""
    for path in files():
        source = path.read_text(encoding="utf-8")
        assert "tempfile.mktemp(" not in source, path
        assert not re.search(r"\bmktemp -u\b", source), path
