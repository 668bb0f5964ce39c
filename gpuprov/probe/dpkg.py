"""Packages of a Debian host: installed, held, broken; and what its repositories offer."""

from __future__ import annotations

import msgspec

from gpuprov.probe.base import Output, Probe
from gpuprov.resolve import parse_madison


class Package(msgspec.Struct, frozen=True):
    """An installed package. `whole` is false while dpkg has it half-configured, unpacked, awaiting a trigger or a reinstall."""

    name: str
    version: str
    source: str
    held: bool
    whole: bool


def parse_packages(output: Output) -> dict[str, Package]:
    packages: dict[str, Package] = {}
    for line in output.text.splitlines():
        cells = line.split("|")
        if len(cells) != 4 or len(cells[0]) < 2 or cells[0][1] not in "iUFHWt":
            continue
        wanted, state = cells[0][0], cells[0][1]
        packages[cells[1]] = Package(cells[1], cells[2], cells[3], wanted == "h", state == "i" and cells[0][2:3] != "R")
    return packages


def parse_audit(output: Output) -> str:
    unsaid = output.error.strip() or f"dpkg --audit ended with status {output.status}"
    return output.text.strip() or (unsaid if output.status else "")


FORMAT = "${db:Status-Abbrev}|${Package}|${Version}|${source:Package}\\n"

PACKAGES = Probe(
    "packages",
    f"""dpkg-query -W -f '{FORMAT}' '*nvidia*' 'libcuda*' 'libnvcuvid*' 'libnvoptix*' 'cuda*' 'linux-image-*' \\
  'linux-headers-*' 2>/dev/null; true""",
    parse_packages,
    "dpkg -l '*nvidia*' 'libcuda*'",
)
"""Installed packages that concern the driver, by name."""
AUDIT = Probe("dpkg_audit", "dpkg --audit", parse_audit, "dpkg --audit")
"""dpkg's own complaint about its database; empty when all is well."""
INDEX = Probe(
    "package_index",
    """apt-cache pkgnames | grep -E '^(lib)?(nvidia|cuda|nvcuvid)|^firmware-nvidia' | xargs apt-cache madison 2>/dev/null; true""",
    lambda output: parse_madison(output.text),
    "apt-cache madison nvidia-kernel-dkms nvidia-open-kernel-dkms",
)
"""Package versions that the host's repositories offer, by name, newest first."""
NO_AUTOINSTALL = Probe(
    "dkms_no_autoinstall",
    "[ -e /etc/dkms/no-autoinstall ] && echo 1; true",
    lambda output: output.text.strip() == "1",
    "ls /etc/dkms/no-autoinstall",
)
"""Whether DKMS is told to build nothing by itself; a package's postinst then leaves a host without modules and says all is well."""
