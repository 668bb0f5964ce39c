"""Packages that the site keeps out of dnf's sight: https://dnf.readthedocs.io/en/latest/conf_ref.html, excludepkgs."""

import fnmatch
import re
from collections.abc import Iterable

import msgspec


class Excluded(msgspec.Struct, frozen=True):
    """A pattern of excludepkgs, with the file and the section that have it. `main` counts for every repository."""

    pattern: str
    section: str
    file: str

    @property
    def place(self) -> str:
        return f"excludepkgs={self.pattern} in {self.file}" + (f" [{self.section}]" if self.section != "main" else "")


def parse(lines: Iterable[str]) -> tuple[Excluded, ...]:
    """Parse the rest of each line that SCRIPT prints."""
    rows = (line.split("|", 2) for line in lines)
    return tuple(
        Excluded(pattern, section, file)
        for file, section, text in rows
        # excludepkgs = nvidia* , cuda*, and more patterns on indented lines below
        for pattern in re.split(r"[\s,]+", text)
        if pattern
    )


def find_excluded(known: Iterable[Excluded], names: Iterable[str]) -> dict[str, str]:
    """Return the packages among these names that dnf does not see, each with the place that says so. A pattern may go
    on with a version or an architecture, as in `kernel*.x86_64`."""
    excluded = list(known)
    places: dict[str, str] = {}
    for name in names:
        for entry in excluded:
            if fnmatch.fnmatchcase(name, entry.pattern) or _is_of(name, entry.pattern):
                places.setdefault(name, entry.place)
    return places


def _is_of(name: str, pattern: str) -> bool:
    rest = pattern.removeprefix(name)
    return (
        rest != pattern
        and re.fullmatch(r"(-(\d+:)?[\d*].*)?(\.(x86_64|aarch64|noarch|\*))?", rest, re.ASCII) is not None
    )


SCRIPT = r"""for f in /etc/dnf/dnf.conf /etc/yum.repos.d/*.repo; do
  [ -e "$f" ] && awk -v f="$f" '
    function out() { if (t != "") print "away|" f "|" s "|" t; t = "" }
    /^[[:space:]]*[#;]/ { next }
    /^\[/ { out(); go = 0; s = substr($0, 2, index($0, "]") - 2); next }
    /^exclude(pkgs)?[[:space:]]*[=:]/ { out(); go = 1; sub(/^[^=:]*[=:][[:space:]]*/, ""); t = $0; next }
    /^[[:space:]]+[^[:space:]]/ { if (go) t = t " " $0; next }
    { go = 0 } END { out() }' "$f"
done; true"""
"""Shell: prints each such setting as `away|FILE|SECTION|PATTERNS`."""
