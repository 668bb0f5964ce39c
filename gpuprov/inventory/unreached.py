"""Specs that reach no host: of a group without hosts, or in files of variables that Ansible does not read.

These are warnings: a script or plugin may return other hosts tomorrow, files of variables may serve several
inventories, and a group may be empty on purpose, as an empty `hosts:` shows. A group in a YAML inventory that has
nothing but variables is an error.
"""

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from typing import Any, Literal

from ansible import constants
from ansible.errors import AnsibleError

from gpuprov.core import safe_parse
from gpuprov.inventory.findings import Findings
from gpuprov.inventory.loader import YAML_NAMES, Loader
from gpuprov.inventory.origin import find_origin
from gpuprov.inventory.source import Manager
from gpuprov.inventory.sources import BESIDE, show_path
from gpuprov.spec.problem import Origin, Problem

FOLDERS: dict[str, Literal["group", "host"]] = {"group_vars": "group", "host_vars": "host"}
# Names of folders that were meant for one of them.
_FOLDER = re.compile(r"(group|host)s?[ ._-]?vars?", re.IGNORECASE)
# Extensions of files of variables that Ansible reads.
EXTENSIONS = ("", *constants.YAML_FILENAME_EXTENSIONS)
# Suffixes that mark a file as not to be read.
ASIDE = (".disabled", ".example", ".md", ".off", ".old", ".orig", ".pyc", ".rej", ".rst", ".sample", ".swp", "~")
_WRITTEN = re.compile(rb"^[^#;\n]*\bgpuprov[\"']?[ \t]*[:=]", re.MULTILINE)
HOSTS_FIX = "have the script list it under hosts of a group"
VAULT = b"$ANSIBLE_VAULT"


def find_unreached(manager: Manager, loader: Loader, folders: Iterable[str], findings: Findings) -> list[Problem]:
    """Return the warnings; errors go to the findings. `folders`: those whose group_vars and host_vars count. Every file
    of variables that Ansible reads has been read."""
    problems = [
        *find_in_groups(manager),
        *find_in_files(manager, loader, folders),
        *find_in_misnamed(loader, folders),
        *find_in_scripts(manager),
        *find_skipped(manager),
    ]
    for problem in problems:
        if problem.severity == "error":
            findings.take(problem)
    return [problem for problem in problems if problem.severity == "warning"]


def find_in_files(manager: Manager, loader: Loader, folders: Iterable[str]) -> Iterator[Problem]:
    known = {os.path.realpath(path) for path in loader.read}
    for folder in dict.fromkeys(map(os.path.realpath, folders)):
        for name in FOLDERS:
            for file in list_files(os.path.join(folder, name)):
                if os.path.realpath(file) not in known and (place := find_spec(loader, file)):
                    yield describe_file_problem(manager, name, os.path.relpath(file, os.path.join(folder, name)), place)


def find_in_misnamed(loader: Loader, folders: Iterable[str]) -> Iterator[Problem]:
    """Yield problems for files in folders whose names Ansible does not know: groupvars, hosts_vars."""
    for folder in filter(os.path.isdir, dict.fromkeys(map(os.path.realpath, folders))):
        for name in sorted(os.listdir(folder)):
            meant = _FOLDER.fullmatch(name)
            if meant is None or name in FOLDERS:
                continue
            for place in filter(None, (find_spec(loader, file) for file in list_files(os.path.join(folder, name)))):
                right = f"{meant[1].lower()}_vars"
                message = f"the gpuprov in this file reaches no host: Ansible reads {right}, and not {name}"
                yield Problem(message=message, origin=place, fix=f"rename the folder to {right}", severity="warning")


def find_in_scripts(manager: Manager) -> Iterator[Problem]:
    """Yield problems for hosts with their own `gpuprov` in a script's output."""
    for name, source in manager.scripted.items():
        if name not in manager.hosts:
            message = f'the gpuprov of host "{name}" in _meta of this script reaches nobody: the host is in no group'
            yield Problem(message=message, origin=Origin(show_path(source)), fix=HOSTS_FIX, severity="warning")


