"""NVIDIA's software on a host, by its facts."""

import re

from gpuprov.capabilities.base import Context
from gpuprov.capabilities.nvidia_absent.fragment import NvidiaAbsent
from gpuprov.catalog.drivers.any import build_patterns
from gpuprov.catalog.software import is_software
from gpuprov.facts.probes.base import Facts, ProbeFailed
from gpuprov.facts.probes.driver.leftovers import SOFTWARE, Blacklist
from gpuprov.facts.probes.driver.runfile import RUNFILE
from gpuprov.facts.probes.host import system
from gpuprov.facts.probes.host.family import Family, family
from gpuprov.facts.probes.kernel import modules
from gpuprov.host_code.driver.loaded import STACK
from gpuprov.resources.kernel_module import MODPROBE_FILE

Ctx = Context[NvidiaAbsent]
# Probes of what brings modules, libraries and units.
BROUGHT = (system.OS_RELEASE, SOFTWARE, RUNFILE)


def find_family(facts: Facts) -> Family:
    """Return the host's family of distributions. Raises ProbeFailed for one that gpuprov does not know."""
    release = facts.get(system.OS_RELEASE)
    if kind := family(release):
        return kind
    raise ProbeFailed(f"no package names of NVIDIA's software are known for {release.name or release.id}")


def list_software(facts: Facts) -> dict[str, str]:
    """Return versions of the installed packages of NVIDIA's software, by name; with apt, those of a foreign
    architecture as NAME:ARCHITECTURE."""
    kind, known, release = find_family(facts), facts.get(SOFTWARE), facts.get(system.OS_RELEASE)
    _, sources = build_patterns(release.id, release.version)
    return {
        f"{row.name}:{row.architecture}" if kind == "debian" and row.architecture not in known.own else row.name: (
            row.version
        )
        for row in known.rows
        if is_software(row.name, kind, of_driver=bool(re.fullmatch(sources, row.source)))
    }


def has_runfile(facts: Facts) -> bool:
    """Return whether a driver of NVIDIA's .run file is installed."""
    current = facts.get(RUNFILE)
    return bool(current.version or current.programs)


def list_loaded(facts: Facts) -> list[str]:
    """Return NVIDIA's loaded modules, topmost first; none in a container, where they are the machine's."""
    if facts.get(system.CONTAINER):
        return []
    loaded = facts.get(modules.LOADED)
    return [name for name in STACK if name in loaded]


def list_remaining(ctx: Ctx, blacklists: tuple[Blacklist, ...]) -> list[str]:
    """Return the places that still keep nouveau out when this has been applied: others than gpuprov's file and the
    packages'. dpkg leaves files in /etc when it removes a package, and NVIDIA's uninstaller leaves its own."""
    going, kind = list_software(ctx.facts), find_family(ctx.facts)

    def stays(entry: Blacklist) -> bool:
        if entry.place == MODPROBE_FILE:
            return "nouveau" in ctx.host.capabilities
        is_left = kind == "debian" and entry.place.startswith("/etc/") and not entry.linked
        return is_left or entry.owner not in going

    return [entry.place for entry in blacklists if stays(entry)]
