"""Ubuntu's packages of a driver's branch that has ended: they stay in the archive, in its version, and bring another branch's.

535.309.01-0ubuntu0.24.04.2 is nothing else: https://packages.ubuntu.com/source/noble-updates/libs/nvidia-graphics-drivers-535-server
Not all say so in their description (https://packages.ubuntu.com/questing/nvidia-imex-590), so what they depend on tells.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

NAMES = "(nvidia-(dkms|kernel-source|kernel-common|fabricmanager|imex)|libnvidia-nscq)-[0-9]"
"""How the names begin of those that decide whether a set is whole, as a regular expression (ERE)."""
OFFERED = f"""grep -E '^{NAMES}' | xargs -r apt-cache show 2>/dev/null | awk '/^Package: /{{p=$2}} /^Version: /{{v=$2}}
    /^Depends: /{{d=substr($0,10)}} /^$/{{if(d!="") print "depends|" p "|" v "|" d; d=""}}'"""
"""Shell: names that apt knows -> what each version of those that count depends on."""
INSTALLED = r"""dpkg-query -W -f 'depends|${Package}|${Version}|${Depends}\n' \
  'nvidia-dkms-[0-9]*' 'nvidia-kernel-*-[0-9]*' 2>/dev/null"""
"""Shell: the same of those of the modules that are installed."""
VERSION = "transitional"
"""What stands for the version of an installed one: that of no driver."""


def _stem(name: str) -> str:  # without branch and flavour: nvidia-dkms-535-server-open -> nvidia-dkms-server
    return re.sub(r"-(\d{3}|open)(?=-|\Z)", "", name)


def found(rows: Iterable[str]) -> dict[tuple[str, str], str]:
    """By name and version, of lines `NAME|VERSION|DEPENDS`: what is brought in its place."""
    cells = [row.split("|", 2) for row in rows if row.count("|") > 1]
    others = [
        (name, version, re.findall(r"(?:^|[,|]) *([a-z0-9][\w.+-]*)", depends)) for name, version, depends in cells
    ]
    return {(name, v): one for name, v, each in others for one in each if one != name and _stem(one) == _stem(name)}
