"""zypper's locks: the file of them, whose they are, and a configuration for one transaction that may change packages of ours.

A lock keeps a package from being installed, removed and changed. https://en.opensuse.org/openSUSE:Libzypp_locks_file
"""

from __future__ import annotations

import configparser
import contextlib
import fnmatch
import glob
import os
import re
import tempfile
from typing import Collection, Iterable, Iterator, Mapping

CONFIGURATIONS = ("/etc/zypp/zypp.conf", "/usr/etc/zypp/zypp.conf")
LOCKS = "/etc/zypp/locks"
TEMPORARY = "/run"


def settings() -> configparser.ConfigParser:
    """zypp.conf as libzypp reads it: the host's own file or the vendor's, then what lies in the folders beside both, by name."""
    parser = configparser.ConfigParser(interpolation=None, strict=False, allow_no_value=True)
    of_bundle = os.path.join(os.environ.get("GPUPROV_BUNDLE") or "/nowhere", "zypp.conf")
    if os.path.exists(of_bundle):
        _read_into(parser, of_bundle)
        return parser
    first = next((path for path in CONFIGURATIONS if os.path.exists(path)), "")
    dropped: dict[str, str] = {}
    for path in reversed(CONFIGURATIONS):
        dropped.update({os.path.basename(file): file for file in glob.glob(f"{glob.escape(path)}.d/*.conf")})
    with contextlib.suppress(configparser.Error):
        for path in (first, *(dropped[name] for name in sorted(dropped))):
            _read_into(parser, path)
    return parser


def _read_into(parser: configparser.ConfigParser, path: str) -> None:
    with contextlib.suppress(OSError), open(path, encoding="utf-8", errors="surrogateescape") as file:
        parser.read_file(file, path)


def path() -> str:
    """The file of locks."""
    return settings().get("main", "locksfile.path", fallback="") or LOCKS


def unheeded() -> str:
    """Why locks are not obeyed; empty if they are."""
    applied = settings().get("main", "locksfile.apply", fallback="yes") or "yes"
    return "" if applied.lower() in ("yes", "true", "1", "on", "always") else "locksfile.apply in zypp.conf is off"


def blocks(text: str) -> list[str]:
    """The locks in the text of the file, each with its lines."""
    return [block.strip() for block in re.split(r"\n\s*\n", text) if block.strip()]


def read() -> list[str]:
    """The locks of the host."""
    try:
        with open(path(), encoding="utf-8", errors="surrogateescape") as file:
            return blocks(file.read())
    except FileNotFoundError:
        return []


def _fields(block: str) -> dict[str, str]:
    rows = (line.partition(":") for line in block.splitlines() if not line.startswith("#"))
    return {name.strip(): value.strip() for name, _, value in rows}


def name_of(block: str) -> str:
    """The one package that a lock names; empty for a pattern of names, or another kind."""
    fields = _fields(block)
    name = fields.get("solvable_name", "") if fields.get("type", "package") == "package" else ""
    return "" if re.search(r"[*?\[\]]", name) or fields.get("match_type", "glob") not in ("glob", "exact") else name


def held(locks: Iterable[str], installed: Iterable[str]) -> list[str]:
    """The installed packages that nothing moves: locked in every version."""
    patterns = []
    for block in locks:
        fields = _fields(block)
        whole = fields.get("type", "package") == "package" and not fields.get("version") and not fields.get("repo")
        if whole and fields.get("match_type", "glob") in ("glob", "exact") and fields.get("solvable_name"):
            patterns.append(fields["solvable_name"])
    return sorted(name for name in installed if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns))


@contextlib.contextmanager
def lifted(
    ours: Collection[str], patterns: Collection[str], shut_out: Mapping[str, Collection[str]]
) -> Iterator[dict[str, str]]:
    """An environment in which the locks of these packages do not hold, and these versions of packages cannot be installed.

    The file of locks stays as it is: zypper reads another one, and the rest of its configuration as it is.
    """

    def free(block: str) -> bool:
        name = name_of(block)
        return name in ours or (bool(name) and any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns))

    kept = [block for block in read() if not free(block)]
    kept += [
        f"type: package\nmatch_type: exact\ncase_sensitive: on\nsolvable_name: {name}\nversion: == {version}"
        for name, versions in shut_out.items()
        for version in versions
    ]
    with tempfile.TemporaryDirectory(prefix="gpuprov-zypp-", dir=TEMPORARY) as folder:
        theirs = settings()
        if not theirs.has_section("main"):
            theirs.add_section("main")
        locks = os.path.join(folder, "locks")
        theirs.set("main", "locksfile.path", locks)
        with open(locks, "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write("".join(f"\n{block}\n\n" for block in kept))
        conf = os.path.join(folder, "zypp.conf")
        with open(conf, "w", encoding="utf-8", errors="surrogateescape") as file:
            theirs.write(file)
        yield {"ZYPP_CONF": conf}
