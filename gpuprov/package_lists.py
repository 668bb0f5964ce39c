"""What package managers print, as data: versions that are offered, packages that are installed. Standard library only.

Rendered projects carry this file as an Ansible filter plugin, so that checks and roles read a host alike.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

PRESENT = "iWtFUH"
"""dpkg's states in which a package's files are on the host."""


def parse_madison(text: str) -> dict[str, list[str]]:
    """`apt-cache madison` -> package versions by name, newest first; source packages are left out."""
    versions: dict[str, list[str]] = {}
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) == 3 and not cells[2].endswith("Sources") and cells[1] not in versions.setdefault(cells[0], []):
            versions[cells[0]].append(cells[1])
    return versions


def parse_index(text: str) -> dict[str, list[str]]:
    """`NAME|[EPOCH:]VERSION-RELEASE` lines in any order -> versions by name, newest first by rpm's rules; epoch 0 left out.

    `dnf repoquery --qf '%{name}|%{epoch}:%{version}-%{release}'` prints them.
    """
    versions: dict[str, set[str]] = {}
    for line in text.splitlines():
        name, bar, version = line.strip().partition("|")
        if bar and name and re.fullmatch(r"(\d+:)?[^\s:|-]+-[^\s:|-]+", version):
            versions.setdefault(name, set()).add(version.removeprefix("0:"))
    return {name: sorted(found, key=rpm_order, reverse=True) for name, found in versions.items()}


def rpm_order(version: str) -> tuple[Any, ...]:
    """Sort key of `[epoch:]version-release` that orders as rpm does: digits beat letters, `~` is older than the end, `^` newer."""
    epoch, colon, rest = version.rpartition(":")
    number, _, release = rest.partition("-")
    return (int(epoch) if colon else 0, _segments(number), _segments(release))


def _segments(text: str) -> tuple[tuple[int, int, str], ...]:
    kinds = {"~": (-1, 0, ""), "^": (1, 0, "")}
    parts = re.findall(r"\d+|[A-Za-z]+|[~^]", text)
    found = [kinds.get(part, (3, int(part), "") if part.isdigit() else (2, 0, part)) for part in parts]
    return (*found, (0, 0, ""))


def parse_rows(text: str) -> list[list[str]]:
    """`state|name|version|source|arch|vendor` lines -> those cells of each package that is on the host, half-configured or whole.

    `dpkg-query -W -f '${db:Status-Abbrev}|${Package}|${Version}|${source:Package}|${Architecture}|${Maintainer}\\n'` prints
    them; for rpm the state is `ii`, the source the name of the source package, and the version `[epoch:]version-release`.
    """
    rows = [line.split("|") for line in text.splitlines()]
    return [row for row in rows if len(row) >= 3 and len(row[0]) >= 2 and row[0][1] in PRESENT]


def parse_installed(text: str) -> dict[str, str]:
    """The same lines, of which the first three cells will do -> installed versions by name."""
    return {row[1]: row[2] for row in parse_rows(text)}


def header_metapackages(names: Iterable[str]) -> list[str]:
    """The metapackages that bring headers along with each kernel that the `linux-image-...` metapackages among these names bring.

    linux-image-unsigned-KERNEL and linux-image-extra-KERNEL are packages of one kernel; linux-image-extra-virtual brings the
    generic one (https://wiki.ubuntu.com/Kernel/Dev/Meta-Pkgs).
    """
    meta = re.compile(r"linux-image-(?!unsigned-|extra-\d)([a-z].*)(?<!-dbg)(?<!-unsigned)")
    found = [match[1] for match in map(meta.fullmatch, names) if match]
    return list(dict.fromkeys(f"linux-headers-{re.sub('^extra-virtual', 'generic', image)}" for image in found))


class FilterModule:
    """What Ansible loads: the functions above as filters of the rendered project."""

    def filters(self) -> dict[str, Any]:
        return {
            "gpuprov_header_metapackages": header_metapackages,
            "gpuprov_index": parse_index,
            "gpuprov_installed": parse_installed,
            "gpuprov_madison": parse_madison,
            "gpuprov_rows": parse_rows,
        }
