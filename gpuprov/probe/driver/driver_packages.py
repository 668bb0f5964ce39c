"""Packages around a driver: who made those that are installed, what its modules are built with, which kernels gpuprov holds."""

from __future__ import annotations

import re

import msgspec

from gpuprov.probe.base import Output, Probe
from gpuprov.probe.host.family import by_family
from gpuprov.probe.software import dnf, zypper
from gpuprov.probe.software.packages import Index, parse_index
from gpuprov.probe.software.prebuilt import FOLDER

HELD_KERNELS = f"{FOLDER}/held-kernels"
"""The kernels that gpuprov holds for the sake of modules that were built elsewhere: what else is held is the administrator's."""
TOOLS = ("gcc", "gcc-c++", "make")
"""What the modules are compiled with, on distributions whose DKMS does not bring it."""


class Row(msgspec.Struct, frozen=True):
    """An installed package, of one architecture. `vendor`: who made it, in the words of its maker."""

    name: str
    version: str
    source: str
    architecture: str
    vendor: str


class Installed(msgspec.Struct, frozen=True):
    """`own`: the architectures whose packages have bare names."""

    rows: tuple[Row, ...] = ()
    own: frozenset[str] = frozenset()


class Building(msgspec.Struct, frozen=True):
    """What a module build needs: the tools that are there, and the versions of headers and tools that are offered."""

    there: frozenset[str] = frozenset()
    offered: dict[str, list[str]] = {}


def parse_installed(output: Output) -> Installed:
    rows = [line.split("|", 5) for line in output.text.splitlines()]
    return Installed(
        tuple(
            Row(
                row[1],
                row[2].removeprefix("0:"),
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
    there = (line.partition("|") for line in output.text.splitlines())
    return Building(frozenset(rest for kind, _, rest in there if kind == "there"), dict(parse_index(output)))


def parse_archives(output: Output) -> tuple[tuple[str, str], ...]:
    rows = [line.split("|") for line in output.text.splitlines()]
    mine = [row for row in rows if len(row) == 5 and row[0] == "archive" and row[3:] == ["main", "Debian"]]
    return tuple(dict.fromkeys((row[1], row[2]) for row in mine))


_OF_A_DRIVER = "grep -Ei '^[^|]*[|].*(nvidia|cuda|xnvctrl)'"
# Not the architecture of the package rpm, which has another name on openSUSE Leap's images (rpm-ndb).
_RPM = f"""a=$(rpm -E %_arch) && echo "own|$a"
rpm -qa --qf 'row|%{{NAME}}|%{{EPOCHNUM}}:%{{VERSION}}-%{{RELEASE}}|%{{SOURCERPM}}|%{{ARCH}}|%{{VENDOR}}\\n' | {_OF_A_DRIVER}; true"""
INSTALLED = Probe(
    "driver_makers",
    by_family(
        f"""a=$(dpkg --print-architecture) && echo "own|$a"
dpkg-query -W -f '${{db:Status-Abbrev}}|${{Package}}|${{Version}}|${{source:Package}}|${{Architecture}}|${{Maintainer}}\\n' |
  sed -n 's/^.[iUFHWt][^|]*|/row|/p' | {_OF_A_DRIVER}; true""",
        _RPM,
        _RPM,
    ),
    parse_installed,
    "dpkg-query -W -f '${Package} ${Version} ${Architecture} ${Maintainer}\\n'; rpm -qa --qf '%{NEVRA} %{VENDOR}\\n'",
)
"""Installed packages that have something of a driver in their name, source or maker, in each architecture."""
_THERE = f"rpm -q --qf 'there|%{{NAME}}\\n' {' '.join(TOOLS)} | grep '^there|'"
BUILDING = Probe(
    "driver_building",
    by_family(
        'for d in /lib/modules/*; do echo "linux-headers-${d##*/}"; done | xargs -r apt-cache madison 2>/dev/null; true',
        f"{_THERE}\n{dnf.search('kernel*-devel', 'kernel*-modules-extra', 'kernel*-drivers-gpu', *TOOLS)}",
        f"{_THERE}\n{zypper.search('kernel-*-devel', *TOOLS)}",
    ),
    parse_building,
    "apt-cache madison linux-headers-KERNEL; dnf -C repoquery --showduplicates 'kernel*-devel'; zypper search -s 'kernel-*-devel'",
)
"""Headers of kernels and tools that are offered, from what the host has fetched, never the network."""
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
"""Debian's archives that the host takes `main` from: address and release."""
KERNELS_HELD = Probe(
    "kernels_held",
    f"cat {HELD_KERNELS} 2>/dev/null; true",
    lambda output: tuple(output.text.split()),
    f"cat {HELD_KERNELS}",
)
"""Packages of kernels that gpuprov has held."""


def without(index: Index, url: str) -> Index:
    """What is offered, but for versions that come from this address alone."""
    if not url:
        return index
    told = Index()
    for name, found in index.items():
        left = [v for v in found if not index.places.get((name, v)) or set(index.places[(name, v)]) - {url.rstrip("/")}]
        if left:
            told[name] = left
    told.complaint, told.busy, told.places = index.complaint, index.busy, index.places
    return told
