"""A checkpoint's packages on hosts with dnf or zypper: their list, their files, and a repository of them during a
rollback.

A file is kept only if it is the one that rpm has installed, byte for byte: its header has the digest of the installed
one, and the digests in that header match the contents. Its signature was checked when it was installed.
"""

from __future__ import annotations

import glob
import os
import shutil
from typing import Iterator, Mapping, Sequence

from . import family, repodata
from .files import write
from .kept_files import Kept, copy_file, make_file_name
from .packages import zypper_answer
from .packages.choice import choose_manager
from .packages.commands import run, shorten_end
from .packages.model import Manager, Refused, Settings

NAME = "gpuprov-kept"
FOLDER = "/var/lib/gpuprov/offered"
SOURCES = {"redhat": f"/etc/yum.repos.d/{NAME}.repo", "suse": zypper_answer.KEPT}
CACHES = ("/var/cache/dnf/*/packages/*.rpm", "/var/cache/zypp/packages/**/*.rpm")
LISTS = (f"/var/cache/dnf/{NAME}-*", f"/var/cache/dnf/{NAME}*.solv*", f"/var/cache/zypp/*/{NAME}")
# Seconds: a rollback continues without mirrors, and has its own limit.
MIRROR_TIMEOUT = 10
# A module's streams do not count for them; with priority, zypper takes a package that two repositories have from here.
TEXT = f"""# Of gpuprov rollback, while it runs
[{NAME}]
name=Packages that gpuprov kept
baseurl=file://{FOLDER}
enabled=1
gpgcheck=0
repo_gpgcheck=0
skip_if_unavailable=1
module_hotfixes=1
"""
OF_ZYPPER = "autorefresh=0\ntype=rpm-md\npkg_gpgcheck=0\npriority=98\n"
DIGESTS = (
    r"%{NAME}|%{EPOCHNUM}|%{VERSION}-%{RELEASE}|%{ARCH}|%{SOURCERPM}|%{SHA256HEADER}|%{SHA1HEADER}|%{LONGSIGSIZE}\n"
)


def list_kept() -> list[Kept]:
    """List the held packages and all that were built from the same source; none that may be installed in several
    versions, such as kernels."""
    rows = list_rows()
    held = set(get_manager().read([]).held)
    built = {row[4] for row in rows if row[0] in held} - {"(none)"}
    packages = sorted(
        {
            (row[0], format_full_version(row), row[3], compute_size(row))
            for row in rows
            if row[4] in built or row[0] in held
        }
    )
    names = [(name, arch) for name, _, arch, _ in packages]
    once = [package for package in packages if names.count((package[0], package[2])) == 1]
    return [Kept(name, version, make_file_name(name, version, arch, "rpm"), size) for name, version, arch, size in once]


def bring(lacking: Sequence[Kept], pool: str, free: int) -> None:
    """Add the available packages to the pool: from the manager's cache, or from a repository."""
    rows = {package.file: row for row in list_rows() for package in lacking if package.file == find_file(row)}
    _take(rows, list_cached(), pool, free)
    room, rest = shutil.disk_usage(pool).free - free, []
    for package in lacking:
        if package.file in rows and not os.path.exists(f"{pool}/{package.file}") and 2 * package.size <= room:
            room -= 2 * package.size  # in the manager's cache, too
            rest.append(package)
    if not rest or room < 0:
        return
    host = get_manager()
    try:
        index = host.read([package.name for package in rest]).index
        specs = [
            f"{package.name}={package.version}" for package in rest if package.version in index.get(package.name, ())
        ]
        fetched = host.files(specs) if specs else []
    except Refused:
        return  # what could not be had is left out, by name
    _take(rows, fetched, pool, free)


def offered(names: Sequence[str]) -> dict[str, list[str]]:
    """Return the versions in repositories, by name."""
    return get_manager().read(list(names)).index if names else {}


def offer(files: Mapping[str, str], pool: str) -> None:
    """Create a repository of these files, by name with their SHA-256, and fetch its lists."""
    withdraw()
    os.makedirs(FOLDER, 0o755)
    plain = {file: file.replace("%", "-") for file in files}  # %3a would be read as a colon in an address
    for file, name in plain.items():
        os.link(f"{pool}/{file}", f"{FOLDER}/{name}")
    repodata.write_index(FOLDER, {name: files[file] for file, name in plain.items()})
    host_family = family.read_family()
    write(SOURCES[host_family], TEXT + (OF_ZYPPER if host_family == "suse" else ""))
    try:
        get_manager().fetch("kept")
    except Refused as refused:
        withdraw()
        raise ValueError(f"the kept packages cannot be offered: {shorten_end(str(refused), 300)}") from refused


def withdraw() -> None:
    """Remove the repository, even one left by a killed rollback."""
    for path in SOURCES.values():
        if os.path.exists(path):
            os.unlink(path)
    for place in (FOLDER, *(path for pattern in LISTS for path in glob.glob(pattern))):
        if os.path.isdir(place):
            shutil.rmtree(place)
        elif os.path.exists(place):
            os.unlink(place)


def _take(rows: Mapping[str, Sequence[str]], paths: Sequence[str], pool: str, free: int) -> None:
    """Copy the wanted files that match what rpm has installed."""
    for path in paths:
        for row in read_headers(path):
            file = find_file(row)
            if (
                rows.get(file, ())[:7] != row[:7]
                or os.path.exists(f"{pool}/{file}")
                or not {*row[5:7]} - {"", "(none)"}
            ):
                continue
            if (
                shutil.disk_usage(pool).free - os.path.getsize(path) >= free
                and not run(["rpmkeys", "--checksig", "--nosignature", path]).status
            ):
                copy_file(path, f"{pool}/{file}")


def list_cached() -> list[str]:
    return [path for pattern in CACHES for path in glob.glob(pattern, recursive=True)]


def read_headers(path: str) -> Iterator[list[str]]:
    ran = run(["rpm", "-qp", "--nosignature", "--qf", DIGESTS, path])
    for line in ran.lines if not ran.status else ():
        yield line.split("|")


def list_rows() -> list[list[str]]:
    ran = run(["rpm", "-qa", "--qf", DIGESTS])
    if ran.status:
        raise ValueError(f"rpm -qa fails: {shorten_end(ran.message, 300)}")
    return [line.split("|") for line in ran.lines if line.count("|") == 7 and not line.startswith("gpg-pubkey|")]


def format_full_version(row: Sequence[str]) -> str:
    return row[2] if row[1] == "0" else f"{row[1]}:{row[2]}"


def compute_size(row: Sequence[str]) -> int:
    """Return the size of header and payload; the signatures before them add a few kB."""
    return int(row[7]) if row[7].isdecimal() else 0


def find_file(row: Sequence[str]) -> str:
    return make_file_name(row[0], format_full_version(row), row[3], "rpm")


def get_manager() -> Manager:
    return choose_manager(Settings(mirror_timeout=MIRROR_TIMEOUT))
