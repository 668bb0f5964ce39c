"""Parsers of package managers' lists: versions on offer and installed packages."""

from __future__ import annotations

# dpkg's states in which a package's files are on the host.
PRESENT = "iWtFUH"


def parse_madison(text: str) -> dict[str, list[str]]:
    """Parse `apt-cache madison` to package versions by name, newest first; source packages are left out."""
    versions: dict[str, list[str]] = {}
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) == 3 and not cells[2].endswith("Sources") and cells[1] not in versions.setdefault(cells[0], []):
            versions[cells[0]].append(cells[1])
    return versions


def parse_places(text: str) -> dict[tuple[str, str], set[str]]:
    """Parse `apt-cache madison` to the addresses that each version of a package comes from."""
    files: dict[tuple[str, str], set[str]] = {}
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) == 3 and cells[2]:
            files.setdefault((cells[0], cells[1]), set()).add(cells[2].split()[0].rstrip("/"))
    return files


def parse_rows(text: str) -> list[list[str]]:
    """Parse `state|name|version|source|arch|vendor` lines to the cells of each package on the host, half-configured or
    complete.

    `dpkg-query -W -f '${db:Status-Abbrev}|${Package}|${Version}|${source:Package}|${Architecture}|${Maintainer}\\n'`
    prints them; for rpm the state is `ii`, the source the name of the source package, and the version
    `[epoch:]version-release`.
    """
    rows = [line.split("|") for line in text.splitlines()]
    return [row for row in rows if len(row) >= 3 and len(row[0]) >= 2 and row[0][1] in PRESENT]


def parse_installed(text: str) -> dict[str, str]:
    """Parse the same lines, of which three cells suffice, to installed versions by name.

    For a package in several architectures it is the version in the host's own, which is dpkg's; the rows have the
    others.
    """
    rows = [[*row, "", ""] for row in parse_rows(text)]
    native = {"", "all", *(row[4] for row in rows if row[1] == "dpkg")}
    foreign = {row[1]: row[2] for row in rows if row[4] not in native}
    return {**foreign, **{row[1]: row[2] for row in rows if row[4] in native}}
