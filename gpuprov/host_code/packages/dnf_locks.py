"""Part of the program for dnf's Python (3.6 on EL 8): the file of dnf's plugin versionlock, read as the plugin does."""

import configparser
import fnmatch
import os
import re
import tempfile
from typing import Any, Collection, Iterable, Iterator, List, Tuple

import dnf.subject
import hawkey

# What dnf's versionlock reads a line as: https://github.com/rpm-software-management/dnf-plugins-core
# plugins/versionlock.py
LOCK_FORMS = [hawkey.FORM_NEVRA, hawkey.FORM_NEVR, hawkey.FORM_NEV, hawkey.FORM_NA, hawkey.FORM_NAME]

# Behind the name: nothing, a version or version-release (with or without epoch and architecture), or an architecture
# alone.
LOCKED = re.compile(r"(-(\d+:)?\d[^-\s]*(-[\d*][^-\s]*)?|\.(noarch|x86_64|aarch64|i[3-6]86|ppc64le|s390x))?\Z")


def lock_file(base: Any) -> Tuple[str, bool, bool]:
    """Return the file of locks, whether the plugin is installed, and whether dnf obeys it: nobody switched it off."""
    parser = configparser.ConfigParser()
    for path in [os.path.join(folder, "versionlock.conf") for folder in base.conf.pluginconfpath]:
        if os.path.exists(path):
            with open(path, encoding="utf-8", errors="surrogateescape") as file:
                parser.read_file(file, path)
    has_plugin = any(os.path.exists(os.path.join(folder, "versionlock.py")) for folder in base.conf.pluginpath)
    obeyed = bool(base.conf.plugins) and parser.getboolean("main", "enabled", fallback=True)
    path = parser.get("main", "locklist", fallback="/etc/dnf/plugins/versionlock.list")
    return path, has_plugin, has_plugin and obeyed


def explain_unlocked(path: str) -> str:
    """Return the reason why nothing can be locked although the plugin is installed."""
    return "dnf does not obey %s: its plugins, or versionlock, are switched off" % path


def read_lines(path: str) -> List[str]:
    """Return the lines of a file that may not exist."""
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            return file.read().splitlines()
    except FileNotFoundError:
        return []


def list_locks(base: Any, lines: Iterable[str]) -> Iterator[Tuple[bool, str, Any]]:
    """Yield (excluding, name or glob of names, query of matches) for each line."""
    for line in lines:
        pattern = line.strip().lstrip("!")
        if not pattern or pattern.startswith("#"):
            continue
        for nevra in dnf.subject.Subject(pattern).get_nevra_possibilities(forms=LOCK_FORMS):
            query = _find_packages(base, nevra)
            if query:
                yield line.strip().startswith("!"), nevra.name, query
                break


def _find_packages(base: Any, nevra: Any) -> Any:
    """Return the query of a lock's packages, with those that excludepkgs hides: they are installed, and held, all the
    same."""
    parts = {key: getattr(nevra, key) for key in ("name", "version", "release", "arch")}
    pattern = {key + "__glob": value for key, value in parts.items() if value}
    if nevra.epoch is not None:
        pattern["epoch"] = nevra.epoch
    return base.sack.query(flags=hawkey.IGNORE_EXCLUDES).filterm(**pattern)


def apply(base: Any, own_names: Collection[str], pinned: Iterable[str]) -> None:
    """Exclude packages that the host's locks forbid, except our own, whose locks this transaction may change."""
    globs = list(pinned)
    excluded = base.sack.query().filterm(empty=True)
    for excluding, name, query in list_locks(base, read_lines(lock_file(base)[0])):
        rest = base.sack.query().filterm(name__glob=name).difference(query)
        excluded = excluded.union(query if excluding else rest)
    free = [p for p in excluded if p.name in own_names or any(fnmatch.fnmatchcase(p.name, glob) for glob in globs)]
    excluded = excluded.difference(base.sack.query().filterm(pkg=free)) if free else excluded
    base.sack.add_excludes(excluded.filterm(reponame__neq=hawkey.SYSTEM_REPO_NAME))


def find_locked_name(line: str, names: Iterable[str]) -> str:
    """Return the name that the line locks, "" if none: the longest of those that are followed by a version or by
    nothing.

    Lines that exclude, comments and globs of names lock none of them.
    """
    text = line.strip()
    fitting = [name for name in names if text.startswith(name) and LOCKED.match(text[len(name) :])]
    return max(fitting, key=len) if fitting else ""


def write(path: str, lines: Iterable[str]) -> None:
    """Replace the file at once."""
    handle, fresh = tempfile.mkstemp(prefix=".gpuprov-", dir=os.path.dirname(path))
    with os.fdopen(handle, "w", encoding="utf-8", errors="surrogateescape") as file:
        file.write("".join(line + "\n" for line in lines))
    os.chmod(fresh, 0o644)
    os.replace(fresh, path)
