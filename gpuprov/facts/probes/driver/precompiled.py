"""Packages of kernel modules built by a distribution or NVIDIA: those offered for the host's kernels, and those
installed."""

import re

import msgspec

from gpuprov.facts.probes.base import Output, Probe
from gpuprov.facts.probes.host.family import by_family
from gpuprov.facts.probes.software import dnf
from gpuprov.rules.package_lists import OF_KERNEL

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
        + dnf.search("kmod-nvidia-[0-9]*", form="offered|%{name}|%{epoch}:%{version}-%{release}|", streams=True),
        "true",
    ),
    parse,
    "apt-cache show 'linux-modules-nvidia-*'; dnf -C repoquery --showduplicates 'kmod-nvidia-[0-9]*'",
)
