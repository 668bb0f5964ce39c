"""Packages around a driver: makers of the installed ones, tools that its modules are built with, precompiled modules,
and kernels that gpuprov holds."""

import re

import msgspec

from gpuprov.facts.probes.base import Output, Probe
from gpuprov.facts.probes.host.family import by_family
from gpuprov.facts.probes.software import rpm, zypper
from gpuprov.facts.probes.software.packages import Index, parse_index
from gpuprov.facts.probes.software.prebuilt import FOLDER
from gpuprov.rules.package_lists import OF_KERNEL

# File of the kernels that gpuprov holds because their modules were built elsewhere; other holds are the
# administrator's.
HELD_KERNELS = f"{FOLDER}/held-kernels"
# Tools to compile the modules, on distributions whose DKMS does not depend on them.
TOOLS = ("gcc", "gcc-c++", "make")


class Row(msgspec.Struct, frozen=True):
    """An installed package, of one architecture."""

    name: str
    version: str
    source: str
    architecture: str
    # Its maker, as the package states it.
    vendor: str


class Installed(msgspec.Struct, frozen=True):
    """Installed packages."""

    rows: tuple[Row, ...] = ()
    # The architectures whose packages have names without a suffix.
    own: frozenset[str] = frozenset()


class Building(msgspec.Struct, frozen=True):
    """Needs of a module build: the tools present, and the offered versions of headers and tools."""

    tools: frozenset[str] = frozenset()
    offered: dict[str, list[str]] = {}


def parse_installed(output: Output) -> Installed:
    rows = [line.split("|", 5) for line in output.text.splitlines()]
    return Installed(
        tuple(
            Row(
                row[1],
                row[2].removeprefix("0:"),
                # rpm's %{SOURCERPM} is a file's name: kmod-nvidia-open-dkms-580.95.05-1.el9.src.rpm
                re.sub(r"-[^-]+-[^-]+\.(src|nosrc)\.rpm\Z", "", row[3]),
                row[4],
                row[5],
            )
            for row in rows
            if row[0] == "row" and len(row) == 6
        ),
        frozenset({"all", "noarch", *(row[1] for row in rows if row[0] == "own" and len(row) == 2)}),
    )


def parse_building(output: Output) -> Building:
    parts = (line.partition("|") for line in output.text.splitlines())
    return Building(frozenset(rest for kind, _, rest in parts if kind == "there"), dict(parse_index(output)))


def parse_archives(output: Output) -> tuple[tuple[str, str], ...]:
    rows = [line.split("|") for line in output.text.splitlines()]
    debian_main = [row for row in rows if len(row) == 5 and row[0] == "archive" and row[3:] == ["main", "Debian"]]
    return tuple(dict.fromkeys((row[1], row[2]) for row in debian_main))


def build_rows_script(words: str) -> str:
    """Return a script that lists installed packages in whose name, source or maker one of these words is, an ERE."""
    of_them = f"grep -Ei '^[^|]*[|].*({words})'"
    # Not the architecture of the package rpm, which has another name on openSUSE Leap's images (rpm-ndb).
    rpm = f"""a=$(rpm -E %_arch) && echo "own|$a"
rpm -qa --qf 'row|%{{NAME}}|%{{EPOCHNUM}}:%{{VERSION}}-%{{RELEASE}}|%{{SOURCERPM}}|%{{ARCH}}|%{{VENDOR}}\\n' |
  {of_them}; true"""
    return by_family(
        f"""a=$(dpkg --print-architecture) && echo "own|$a"
dpkg-query -W -f '${{db:Status-Abbrev}}|${{Package}}|${{Version}}|${{source:Package}}|${{Architecture}}|${{Maintainer}}\\n' |
  sed -n 's/^.[iUFHWt][^|]*|/row|/p' | {of_them}; true""",
        rpm,
        rpm,
    )


