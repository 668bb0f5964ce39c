"""zypper's locks: their file, what they hold, and a configuration for one transaction that may change our packages.

A lock keeps a package from being installed, removed and changed. https://en.opensuse.org/openSUSE:Libzypp_locks_file It
is a query, read as libzypp does: https://github.com/openSUSE/libzypp/blob/master/zypp/PoolQuery.cc
"""

from __future__ import annotations

import configparser
import contextlib
import fnmatch
import glob
import os
import re
import tempfile
from typing import Collection, Iterable, Iterator, Mapping, Sequence

from .. import bundle, files

CONFIGURATIONS = ("/etc/zypp/zypp.conf", "/usr/etc/zypp/zypp.conf")
LOCKS = "/etc/zypp/locks"
TEMPORARY = "/run"
TRUE = ("1", "yes", "true", "on", "always")


def read_settings() -> configparser.ConfigParser:
    """Return zypp.conf as libzypp reads it: the host's own file or the vendor's, then the files in the folders beside
    both, by name."""
    parser = configparser.ConfigParser(interpolation=None, strict=False, allow_no_value=True)
    of_run = os.path.join(bundle.get_folder() or "/nowhere", "zypp.conf")
    if os.path.exists(of_run):
        _read_into(parser, of_run)
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


def find_path() -> str:
    """Return the file of locks."""
    return read_settings().get("main", "locksfile.path", fallback="") or LOCKS


def explain_unheeded() -> str:
    """Return the reason why locks are not obeyed; "" if they are."""
    applied = read_settings().get("main", "locksfile.apply", fallback="yes") or "yes"
    return "" if applied.lower() in TRUE else "locksfile.apply in zypp.conf is off"


def split_blocks(text: str) -> list[str]:
    """Return the locks in the text of the file, each with its lines; a line without a colon ends a lock, as a blank
    line does."""
    # /etc/zypp/locks has a block for each lock:
    #     type: package
    #     match_type: glob
    #     case_sensitive: on
    #     solvable_name: gp-driver
    groups: list[list[str]] = [[]]
    for line in text.splitlines():
        if line.startswith("#") or ":" in line:
            groups[-1].append(line)
        else:
            groups.append([])
    return ["\n".join(lines).strip() for lines in groups if any(not line.startswith("#") for line in lines)]


def read() -> list[str]:
    """Return the locks of the host."""
    try:
        with open(find_path(), encoding="utf-8", errors="surrogateescape") as file:
            return split_blocks(file.read())
    except FileNotFoundError:
        return []


SYNONYMS = {"kind": "type", "global_string": "query_string", "string_type": "match_type"}
# Attributes of a lock by name only.
BY_NAME = {"type", "match_type", "case_sensitive", "solvable_name"}
# Attributes that restrict a lock to some versions. Other attributes widen it: a package is locked that one of them
# matches.
NARROWING = {"version", "repo", "complex", "install_status"}


def parse_fields(block: str) -> dict[str, list[str]]:
    fields: dict[str, list[str]] = {}
    for line in block.splitlines():
        key, colon, value = line.partition(":")
        if colon and not line.startswith("#"):
            fields.setdefault(SYNONYMS.get(key.strip(), key.strip()), []).append(value.strip())
    return fields


def is_of_packages(fields: Mapping[str, list[str]]) -> bool:
    return "package" in fields.get("type", ["package"])


def is_match(how: str, pattern: str, name: str) -> bool:
    """Return whether a name matches a pattern in libzypp's way `how`; without a way, as a substring."""
    if how == "glob":
        return fnmatch.fnmatchcase(name, pattern)
    if how == "exact":
        return name == pattern
    if how in ("regex", "word"):
        try:
            return re.search(pattern if how == "regex" else rf"\b{re.escape(pattern)}\b", name) is not None
        except re.error:
            return False
    return pattern in name


def name_of(block: str) -> str:
    """Return the only package that a lock names; "" for a pattern of names, or another kind."""
    fields = parse_fields(block)
    names = fields.get("solvable_name", []) if is_of_packages(fields) else []
    plain = fields.get("match_type", ["substring"])[-1] in ("glob", "exact") and "query_string" not in fields
    return "" if len(names) != 1 or not plain or re.search(r"[*?\[\]\s]", names[0]) else names[0]


def is_holding(block: str, name: str) -> bool:
    """Return whether a lock holds this package in every version, so that it is neither changed nor removed."""
    fields = parse_fields(block)
    if NARROWING & set(fields) or not is_of_packages(fields):
        return False
    # Of a name and a version, as `a > 1`, it is a lock of some versions.
    patterns = [text for text in fields.get("solvable_name", []) if text and not re.search(r"[<>=]", text)]
    attributes = [key for key in fields if key not in BY_NAME and key != "query_string"]
    if patterns or not attributes:
        patterns += filter(None, fields.get("query_string", []))
    how = fields.get("match_type", [""])[-1]
    if fields.get("case_sensitive", ["off"])[-1].lower() not in TRUE:
        how, name, patterns = ignore_case(how, name, patterns)
    return any(is_match(how, pattern, name) for pattern in patterns)


def ignore_case(how: str, name: str, patterns: Sequence[str]) -> tuple[str, str, list[str]]:
    flag = "(?i)" if how == "regex" else ""
    return how, name.lower(), [f"{flag}{pattern}" if flag else pattern.lower() for pattern in patterns]


def list_held(locks: Iterable[str], installed: Iterable[str]) -> list[str]:
    """Return the installed packages that nothing changes: locked in every version."""
    names = list(locks)
    return sorted(name for name in installed if any(is_holding(block, name) for block in names))


def drop(names: Collection[str]) -> None:
    """Remove the locks that name these packages, whatever else they contain: zypper removes those with a name only."""
    locks = read()
    kept = [block for block in locks if name_of(block) not in names]
    if kept != locks:
        files.write(os.path.realpath(find_path()), format_locks(kept))


def format_locks(locks: Iterable[str]) -> str:
    return "".join(f"\n{block}\n\n" for block in locks)


@contextlib.contextmanager
def lift_locks(
    own_names: Collection[str], patterns: Collection[str], shut_out: Mapping[str, Collection[str]]
) -> Iterator[dict[str, str]]:
    """Yield an environment in which the locks of these packages are not in effect, and these versions of packages
    cannot be installed."""
    # The file of locks stays unchanged: zypper reads another one, with the rest of its configuration.

    def free(block: str) -> bool:
        name = name_of(block)
        return name in own_names or (bool(name) and any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns))

    kept = [block for block in read() if not free(block)]
    kept += [
        f"type: package\nmatch_type: exact\ncase_sensitive: on\nsolvable_name: {name}\nversion: == {version}"
        for name, versions in shut_out.items()
        for version in versions
    ]
    with tempfile.TemporaryDirectory(prefix="gpuprov-zypp-", dir=TEMPORARY) as folder:
        site_settings = read_settings()
        if not site_settings.has_section("main"):
            site_settings.add_section("main")
        locks = os.path.join(folder, "locks")
        site_settings.set("main", "locksfile.path", locks)
        with open(locks, "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write(format_locks(kept))
        conf = os.path.join(folder, "zypp.conf")
        with open(conf, "w", encoding="utf-8", errors="surrogateescape") as file:
            site_settings.write(file)
        yield {"ZYPP_CONF": conf}