def find_skipped(manager: Manager) -> Iterator[Problem]:
    """Yield problems for files in folders of inventories that Ansible skips because of their suffix."""
    ends = tuple(map(str, constants.INVENTORY_IGNORE_EXTS))
    for folder in filter(os.path.isdir, manager._sources):
        for place, inner, names in os.walk(folder):
            inner[:] = sorted(n for n in inner if not n.startswith(".") and n not in BESIDE and not n.endswith(ends))
            for name in sorted(names):
                if name.startswith(".") or not name.endswith(ends) or name.endswith(ASIDE):
                    continue
                file = os.path.join(place, name)
                if _is_written(file):
                    yield Problem(
                        message="the gpuprov in this file reaches no host: Ansible skips "
                        f"{os.path.splitext(name)[1]} in a folder",
                        origin=Origin(show_path(file)),
                        fix="give it an end that is not in inventory_ignore_extensions, or take it out of the folder",
                        severity="warning",
                    )


def _is_written(file: str) -> bool:
    """Return whether there is a `gpuprov` in a file of any format."""
    try:
        return _WRITTEN.search(safe_parse.read_contents(file)) is not None
    except (OSError, safe_parse.Unreadable):
        return False


def find_in_groups(manager: Manager) -> Iterator[Problem]:
    for (kind, name), layers in manager.data.layers.items():
        if kind != "group" or manager.groups[name].get_hosts():
            continue
        others = [str(other) for other, group in manager.groups.items() if other != name and group.get_hosts()]
        for place, _ in layers:
            written = manager.plain and place is not None and place.file.endswith(YAML_NAMES)
            meant = find_near(name, others)
            yield Problem(
                message=f'the gpuprov of group "{name}" reaches no host: the group has none',
                origin=place,
                fix=meant or f'put hosts into it, or write "hosts: {{}}" below {name} if it is empty on purpose',
                severity="error" if written and name not in manager.listed else "warning",
            )


def describe_file_problem(manager: Manager, folder: str, path: str, place: Origin) -> Problem:
    """Return the problem with a file in group_vars or host_vars that Ansible has not read."""
    kind = FOLDERS[folder]
    whole = path.split(os.sep, maxsplit=1)[0]
    name = next((whole.removesuffix(end) for end in EXTENSIONS[1:] if whole.endswith(end)), whole)
    groups = {str(group) for group in manager.groups}
    hosts = {str(host) for host in manager.hosts}
    own, others = (groups, hosts) if kind == "group" else (hosts, groups)
    end = os.path.splitext(path)[1]
    once = os.path.splitext(whole)[0]
    meant = {whole} if whole != path else {once, os.path.splitext(once)[0]} if whole not in own else set()
    if end not in EXTENSIONS and meant & own:
        why = f"Ansible does not read files that end with {end}"
        fix = f"allowed: {', '.join(EXTENSIONS[1:])}, or no end"
    elif name not in own and name in others:
        other = "host" if kind == "group" else "group"
        why, fix = f"{name} is a {other}, and no {kind}", f"move it to {other}_vars"
    elif name not in own:
        why = f'the inventory has no {kind} "{name}"'
        fix = find_near(name, own) or f"add the {kind}, or remove the file"
    elif kind == "group" and not manager.groups[name].get_hosts():
        why, fix = f'the group "{name}" has no hosts', "put hosts into it"
    else:
        why, fix = "Ansible reads another file or folder of the same name instead", "merge the two"
    return Problem(
        message=f"the gpuprov in this file reaches no host: {why}", origin=place, fix=fix, severity="warning"
    )


def find_near(name: str, names: Iterable[str]) -> str:
    close = get_close_matches(name, sorted(names), n=1, cutoff=0.75)
    return f'did you mean "{close[0]}"?' if close else ""


def list_files(folder: str) -> Iterator[str]:
    """Yield the files below a folder that may be meant to be read: neither hidden ones, nor those with a suffix of
    ASIDE."""
    for place, inner, names in os.walk(folder):
        inner[:] = sorted(name for name in inner if not name.startswith("."))
        for name in sorted(names):
            if not name.startswith(".") and not name.endswith(ASIDE):
                yield os.path.join(place, name)


def find_spec(loader: Loader, file: str) -> Origin | None:
    """Return the place of `gpuprov` in a file of variables; None if there is none, or the file cannot be read."""
    try:
        data = safe_parse.read_contents(file)
        if b"gpuprov" not in data and not data.startswith(VAULT):
            return None
        document: Any = loader.load_from_file(file, cache="none")
    except (OSError, safe_parse.Unreadable, AnsibleError):
        return None
    if not isinstance(document, Mapping):
        return None
    return next((find_origin(key) or Origin(show_path(file)) for key in document if key == "gpuprov"), None)