# Installed packages that relate to a driver by their name, source or maker, in each architecture.
INSTALLED = Probe(
    "driver_makers",
    build_rows_script("nvidia|cuda|xnvctrl"),
    parse_installed,
    "dpkg-query -W -f '${Package} ${Version} ${Architecture} ${Maintainer}\\n'; rpm -qa --qf '%{NEVRA} %{VENDOR}\\n'",
)
_THERE = f"rpm -q --qf 'there|%{{NAME}}\\n' {' '.join(TOOLS)} | grep '^there|'"
# Offered kernel headers and tools, from the lists that the host has fetched, never the network.
BUILDING = Probe(
    "driver_building",
    by_family(
        'for d in /lib/modules/*; do echo "linux-headers-${d##*/}"; done | xargs -r apt-cache madison 2>/dev/null; '
        "true",
        f"{_THERE}\n{rpm.search('kernel*-devel', 'kernel*-modules-extra', 'kernel*-drivers-gpu', *TOOLS)}",
        f"{_THERE}\n{zypper.search('kernel-*-devel', *TOOLS)}",
    ),
    parse_building,
    "apt-cache madison linux-headers-KERNEL; dnf -C repoquery --showduplicates 'kernel*-devel'; zypper search -s "
    "'kernel-*-devel'",
)
# Debian archives from which the host uses `main`: address and release.
ARCHIVES = Probe(
    "debian_archives",
    by_family(
        "apt-get indextargets --format 'archive|$(REPO_URI)|$(RELEASE)|$(COMPONENT)|$(ORIGIN)' "
        "'Created-By: Packages'; true",
        "true",
        "true",
    ),
    parse_archives,
    "apt-get indextargets --format '$(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages'",
    blank=r"archive\|",
)
# Kernel packages held by gpuprov.
KERNELS_HELD = Probe(
    "kernels_held",
    f"cat {HELD_KERNELS} 2>/dev/null; true",
    lambda output: tuple(output.text.split()),
    f"cat {HELD_KERNELS}",
    own=True,
)


def without(index: Index, url: str) -> Index:
    """Return the index without versions that come from this address alone."""
    if not url:
        return index
    kept = Index()
    for name, versions in index.items():
        left = [
            v for v in versions if not index.places.get((name, v)) or set(index.places[(name, v)]) - {url.rstrip("/")}
        ]
        if left:
            kept[name] = left
    kept.complaint, kept.busy, kept.places = index.complaint, index.busy, index.places
    return kept


# Tried where a word begins alone: else a long word would be read once from each of its letters.
# Depends: dkms, nvidia-kernel-common-535-server (>= 535.161.08), nvidia-kernel-source-535-server |
DRIVER = re.compile(r"(?<![^\s,|])nvidia-kernel-common-\S+ \(>= ([0-9.]+)")
EXACT = re.compile(r"(?<![^\s,|])([^\s,|]+) +\(= ([^)]+)\)")


class Precompiled(msgspec.Struct, frozen=True):
    """Package versions by name, each beginning with the driver version that the modules are of
    (`580.95.05-6.8.0-60.63+1`)."""

    offered: dict[str, list[str]] = {}
    installed: dict[str, str] = {}
    # Packages that an offered one (`NAME=VERSION`) needs in exactly these versions.
    exact: dict[str, dict[str, str]] = {}


def parse(output: Output) -> Precompiled:
    """Parse lines `offered|NAME|VERSION|DEPENDS`, newest first, and `installed|...` alike.

    If the version is the kernel's, as in Ubuntu, the driver's version comes from the package's dependencies and is put
    before it (see `real_versions`). `exact`: apt would take the newest otherwise.
    """
    packages = Precompiled()
    for line in output.text.splitlines():
        kind, name, version, depends = (*line.split("|", 3), "", "", "")[:4]
        driver = DRIVER.search(depends)
        known = f"{driver[1]}-{version}" if driver else version.removeprefix("0:")
        if not version or (name.startswith(OF_KERNEL) and not driver):
            continue
        if kind == "installed":
            packages.installed[name] = known
        elif kind == "offered" and known not in packages.offered.setdefault(name, []):
            packages.offered[name].append(known)
            packages.exact[f"{name}={version}"] = dict(EXACT.findall(depends))
    return packages


PRECOMPILED = Probe(
    "precompiled_modules",
    by_family(
        r"""n=$(apt-cache pkgnames linux-modules-nvidia-)
for k in $(ls /lib/modules 2>/dev/null); do printf '%s\n' "$n" | grep -- "-$k\$"; done |
  sort -u | xargs -r apt-cache show 2>/dev/null | awk -F ': ' '
    $1 == "Package" { name = $2 } $1 == "Version" { version = $2 }
    $1 == "Depends" { print "offered|" name "|" version "|" $2 }'
dpkg-query -W -f '${db:Status-Abbrev}|${Package}|${Version}|${Depends}\n' 'linux-modules-nvidia-*' 2>/dev/null |
  sed -n 's/^.[iUFHWt][^|]*|/installed|/p'""",
        "rpm -qa --qf 'installed|%{NAME}|%{EPOCHNUM}:%{VERSION}-%{RELEASE}|\\n' 'kmod-nvidia-[0-9]*'\n"
        + rpm.search("kmod-nvidia-[0-9]*", form="offered|%{name}|%{epoch}:%{version}-%{release}|", streams=True),
        "true",
    ),
    parse,
    "apt-cache show 'linux-modules-nvidia-*'; dnf -C repoquery --showduplicates 'kmod-nvidia-[0-9]*'",
)
