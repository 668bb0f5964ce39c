"""Part of the program for dnf's Python (3.6 on EL 8): a prepared base, rpm's database, leftovers of a transaction."""

import os
import time
from typing import Any, Callable, Dict, Iterable, List, Set, Tuple

import dnf
import dnf.exceptions
import dnf.repo
import hawkey
import rpm

Request = Dict[str, Any]
Identity = Tuple[str, str, str]
KEPT = "gpuprov-kept"  # the repository that a rollback makes of the files that a checkpoint keeps


class Refused(Exception):
    """An impossible operation, described in one line."""


def format_version(package: Any) -> str:
    """Return `[epoch:]version-release`, without an epoch of 0."""
    evr = str(package.evr)
    return evr[2:] if evr.startswith("0:") else evr


def open_base(request: Request, expire: int = -1, available: bool = True, installed: bool = True) -> Any:
    """Return a base with packages and repositories; without installed packages, if they are not to count."""
    # versionlock takes no part: `dnf_locks.apply` does its work for foreign packages. show-leaves works only on a
    # terminal.
    base = dnf.Base()
    conf = base.conf
    # Of a bundle: its packages are then all that dnf sees. Or of sources that are still to be added, beside the host's
    # own.
    folder = os.environ.get("GPUPROV_AHEAD") or os.environ.get("GPUPROV_BUNDLE")
    settings = os.path.join(folder, "dnf.conf") if folder else None
    if settings and not os.path.exists(settings):
        raise Refused("%s is not there, and no other source may be asked" % settings)
    conf.read(settings)
    conf.substitutions.update_from_etc(conf.installroot, varsdir=conf.varsdir)
    conf.exit_on_lock = True
    conf.install_weak_deps = False
    conf.clean_requirements_on_remove = False
    conf.best = False
    conf.keepcache = True  # else one transaction takes away what was downloaded for the next
    base.init_plugins(disabled_glob=["versionlock", "show-leaves"])
    base.pre_configure_plugins()
    base.read_all_repos()
    base.configure_plugins()
    enabled = list(base.repos.iter_enabled())
    for repository in enabled:
        repository.metadata_expire = expire
        if request.get("mirror_timeout"):
            repository.timeout, repository.retries = request["mirror_timeout"], 1
    if request["action"] != "refresh" and KEPT in (repository.id for repository in enabled):
        use_present_lists([repository for repository in enabled if repository.id != KEPT])
    if request["action"] == "refresh":
        retry_patiently(request, base.update_cache)
    else:
        retry_patiently(request, base.fill_sack, load_system_repo=installed, load_available_repos=available)
    return base


def use_present_lists(repositories: Iterable[Any]) -> None:
    """Make a rollback use the present lists, and wait for no mirror that does not answer."""
    for repository in repositories:
        repository.skip_if_unavailable = True
        repository._repo.setSyncStrategy(dnf.repo.SYNC_ONLY_CACHE)


def retry_patiently(request: Request, work: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """Wait for another dnf to finish, as long as the request allows."""
    end = time.time() + request["timeout"]
    while True:
        try:
            return work(*arguments, **named)
        except dnf.exceptions.LockError:
            if time.time() >= end:
                raise
            time.sleep(1)


def list_architectures(base: Any) -> List[str]:
    """Return the host's own architectures."""
    return [base.conf.substitutions["basearch"], "noarch"]


def query_installed(base: Any) -> Any:
    """Return the installed packages, with those that excludepkgs hides from dnf: it hides installed ones, too."""
    return base.sack.query(flags=hawkey.IGNORE_EXCLUDES).installed()


def find_duplicates(base: Any) -> List[List[Any]]:
    """Return packages that are in the database twice, the younger installation last; kernels and similar packages may
    be."""
    groups: Dict[Tuple[str, str], List[Any]] = {}
    query = query_installed(base)
    for package in query.difference(query.filter(provides=list(base.conf.installonlypkgs))):
        if package.name != "gpg-pubkey":
            groups.setdefault((package.name, package.arch), []).append(package)
    return [sorted(group, key=lambda p: p.installtime) for group in groups.values() if len(group) > 1]


def list_identities(packages: Iterable[Any]) -> Set[Identity]:
    """Return packages as (name, architecture, version)."""
    return {(package.name, package.arch, format_version(package)) for package in packages}


def read_database() -> Set[Identity]:
    """Return the current contents of rpm's own database, bypassing everything dnf had read before."""
    installed = set()
    for header in rpm.TransactionSet().dbMatch():
        # Bytes in the rpm of early EL 8.
        name, arch, version, release = (
            text.decode() if isinstance(text, bytes) else text
            for text in (header[tag] for tag in ("name", "arch", "version", "release"))
        )
        epoch = "%d:" % header["epoch"] if header["epoch"] else ""
        installed.add((name, arch, "%s%s-%s" % (epoch, version, release)))
    return installed


def describe_unfinished(coming: Set[Identity], going: Set[Identity], installed: Set[Identity]) -> List[str]:
    """Describe what a transaction left undone; `there` is the contents of the database."""
    lacking = ["%s-%s is not installed" % (name, version) for name, _, version in sorted(coming - installed)]
    return lacking + [
        "%s-%s is still installed" % (name, version) for name, _, version in sorted((going - coming) & installed)
    ]
