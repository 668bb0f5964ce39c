"""What reading and changing packages with dnf 4 share: a base that is ready, versions as text, the file of version locks."""

import configparser
import os
import re
import tempfile
import time

import dnf
import dnf.exceptions
import dnf.subject
import hawkey
import rpm

# What dnf's versionlock reads a line as: https://github.com/rpm-software-management/dnf-plugins-core plugins/versionlock.py
LOCK_FORMS = [hawkey.FORM_NEVRA, hawkey.FORM_NEVR, hawkey.FORM_NEV, hawkey.FORM_NA, hawkey.FORM_NAME]

# Behind the name: nothing, a version or version-release (with or without epoch and architecture), or an architecture alone.
LOCKED = re.compile(r"(-(\d+:)?\d[^-\s]*(-[\d*][^-\s]*)?|\.(noarch|x86_64|aarch64|i[3-6]86|ppc64le|s390x))?\Z")


class Refused(Exception):
    """What cannot be done, in one line."""


def full(package):
    return package.evr[2:] if package.evr.startswith("0:") else package.evr


def opened(request, expire=-1, available=True):
    """A base with packages and repositories.

    versionlock does not take part: `locked_out` does its work for foreign packages. show-leaves works on a terminal only.
    """
    base = dnf.Base()
    conf = base.conf
    conf.read()
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
    for repository in base.repos.iter_enabled():
        repository.metadata_expire = expire
    if request["action"] == "refresh":
        patiently(request, base.update_cache)
    else:
        patiently(request, base.fill_sack, load_system_repo=True, load_available_repos=available)
    return base


def patiently(request, work, *arguments, **named):
    """Wait for another dnf to finish, as long as the request allows."""
    end = time.time() + request["timeout"]
    while True:
        try:
            return work(*arguments, **named)
        except dnf.exceptions.LockError:
            if time.time() >= end:
                raise
            time.sleep(1)


def native(base):
    return [base.conf.substitutions["basearch"], "noarch"]


def lock_file(base):
    """The file of dnf versionlock, and whether dnf obeys it: the plugin is there, and nobody switched it off."""
    parser = configparser.ConfigParser()
    parser.read([os.path.join(folder, "versionlock.conf") for folder in base.conf.pluginconfpath])
    there = any(os.path.exists(os.path.join(folder, "versionlock.py")) for folder in base.conf.pluginpath)
    obeyed = base.conf.plugins and parser.getboolean("main", "enabled", fallback=True)
    path = parser.get("main", "locklist", fallback="/etc/dnf/plugins/versionlock.list")
    return path, there, there and obeyed


def lines_of(path):
    try:
        with open(path, encoding="utf-8") as file:
            return file.read().splitlines()
    except FileNotFoundError:
        return []


def locks(base, lines):
    """(excluding, name or glob of names, query of what the line matches) for each line."""
    for line in lines:
        pattern = line.strip().lstrip("!")
        if not pattern or pattern.startswith("#"):
            continue
        for nevra in dnf.subject.Subject(pattern).get_nevra_possibilities(forms=LOCK_FORMS):
            query = nevra.to_query(base.sack)
            if query:
                yield line.strip().startswith("!"), nevra.name, query
                break


def locked_name(line, names):
    """Which of the names the line locks, "" if none: the longest of those that a version, or nothing, is behind.

    Lines that exclude, comments and globs of names lock none of them.
    """
    text = line.strip()
    fitting = [name for name in names if text.startswith(name) and LOCKED.match(text[len(name) :])]
    return max(fitting, key=len) if fitting else ""


def duplicates(base):
    """Packages that stand twice in the database, the younger installation last; kernels and their kind may."""
    groups = {}
    query = base.sack.query().installed()
    for package in query.difference(query.filter(provides=list(base.conf.installonlypkgs))):
        if package.name != "gpg-pubkey":
            groups.setdefault((package.name, package.arch), []).append(package)
    return [sorted(group, key=lambda p: p.installtime) for group in groups.values() if len(group) > 1]


def identities(packages):
    return {(package.name, package.arch, full(package)) for package in packages}


def in_database():
    """What rpm itself has now, past all that dnf knew before."""
    found = set()
    for header in rpm.TransactionSet().dbMatch():
        # Bytes in the rpm of early EL 8.
        name, arch, version, release = (
            text.decode() if isinstance(text, bytes) else text
            for text in (header[tag] for tag in ("name", "arch", "version", "release"))
        )
        epoch = "%d:" % header["epoch"] if header["epoch"] else ""
        found.add((name, arch, "%s%s-%s" % (epoch, version, release)))
    return found


def unfinished(coming, going, there):
    """What a transaction left undone, in words; packages as (name, architecture, version), `there` is what the database has."""
    lacking = ["%s-%s is not installed" % (name, version) for name, arch, version in sorted(coming - there)]
    return lacking + [
        "%s-%s is still installed" % (name, version) for name, arch, version in sorted((going - coming) & there)
    ]


def write(path, lines):
    handle, fresh = tempfile.mkstemp(prefix=".gpuprov-", dir=os.path.dirname(path))
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write("".join(line + "\n" for line in lines))
    os.chmod(fresh, 0o644)
    os.replace(fresh, path)
