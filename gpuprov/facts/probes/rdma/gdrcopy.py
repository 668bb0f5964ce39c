"""gdrcopy on a host: its packages, its module for each kernel and in memory, its device node."""

from __future__ import annotations

import msgspec

from gpuprov.facts.probes.base import Output, Probe
from gpuprov.facts.probes.host.family import by_family
from gpuprov.facts.probes.software import dnf
from gpuprov.facts.probes.software.packages import PACKAGE_LISTS, build_packages_script, parse_index, parse_packages


class Gdrcopy(msgspec.Struct, frozen=True, kw_only=True):
    """`kernels`: by release, the version of gdrdrv on disk for it, empty if none. `node`: major number and mode of
    /dev/gdrdrv ("237 666"), empty without one; `major`: the number that the kernel gave the module."""

    kernels: dict[str, str] = {}
    loaded: bool = False
    major: str = ""
    node: str = ""


def parse(output: Output) -> Gdrcopy:
    rows = output.rows()
    single = {kind: values[-1].strip() for kind, values in rows.items()}
    return Gdrcopy(
        kernels={release: version for release, _, version in (line.partition("|") for line in rows.get("kernel", ()))},
        loaded="loaded" in single,
        major=single.get("major", ""),
        node=single.get("node", ""),
    )


NAMES = ("gdrcopy", "gdrcopy-kmod", "gdrcopy-tests", "gdrdrv-dkms", "libgdrapi")
PACKAGES = Probe(
    "gdrcopy_packages",
    build_packages_script("'gdrcopy*' gdrdrv-dkms libgdrapi", "gdrcopy.*"),
    parse_packages,
    "dpkg -l 'gdrcopy*' gdrdrv-dkms libgdrapi; rpm -qa 'gdrcopy*'",
    blank=PACKAGE_LISTS,
)
# Offered versions of gdrcopy's packages.
INDEX = Probe(
    "gdrcopy_index",
    by_family(
        f"apt-cache madison {' '.join(NAMES)} 2>/dev/null; true",
        dnf.search("gdrcopy", "gdrcopy-kmod"),
        "true",
    ),
    parse_index,
    "apt-cache madison gdrdrv-dkms libgdrapi; dnf -C repoquery gdrcopy gdrcopy-kmod",
)
# /proc/devices: `509 gdrdrv`. Its node (https://github.com/NVIDIA/gdrcopy/issues/278):
#     crw-rw-rw- 1 root root 242, 0 Sep 26 01:26 /dev/gdrdrv
GDRCOPY = Probe(
    "gdrcopy",
    r"""for d in /lib/modules/*; do
  k=${d##*/}
  [ -e "/boot/vmlinuz-$k" ] || [ -e "$d/build/Makefile" ] || continue
  f=$(modinfo -k "$k" -n gdrdrv 2>/dev/null) || { echo "kernel|$k|"; continue; }
  v=$(modinfo -F version "$f" 2>/dev/null)
  echo "kernel|$k|${v:-built}"
done
[ -d /sys/module/gdrdrv ] && echo 'loaded|'
awk '$2 == "gdrdrv" { print "major|" $1 }' /proc/devices
[ -c /dev/gdrdrv ] && echo "node|$((0x$(stat -c %t /dev/gdrdrv))) $(stat -c %a /dev/gdrdrv)"
true""",
    parse,
    "modinfo gdrdrv; ls -l /dev/gdrdrv; grep gdrdrv /proc/devices",
)
