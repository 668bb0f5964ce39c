"""Read, try, install and lock packages with the host's own dnf 4; stdin: the request as JSON, stdout: the answer as JSON.

Runs under the interpreter that dnf's module belongs to, Python 3.6 on EL 8. `problem` in the answer says, in dnf's words,
why it could not be done; it is empty otherwise. Versions are `[epoch:]version-release`, an epoch of 0 is left out.
"""

import fnmatch
import functools
import json
import os
import re
import sys

import dnf.callback
import dnf.exceptions
import dnf.module.module_base
import dnf.subject
import dnf.transaction
import hawkey
import rpm
from dnf_base import (
    Refused,
    duplicates,
    full,
    identities,
    in_database,
    lines_of,
    lock_file,
    locked_name,
    locks,
    native,
    opened,
    patiently,
    unfinished,
    write,
)

DRIVER_VERSION = re.compile(r"\d{3}(\.\d+)+\Z")
WORDS = {
    dnf.transaction.PKG_INSTALL: "install",
    dnf.transaction.PKG_UPGRADE: "upgrade",
    dnf.transaction.PKG_DOWNGRADE: "downgrade",
    dnf.transaction.PKG_REINSTALL: "reinstall",
    dnf.transaction.PKG_REMOVE: "remove",
    dnf.transaction.PKG_OBSOLETED: "remove",
}


class Errors(dnf.callback.TransactionProgress):
    """Collects what the transaction complains of: scriptlets that failed, packages that could not be put in place."""

    def __init__(self):
        super(Errors, self).__init__()
        self.lines = []

    def error(self, message):
        self.lines.append(str(message))


def locked_out(base, ours, pinned):
    """Exclude what the host's version locks forbid, but for packages of ours, whose locks this transaction may change."""
    excluded = base.sack.query().filterm(empty=True)
    for excluding, name, query in locks(base, lines_of(lock_file(base)[0])):
        others = base.sack.query().filterm(name__glob=name).difference(query)
        excluded = excluded.union(query if excluding else others)
    free = [p for p in excluded if p.name in ours or any(fnmatch.fnmatchcase(p.name, glob) for glob in pinned)]
    excluded = excluded.difference(base.sack.query().filterm(pkg=free)) if free else excluded
    base.sack.add_excludes(excluded.filterm(reponame__neq=hawkey.SYSTEM_REPO_NAME))


def pin(base, pinned):
    """Of the packages that match a glob and have a driver's version, leave only those of the one version."""
    found = base.sack.query().available().filterm(name__glob=pinned["patterns"])
    wrong = [p for p in found if DRIVER_VERSION.match(p.version) and p.version != pinned["version"]]
    if wrong:
        base.sack.add_excludes(base.sack.query().filterm(pkg=wrong))


def switch(base, stream):
    """Enable a module's stream in place of another one. A repository without modules has nothing to be switched."""
    modules = dnf.module.module_base.ModuleBase(base)
    name = stream.partition(":")[0]
    if not modules.get_modules(name)[0] or base._moduleContainer.getEnabledStream(name) == stream.partition(":")[2]:
        return ""
    modules.enable([stream])
    return stream


def mark(base, request):
    """Say to dnf what shall be installed and removed."""
    for spec in request["install"]:
        name, _, version = spec.partition("=")
        if not version:
            if not dnf.subject.Subject(name).get_best_query(base.sack).installed():
                base.install(name)
            continue
        name, _, arch = name.partition(":")
        found = base.sack.query().filterm(name=name, arch=[arch] if arch else native(base))
        fitting = [package for package in found if full(package) == version]
        if not fitting:
            raise Refused("No match for argument: %s-%s" % (name, version))
        if not any(package.installed for package in fitting):
            base.package_install(fitting[0])
    for spec in request["remove"]:
        name, _, arch = spec.partition(":")
        for package in base.sack.query().installed().filterm(name=name):
            if arch in ("", package.arch):
                base.package_remove(package)


def resolved(base, request):
    """The transaction that dnf makes of it, as rows [word, name, version]."""
    stream = switch(base, request["module"]) if request["module"] else ""
    pinned = request["pin"]
    ours = {re.split("[=:]", spec)[0] for spec in request["install"] + request["remove"]}
    locked_out(base, ours, pinned["patterns"] if pinned else [])
    if pinned:
        pin(base, pinned)
    mark(base, request)
    base.resolve(allow_erasing=True)
    rows = [[WORDS[item.action], item.pkg.name, full(item.pkg)] for item in base.transaction if item.action in WORDS]
    return stream, sorted(rows)


def said(rows):
    """The rows in apt-get's words, which are the same for both families."""
    return ["Remv " + name if word == "remove" else "Inst %s %s" % (name, version) for word, name, version in rows]


def key_is_local(base, package):
    """Whether the repository's key comes from the host itself or over TLS; over plain http anybody could have sent it."""
    keys = base.repos[package.reponame].gpgkey
    return keys and not any(key.startswith(("http:", "ftp:")) for key in keys)


def coming(base):
    return [package for package in base.transaction.install_set if not package.installed]


