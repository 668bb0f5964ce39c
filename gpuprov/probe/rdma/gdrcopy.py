"""gdrcopy on a host: its packages, its module for each kernel and in the running one, its device node, what loads it at boot."""

from __future__ import annotations

import msgspec

from gpuprov.probe.base import Output, Probe
from gpuprov.probe.host.family import by_family
from gpuprov.probe.software.dnf import REPOQUERY
from gpuprov.probe.software.packages import PACKAGE_LISTS, packages_script, parse_index, parse_packages


class Gdrcopy(msgspec.Struct, frozen=True, kw_only=True):
    """`kernels`: by release, the version of gdrdrv on disk for it, empty if none. `node`: major number and mode of /dev/gdrdrv
    ("237 666"), empty without one; `major`: the number that the kernel gave the module. `service`: the unit or init script that
    loads it at boot, and whether systemd starts that."""

    kernels: dict[str, str] = {}
    loaded: bool = False
    major: str = ""
    node: str = ""
    service: str = ""
    enabled: bool = False


def parse(output: Output) -> Gdrcopy:
    kernels: dict[str, str] = {}
    single: dict[str, str] = {}
    for line in output.text.splitlines():
        kind, _, rest = line.partition("|")
        if kind == "kernel":
            release, _, version = rest.partition("|")
            kernels[release] = version
        else:
            single[kind] = rest.strip()
    return Gdrcopy(
        kernels=kernels,
        loaded="loaded" in single,
        major=single.get("major", ""),
        node=single.get("node", ""),
        service=single.get("service", ""),
        enabled=single.get("enabled", "") == "enabled",
    )


NAMES = ("gdrcopy", "gdrcopy-kmod", "gdrcopy-tests", "gdrdrv-dkms", "libgdrapi")
PACKAGES = Probe(
    "gdrcopy_packages",
    packages_script("'gdrcopy*' gdrdrv-dkms libgdrapi", "gdrcopy.*"),
    parse_packages,
    "dpkg -l 'gdrcopy*' gdrdrv-dkms libgdrapi; rpm -qa 'gdrcopy*'",
    blank=PACKAGE_LISTS,
)
INDEX = Probe(
    "gdrcopy_index",
    by_family(
        f"apt-cache madison {' '.join(NAMES)} 2>/dev/null; true",
        REPOQUERY + " --qf 'rpm|%{name}|%{epoch}|%{version}|%{release}|%{arch}' gdrcopy gdrcopy-kmod",
        "true",
    ),
    parse_index,
    "apt-cache madison gdrdrv-dkms libgdrapi; dnf -C repoquery gdrcopy gdrcopy-kmod",
)
"""What the host's package sources offer of gdrcopy."""
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
for u in gdrcopy gdrdrv; do
  [ "$(systemctl show -p LoadState --value $u.service 2>/dev/null)" = loaded ] || continue
  echo "service|$u.service"; echo "enabled|$(systemctl is-enabled $u.service 2>/dev/null | tail -n 1)"
done
true""",
    parse,
    "modinfo gdrdrv; ls -l /dev/gdrdrv; grep gdrdrv /proc/devices; systemctl status gdrdrv gdrcopy",
)
