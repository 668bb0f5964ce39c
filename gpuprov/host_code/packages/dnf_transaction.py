"""Part of the program for dnf's Python (3.6 on EL 8): the transaction for a request, and its packages."""

import re
from typing import Any, Dict, Iterable, List, Tuple

import dnf.callback
import dnf.module.module_base
import dnf.subject
import dnf.transaction

from . import dnf_locks
from .dnf_base import KEPT, Refused, Request, format_version, list_architectures, query_installed, retry_patiently

DRIVER_VERSION = re.compile(r"\d{3}(\.\d+)+\Z")
WORDS = {
    dnf.transaction.PKG_INSTALL: "install",
    dnf.transaction.PKG_UPGRADE: "upgrade",
    dnf.transaction.PKG_DOWNGRADE: "downgrade",
    dnf.transaction.PKG_REINSTALL: "reinstall",
    dnf.transaction.PKG_REMOVE: "remove",
    dnf.transaction.PKG_OBSOLETED: "remove",
}
Row = Tuple[str, str, str]


class Errors(dnf.callback.TransactionProgress):  # type: ignore[misc]
    """Collects errors of the transaction: scriptlets that failed, packages that could not be installed."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: List[str] = []

    def error(self, message: object) -> None:
        self.lines.append(str(message))


def resolve_transaction(base: Any, request: Request) -> Tuple[str, List[Row]]:
    """Return the stream that it switches to, and its changes: rows of word, name, version."""
    stream = switch_stream(base, request["module"]) if request["module"] else ""
    pinned = request["pin"]
    named = {re.split("[=:]", spec)[0] for spec in request["install"] + request["remove"]}
    dnf_locks.apply(base, named, pinned["patterns"] if pinned else [])
    if pinned:
        pin_packages(base, pinned)
    mark_packages(base, request)
    base.resolve(allow_erasing=True)
    rows = [
        (WORDS[item.action], str(item.pkg.name), format_version(item.pkg))
        for item in base.transaction
        if item.action in WORDS
    ]
    return stream, sorted(rows)


def format_rows(rows: Iterable[Row]) -> List[str]:
    """Return the rows in apt-get's words, which are the same for all managers."""
    return ["Remv " + name if word == "remove" else "Inst %s %s" % (name, version) for word, name, version in rows]


def list_coming(base: Any) -> List[Any]:
    """Return the packages that it installs."""
    return [package for package in base.transaction.install_set if not package.installed]


def fetch(base: Any, request: Request, packages: List[Any]) -> None:
    """Download packages, and check their signatures, which dnf leaves to its caller."""
    retry_patiently(request, base.download_packages, packages)
    for package in packages:
        check = getattr(base, "package_signature_check", None) or base._sig_check_pkg
        result, words = check(package)
        if result == 1 and is_key_local(base, package):
            add = getattr(base, "package_import_key", None) or base._get_key_for_package
            add(package, fullaskcb=lambda *_: True)
            result, words = check(package)
        if result != 0:
            raise Refused("%s is not signed with a known key: %s" % (package, words))


def pin_packages(base: Any, pinned: Dict[str, Any]) -> None:
    """Exclude all versions but one of packages that match a glob and have a driver's version."""
    matching = base.sack.query().available().filterm(name__glob=pinned["patterns"])
    wrong = [p for p in matching if DRIVER_VERSION.match(p.version) and p.version != pinned["version"]]
    if wrong:
        base.sack.add_excludes(base.sack.query().filterm(pkg=wrong))


def switch_stream(base: Any, stream: str) -> str:
    """Enable a module's stream in place of another. A repository without modules needs no switch."""
    modules = dnf.module.module_base.ModuleBase(base)
    name = stream.partition(":")[0]
    if not modules.get_modules(name)[0] or base._moduleContainer.getEnabledStream(name) == stream.partition(":")[2]:
        return ""
    if not modules.get_modules(stream)[0] and KEPT in (repository.id for repository in base.repos.iter_enabled()):
        return ""  # the mirror has dropped the stream, too; what is kept is seen without one
    modules.enable([stream])
    return stream


def mark_packages(base: Any, request: Request) -> None:
    """Mark for dnf what is to be installed and removed."""
    for spec in request["install"]:
        name, _, version = spec.partition("=")
        if not version:
            present = query_installed(base).filterm(name=name)
            if not present and not dnf.subject.Subject(name).get_best_query(base.sack).installed():
                base.install(name)
            continue
        name, _, arch = name.partition(":")
        matching = base.sack.query().union(query_installed(base))
        matching = matching.filterm(name=name, arch=[arch] if arch else list_architectures(base))
        fitting = [package for package in matching if format_version(package) == version]
        if not fitting:
            raise Refused("No match for argument: %s-%s" % (name, version))
        if not any(package.installed for package in fitting):
            # Of the same package in two places the one that is on the host: its mirror may have dropped the other.
            base.package_install(min(fitting, key=lambda package: package.reponame != KEPT))
    for spec in request["remove"]:
        name, _, arch = spec.partition(":")
        for package in query_installed(base).filterm(name=name):
            if arch in ("", package.arch):
                base.package_remove(package)


def is_key_local(base: Any, package: Any) -> bool:
    """Return whether the repository's key comes from the host itself or over TLS; over plain HTTP anybody could have
    sent it."""
    keys = base.repos[package.reponame].gpgkey
    return bool(keys) and not any(key.startswith(("http:", "ftp:")) for key in keys)
