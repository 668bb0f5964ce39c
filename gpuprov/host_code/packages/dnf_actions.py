"""Part of the program for dnf's Python (3.6 on EL 8): its actions. Each function answers one action.

`problem` in an answer is dnf's reason for a failure. Versions are `[epoch:]version-release`; an epoch of 0 is left out.
"""

import functools
import os
import re
import shutil
from typing import Any, Dict, List

import dnf.exceptions
import hawkey
import rpm

from . import dnf_locks
from .dnf_base import (
    Refused,
    Request,
    describe_unfinished,
    find_duplicates,
    format_version,
    list_architectures,
    list_identities,
    open_base,
    query_installed,
    read_database,
    retry_patiently,
)
from .dnf_transaction import Errors, fetch, format_rows, list_coming, resolve_transaction

Answer = Dict[str, Any]


def compare_versions(package: Any, other: Any) -> int:
    return int(package.evr_cmp(other))


ORDER = functools.cmp_to_key(compare_versions)


def act_try(request: Request) -> Answer:
    base = open_base(request)
    try:
        stream, rows = resolve_transaction(base, request)
        if request["download"]:
            fetch(base, request, list_coming(base))
        return {"trial": format_rows(rows), "stream": stream}
    finally:
        base.close()


def act_collect(request: Request) -> Answer:
    """Put the packages that a host without any package would get into the working directory, except the files that are
    `known` by name and SHA-256. `modules`: the repositories' data about module streams."""
    base = open_base(request, installed=False)
    try:
        resolve_transaction(base, request)
        packages = list_coming(base)
        files = {os.path.basename(package.location): package for package in packages}
        known = [name for name in files if request["known"].get(name) == files[name].chksum[1].hex()]
        fetch(base, request, [files[name] for name in files if name not in known])
        for name, package in files.items():
            if name not in known:
                shutil.copy(package.localPkg(), name)
        sources = {package.reponame for package in packages} if request["module"] else ()
        texts = [base.repos[name].get_metadata_content("modules") for name in sorted(sources)]
        return {"kept": sorted(known), "modules": "\n".join(filter(None, texts))}
    finally:
        base.close()


def act_files(request: Request) -> Answer:
    base = open_base(request)
    try:
        paths = []
        for spec in request["packages"]:
            name, _, version = spec.partition("=")
            offered = base.sack.query(flags=hawkey.IGNORE_MODULAR_EXCLUDES).available()
            fitting = [
                p for p in offered.filterm(name=name, arch=list_architectures(base)) if format_version(p) == version
            ]
            if not fitting:
                raise Refused("No match for argument: %s-%s" % (name, version))
            paths.append(fitting[0])
        fetch(base, request, paths)
        return {"files": [package.localPkg() for package in paths]}
    finally:
        base.close()


def act_install(request: Request) -> Answer:
    base = open_base(request)
    try:
        resolve_transaction(base, request)
        errors = Errors()
        fetch(base, request, list_coming(base))
        new, gone = list_identities(list_coming(base)), list_identities(base.transaction.remove_set)
        try:
            retry_patiently(request, base.do_transaction, errors)
        except dnf.exceptions.Error as error:
            raise Refused("; ".join([str(error)] + errors.lines)) from None
        # rpm goes on after most scriptlets that fail: what counts is what the database has then.
        undone = describe_unfinished(new, gone, read_database())
        return {"problem": "; ".join(undone + errors.lines) if undone else "", "warnings": errors.lines}
    finally:
        base.close()


def act_read(request: Request) -> Answer:
    base = open_base(request, available=bool(request["names"] or request["related"]))
    try:
        rows: List[List[str]] = []
        installed: Dict[str, str] = {}
        for package in sorted(query_installed(base), key=ORDER):
            vendor = "" if package.vendor in (None, "<NULL>") else package.vendor
            source = (package.sourcerpm or package.name).rsplit("-", 2)[0]
            rows.append(["ii", package.name, format_version(package), source, package.arch, vendor])
            # Of a package in several architectures, the host's own: the rows tell the others.
            if package.name not in installed or package.arch in list_architectures(base):
                installed[package.name] = format_version(package)
        beside = [row[1] for row in rows if request["related"] and re.match(request["related"], row[3])]
        names = sorted(set(request["names"] + beside))
        path, has_plugin, obeyed = dnf_locks.lock_file(base)
        locked = dnf_locks.list_locks(base, dnf_locks.read_lines(path))
        held = {p.name for excluding, _, query in locked if not excluding for p in query.installed()}
        return {
            "rows": sorted(rows),
            "installed": installed,
            "index": _list_available(base, names) if names else {},
            "held": sorted(held) if obeyed else [],
            "lockable": has_plugin,
            "lock_problem": dnf_locks.explain_unlocked(path) if has_plugin and not obeyed else "",
        }
    finally:
        base.close()


def _list_available(base: Any, names: List[str]) -> Dict[str, List[str]]:
    """Return the packages' versions in the repositories, the newest first; also those in streams that are not enabled,
    because who chooses a stream must see what is in it."""
    everything = base.sack.query(flags=hawkey.IGNORE_MODULAR_EXCLUDES).available()
    index: Dict[str, List[str]] = {}
    for package in sorted(everything.filterm(name=names, arch=list_architectures(base)), key=ORDER, reverse=True):
        versions = index.setdefault(package.name, [])
        if format_version(package) not in versions:
            versions.append(format_version(package))
    return index


def act_refresh(request: Request) -> Answer:
    """Fetch the lists that are older than the request allows."""
    open_base(request, expire=request["max_age"]).close()
    return {}


def act_state(request: Request) -> Answer:
    """Return the packages that an interrupted transaction left twice.

    With `repair`, remove the older of each; the next transaction, which needs what this one was to bring, repairs its
    dependencies.
    """
    base = open_base(request, available=False)
    try:
        twice = find_duplicates(base)
        names = sorted(group[0].name for group in twice)
        if not request["repair"] or not twice:
            return {"twice": names}
        transaction = rpm.TransactionSet()
        for package in (old for group in twice for old in group[:-1]):
            transaction.addErase(package.rpmdbid)
        problems = transaction.run(lambda *_: None, "") or []
        return {"twice": [], "changed": names, "problem": "; ".join(str(problem[0]) for problem in problems)}
    finally:
        base.close()


def act_lock(request: Request) -> Answer:
    """Lock packages at their installed versions, and release others; lines of anybody else stay as they are."""
    base = open_base(request, available=False)
    try:
        path, has_plugin, obeyed = dnf_locks.lock_file(base)
        if request["hold"] and not obeyed:
            absent = "" if request["check"] else "its plugin versionlock is not installed"
            return {"changed": [], "problem": dnf_locks.explain_unlocked(path) if has_plugin else absent}
        installed = query_installed(base).filterm(name=request["hold"]) if request["hold"] else []
        patterns = sorted({"%s-%s:%s-%s.*" % (p.name, p.epoch, p.version, p.release) for p in installed})
        names = set(request["hold"] + request["release"])
        known = names.union(package.name for package in query_installed(base))
        before = dnf_locks.read_lines(path)
        gone = [
            line for line in before if dnf_locks.find_locked_name(line, known) in names and line.strip() not in patterns
        ]
        new = [line for line in patterns if line not in [other.strip() for other in before]]
        if (gone or new) and not request["check"]:
            dnf_locks.write(path, [line for line in before if line not in gone] + new)
        return {"changed": ["-" + line for line in gone] + ["+" + line for line in new]}
    finally:
        base.close()
