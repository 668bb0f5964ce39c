"""Packages on offer that do not count: those that the site keeps out of dnf's sight, and Ubuntu's transitional ones of
an ended branch."""

import fnmatch
import re
from collections.abc import Iterable, Mapping

import msgspec


class Excluded(msgspec.Struct, frozen=True):
    """A pattern of excludepkgs, or `only`: all patterns of an includepkgs, with the file and the section that have it.
    `main` counts for every repository."""

    pattern: str
    section: str
    file: str
    only: bool = False

    @property
    def place(self) -> str:
        key = "includepkgs" if self.only else "excludepkgs"
        return f"{key}={self.pattern} in {self.file}" + (f" [{self.section}]" if self.section != "main" else "")

    def hides(self, name: str) -> bool:
        """Return whether dnf does not see this package by it. An includepkgs counts where it is everybody's, or of a
        repository that is NVIDIA's by its name: others lack these packages anyway."""
        found = any(fnmatch.fnmatchcase(name, each) or _is_of(name, each) for each in self.pattern.split())
        if not self.only:
            return found
        names = f"{self.file} {self.section}".lower()
        return not found and (self.section == "main" or "nvidia" in names or "cuda" in names)


def parse(rows: Mapping[str, Iterable[str]]) -> tuple[Excluded, ...]:
    """Parse the lines that SCRIPT prints, by their first word."""
    found = []
    # excludepkgs = nvidia* , cuda*, and more patterns on indented lines below
    for file, section, text in (line.split("|", 2) for line in rows.get("away", ())):
        found += [Excluded(pattern, section, file) for pattern in re.split(r"[\s,]+", text) if pattern]
    for file, section, text in (line.split("|", 2) for line in rows.get("only", ())):
        patterns = " ".join(filter(None, re.split(r"[\s,]+", text)))
        found += [Excluded(patterns, section, file, only=True)] * bool(patterns)
    return tuple(found)


def explain_excluded(known: Iterable[Excluded], names: Iterable[str]) -> tuple[str, str]:
    """Return the problem and the fix where dnf does not see packages among these; empty if it sees them all."""
    if places := find_excluded(known, names):
        listed = ", ".join(f"{name} ({place})" for name, place in places.items())
        return f"dnf does not see {listed}", "take it out there: gpuprov holds the packages of the set itself"
    return "", ""


def find_excluded(known: Iterable[Excluded], names: Iterable[str]) -> dict[str, str]:
    """Return the packages among these names that dnf does not see, each with the place that says so. A pattern may go
    on with a version or an architecture, as in `kernel*.x86_64`."""
    excluded = list(known)
    places: dict[str, str] = {}
    for name in names:
        for entry in excluded:
            if entry.hides(name):
                places.setdefault(name, entry.place)
    return places


def _is_of(name: str, pattern: str) -> bool:
    rest = pattern.removeprefix(name)
    return (
        rest != pattern
        and re.fullmatch(r"(-(\d+:)?[\d*].*)?(\.(x86_64|aarch64|noarch|\*))?", rest, re.ASCII) is not None
    )


# Shell: prints each such setting as `away|FILE|SECTION|PATTERNS`, an includepkgs as `only|...`.
SCRIPT = r"""for f in /etc/dnf/dnf.conf /etc/yum.repos.d/*.repo; do
  [ -e "$f" ] && awk -v f="$f" '
    function out() { if (t != "") print k "|" f "|" s "|" t; t = "" }
    /^[[:space:]]*[#;]/ { next }
    /^\[/ { out(); go = 0; s = substr($0, 2, index($0, "]") - 2); next }
    /^(exclude(pkgs)?|includepkgs)[[:space:]]*[=:]/ { out(); go = 1; k = /^i/ ? "only" : "away"
      sub(/^[^=:]*[=:][[:space:]]*/, ""); t = $0; next }
    /^[[:space:]]+[^[:space:]]/ { if (go) t = t " " $0; next }
    { go = 0 } END { out() }' "$f"
done; true"""


# Beginnings of the names of packages that a complete driver set needs, as a regular expression (ERE).
NAMES = "(nvidia-(dkms|kernel-source|kernel-common|fabricmanager|imex)|libnvidia-nscq)-[0-9]"
# Shell: reads names that apt knows, and prints the dependencies of each version of those in NAMES.
OFFERED = f"""grep -E '^{NAMES}' | xargs -r apt-cache show 2>/dev/null | awk '/^Package: /{{p=$2}} /^Version: /{{v=$2}}
    /^Depends: /{{d=substr($0,10)}} /^$/{{if(d!="") print "depends|" p "|" v "|" d; d=""}}'"""
# Shell: prints the same for installed packages of the modules.
INSTALLED = r"""dpkg-query -W -f 'depends|${Package}|${Version}|${Depends}\n' \
  'nvidia-dkms-[0-9]*' 'nvidia-kernel-*-[0-9]*' 2>/dev/null"""
# Placeholder for the version of an installed transitional package, which is not a driver's.
VERSION = "transitional"


def _get_stem(name: str) -> str:  # without branch and flavour: nvidia-dkms-535-server-open -> nvidia-dkms-server
    return re.sub(r"-(\d{3}|open)(?=-|\Z)", "", name)


def find_transitional(rows: Iterable[str]) -> dict[tuple[str, str], str]:
    """Find transitional packages in lines `NAME|VERSION|DEPENDS`: the replacement by name and version."""
    cells = [row.split("|", 2) for row in rows if row.count("|") > 1]
    others = [
        # Depends: dkms, nvidia-kernel-common-535-server (>= 535.161.08), nvidia-kernel-source-535-server | ...
        (name, version, re.findall(r"(?:^|[,|]) *([a-z0-9][\w.+-]*)", depends))
        for name, version, depends in cells
    ]
    return {
        (name, v): dependency
        for name, v, each in others
        for dependency in each
        if dependency != name and _get_stem(dependency) == _get_stem(name)
    }