def fetch(base, request, packages):
    """Download them, and check their signatures, which dnf leaves to its caller."""
    patiently(request, base.download_packages, packages)
    for package in packages:
        check = getattr(base, "package_signature_check", None) or base._sig_check_pkg
        result, words = check(package)
        if result == 1 and key_is_local(base, package):
            add = getattr(base, "package_import_key", None) or base._get_key_for_package
            add(package, fullaskcb=lambda *_: True)
            result, words = check(package)
        if result != 0:
            raise Refused("%s is not signed with a known key: %s" % (package, words))


def act_try(request):
    base = opened(request)
    try:
        _, rows = resolved(base, request)
        if request["download"]:
            fetch(base, request, coming(base))
        return {"trial": said(rows)}
    finally:
        base.close()


def act_files(request):
    base = opened(request)
    try:
        found = []
        for spec in request["packages"]:
            name, _, version = spec.partition("=")
            offered = base.sack.query(flags=hawkey.IGNORE_MODULAR_EXCLUDES).available()
            fitting = [p for p in offered.filterm(name=name, arch=native(base)) if full(p) == version]
            if not fitting:
                raise Refused("No match for argument: %s-%s" % (name, version))
            found.append(fitting[0])
        fetch(base, request, found)
        return {"files": [package.localPkg() for package in found]}
    finally:
        base.close()


def act_install(request):
    base = opened(request)
    try:
        stream, rows = resolved(base, request)
        errors = Errors()
        fetch(base, request, coming(base))
        new, gone = identities(coming(base)), identities(base.transaction.remove_set)
        try:
            patiently(request, base.do_transaction, errors)
        except dnf.exceptions.Error as error:
            raise Refused("; ".join([str(error)] + errors.lines)) from None
        # rpm goes on after most scriptlets that fail: what counts is what the database has then.
        undone = unfinished(new, gone, in_database())
        changed = said(rows) + (["module " + stream] if stream else [])
        problem = "; ".join(undone + errors.lines) if undone else ""
        return {"changed": changed, "problem": problem, "warnings": errors.lines}
    finally:
        base.close()


def act_read(request):
    base = opened(request, available=bool(request["names"]))
    try:
        order = functools.cmp_to_key(lambda one, other: one.evr_cmp(other))
        rows, installed, index = [], {}, {}
        for package in sorted(base.sack.query().installed(), key=order):
            vendor = package.vendor or ""
            source = (package.sourcerpm or package.name).rsplit("-", 2)[0]
            rows.append(["ii", package.name, full(package), source, package.arch, vendor if vendor != "<NULL>" else ""])
            # Of a package in several architectures, the host's own: the rows tell the others.
            if package.name not in installed or package.arch in native(base):
                installed[package.name] = full(package)
        if request["names"]:
            # Also what is in streams that are not enabled: to choose a stream, one must see what is in it.
            everything = base.sack.query(flags=hawkey.IGNORE_MODULAR_EXCLUDES).available()
            for package in sorted(
                everything.filterm(name=request["names"], arch=native(base)), key=order, reverse=True
            ):
                versions = index.setdefault(package.name, [])
                if full(package) not in versions:
                    versions.append(full(package))
        path, there, obeyed = lock_file(base)
        held = {
            p.name for excluding, _, query in locks(base, lines_of(path)) if not excluding for p in query.installed()
        }
        return {
            "rows": sorted(rows),
            "installed": installed,
            "index": index,
            "held": sorted(held) if obeyed else [],
            "lockable": there,
            "lock_problem": unlocked(path) if there and not obeyed else "",
        }
    finally:
        base.close()


def act_refresh(request):
    """Fetch the lists that are older than the request allows."""
    opened(request, expire=request["max_age"]).close()
    return {}


def act_state(request):
    """What a transaction that was cut off left twice. With `repair` the older of each goes; the next transaction, which needs
    what this one was to bring, puts its dependencies right."""
    base = opened(request, available=False)
    try:
        twice = duplicates(base)
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


def unlocked(path):
    return "dnf does not obey %s: its plugins, or versionlock, are switched off" % path


def act_lock(request):
    """Lock packages at their installed versions, and release others; lines of anybody else stay as they are."""
    base = opened(request, available=False)
    try:
        path, there, obeyed = lock_file(base)
        if request["hold"] and not obeyed:
            return {"there": there, "changed": [], "problem": unlocked(path) if there else ""}
        installed = base.sack.query().installed().filterm(name=request["hold"]) if request["hold"] else []
        wanted = sorted({"%s-%s:%s-%s.*" % (p.name, p.epoch, p.version, p.release) for p in installed})
        names = set(request["hold"] + request["release"])
        known = names.union(package.name for package in base.sack.query().installed())
        before = lines_of(path)
        gone = [line for line in before if locked_name(line, known) in names and line.strip() not in wanted]
        new = [line for line in wanted if line not in [other.strip() for other in before]]
        if (gone or new) and not request["check"]:
            write(path, [line for line in before if line not in gone] + new)
        return {"there": there, "changed": ["-" + line for line in gone] + ["+" + line for line in new]}
    finally:
        base.close()


def main():
    request = json.load(sys.stdin)
    answer_to = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what scriptlets and plugins print
    try:
        answer = globals()["act_" + request["action"]](request)
    except (dnf.exceptions.Error, Refused, OSError) as error:
        answer = {"problem": " ".join(str(error).split())}
    answer_to.write(json.dumps(dict({"problem": ""}, **answer)))


main()
