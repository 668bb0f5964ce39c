"""Ubuntu's transitional packages of an ended driver branch: they stay in the archive with its version, and pull in
another branch. All of 535.309.01-0ubuntu0.24.04.2 is such:
https://packages.ubuntu.com/source/noble-updates/libs/nvidia-graphics-drivers-535-server Not all say so in their
description (https://packages.ubuntu.com/questing/nvidia-imex-590), so their dependencies decide."""

import re
from collections.abc import Iterable

# Beginnings of the names of packages that a complete driver set needs, as a regular expression (ERE).
NAMES = "(nvidia-(dkms|kernel-source|kernel-common|fabricmanager|imex)|libnvidia-nscq)-[0-9]"
# Shell: reads names that apt knows, and prints the dependencies of each version of those in NAMES.
OFFERED = f"""grep -E '^{NAMES}' | xargs -r apt-cache show 2>/dev/null | awk '/^Package: /{{p=$2}} /^Version: /{{v=$2}}
    /^Depends: /{{d=substr($0,10)}} /^$/{{if(d!="") print "depends|" p "|" v "|" d; d=""}}'"""
# Shell: prints the same for installed packages of the modules.
INSTALLED = r"""dpkg-query -W -f 'depends|${Package}|${Version}|${Depends}\n' \
  'nvidia-dkms-[0-9]*' 'nvidia-kernel-*-[0-9]*' 2>/dev/null"""
# Placeholder for the version of an installed transitional package, which is no driver's.
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
