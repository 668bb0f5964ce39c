"""A checkpoint's packages on hosts with apt: their list, their files, and a source of them during a rollback."""

from __future__ import annotations

import glob
import os
import shutil
from typing import Mapping, Sequence

from .files import compute_digest, write
from .kept_files import Kept, copy_file, make_file_name
from .packages.apt_files import wait_and_fetch
from .packages.commands import Ran, run
from .packages.model import Settings

ARCHIVES = "/var/cache/apt/archives"
SOURCE = "/etc/apt/sources.list.d/gpuprov-kept.sources"
LISTS = "/var/lib/apt/lists/_var_lib_gpuprov_packages_*"


def list_kept() -> list[Kept]:
    """List the held packages and all that were built from the same source."""
    form = "${db:Status-Abbrev}|${Package}|${Version}|${source:Package}|${source:Version}|${Architecture}\\n"
    rows = [line.split("|") for line in capture_output(["dpkg-query", "-W", "-f", form]).splitlines()]
    held = set(capture_output(["apt-mark", "showhold"]).split())
    built = {(row[3], row[4]) for row in rows if row[1] in held}
    packages = sorted((row[1], row[2], row[5]) for row in rows if row[0][1:2] == "i" and (row[3], row[4]) in built)
    sizes = read_sizes([f"{name}={version}" for name, version, _ in packages])
    return [
        Kept(name, version, make_file_name(name, version, arch, "deb"), sizes.get((name, version, arch), 0))
        for name, version, arch in packages
    ]


def read_sizes(packages: Sequence[str]) -> dict[tuple[str, str, str], int]:
    """Return the sizes of files in apt's lists, by name, version and architecture; the lists may lack an installed
    one."""
    sizes, fields = {}, {"Package", "Version", "Architecture", "Size"}
    for stanza in _run(["apt-cache", "show", *packages]).out.split("\n\n") if packages else ():
        rows = (line.partition(": ") for line in stanza.splitlines())
        values = {name: value for name, _, value in rows if name in fields}
        if values.keys() == fields and values["Size"].isdecimal():
            sizes[values["Package"], values["Version"], values["Architecture"]] = int(values["Size"])
    return sizes


def bring(lacking: Sequence[Kept], pool: str, free: int) -> None:
    """Add the available packages to the pool: from apt's archives, whose signatures it has checked, or from a
    repository."""
    for package in lacking:
        if shutil.disk_usage(pool).free - package.size < free:
            continue
        if os.path.exists(f"{ARCHIVES}/{package.file}"):
            copy_file(f"{ARCHIVES}/{package.file}", f"{pool}/{package.file}")
        else:
            _run(
                ["apt-get", "-qq", "-o", "APT::Sandbox::User=root", "download", f"{package.name}={package.version}"],
                pool,
            )


def offered(names: Sequence[str]) -> dict[str, list[str]]:
    """Return the versions in repositories, by name."""
    versions: dict[str, list[str]] = {}
    for line in capture_output(["apt-cache", "madison", *names]).splitlines() if names else ():
        name, version = (cell.strip() for cell in line.split("|")[:2])
        versions.setdefault(name, []).append(version)
    return versions


def offer(files: Mapping[str, str], pool: str) -> None:
    """Create an index of these files, and a source of it. Only root could write them since apt checked their
    signatures."""
    stanzas = []
    for file in sorted(files):
        path = f"{pool}/{file}"
        control = capture_output(["dpkg-deb", "-f", path]).rstrip("\n")
        stanzas.append(
            f"{control}\nFilename: ./{file}\nSize: {os.path.getsize(path)}\nSHA256: {compute_digest(path)}\n"
        )
    write(f"{pool}/Packages", "\n".join(stanzas))
    write(SOURCE, f"# Of gpuprov rollback, while it runs\nTypes: deb\nURIs: file:{pool}\nSuites: ./\nTrusted: yes\n")
    only = ["-o", f"Dir::Etc::sourcelist={SOURCE}", "-o", "Dir::Etc::sourceparts=-", "-o", "APT::Get::List-Cleanup=0"]
    update = ["apt-get", "-qq", *only, "-o", "APT::Update::Error-Mode=any", "update"]
    if problem := wait_and_fetch(lambda: find_problem(update), Settings().lock_timeout):
        raise ValueError(problem)


def withdraw() -> None:
    """Remove the source, even one left by a killed rollback."""
    if os.path.exists(SOURCE):
        os.unlink(SOURCE)
        for path in glob.glob(LISTS):
            os.unlink(path)


def _run(argv: Sequence[str], folder: str = "/") -> Ran:
    return run(argv, {"DEBIAN_FRONTEND": "noninteractive"}, folder=folder)


def capture_output(argv: Sequence[str]) -> str:
    ran = _run(argv)
    if ran.status:
        raise ValueError(describe_failure(argv, ran))
    return ran.out


def find_problem(argv: Sequence[str]) -> str:
    return describe_failure(argv, ran) if (ran := _run(argv)).status else ""


def describe_failure(argv: Sequence[str], ran: Ran) -> str:
    return f"{' '.join(argv[:2])} fails: {ran.err.strip()[-300:]}"
