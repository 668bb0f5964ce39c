"""nvidia-persistenced on a host: its packaged unit, its own package, the running daemon, and the driver's GPUs."""

import msgspec

from gpuprov.facts.probes.base import Output, Probe
from gpuprov.host_code.packages.lists import parse_madison

PACKAGE, UNIT = "nvidia-persistenced", "nvidia-persistenced.service"


class Persistenced(msgspec.Struct, frozen=True, kw_only=True):
    """The daemon."""

    # The lines of the unit file, none if there is no file.
    unit: tuple[str, ...] = ()
    # Versions of Debian's package, newest first, where it is not installed.
    offered: tuple[str, ...] = ()
    # It is installed.
    installed: bool = False
    # The running daemon was started with the mode off.
    idle: bool = False
    # GPUs bound to the driver.
    gpus: int = 0


def parse(output: Output) -> Persistenced:
    rows = output.rows()
    return Persistenced(
        unit=tuple(rows.get("unit", ())),
        offered=tuple(parse_madison("\n".join(rows.get("offer", ()))).get(PACKAGE, ())),
        installed=any(state[1:2] == "i" for state in rows.get("package", ())),
        idle="idle" in rows,
        gpus=int(rows.get("gpus", ["0"])[0]),
    )


PERSISTENCED = Probe(
    "persistenced",
    f"""f= p=; IFS='
'
for x in $(systemctl show -p FragmentPath -p MainPID {UNIT} 2>/dev/null); do case $x in
FragmentPath=*) f=${{x#*=}} ;; MainPID=*) p=${{x#*=}} ;; esac; done
[ -z "$f" ] || sed 's/^/unit|/' "$f" 2>/dev/null
s=$(dpkg-query -W -f 'package|${{db:Status-Abbrev}}\\n' {PACKAGE} 2>/dev/null) && echo "$s"
case $s in package?[!n]i*) ;; *) apt-cache madison {PACKAGE} 2>/dev/null | sed 's/^/offer|/' ;; esac
[ "${{p:-0}}" = 0 ] || ! grep -qz -x -e --no-persistence-mode "/proc/$p/cmdline" 2>/dev/null || echo "idle|$p"
set -- /proc/driver/nvidia/gpus/*; [ -e "$1" ] && echo "gpus|$#" || echo 'gpus|0'""",
    parse,
    f"systemctl cat {UNIT}; apt-cache policy {PACKAGE}; dnf info {PACKAGE}; zypper info {PACKAGE}",
    speaks=True,
    blank=r"gpus\|0$",
)
