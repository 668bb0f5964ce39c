"""A unit of gpuprov's that sets something at each boot: what it needs on the host, and whether it has to run now."""

from __future__ import annotations

import msgspec

from gpuprov.capabilities.answers import HEADER
from gpuprov.catalog.rdma import DIRECTORY
from gpuprov.onhost.files import PYTHON

UNITS = "/etc/systemd/system"
PATH = f"Environment=PYTHONPATH={DIRECTORY.rpartition('/')[0]}"
"""In a unit: where Python finds the package."""
COMMON = ("__init__", "program")
EVERY = (*COMMON, "devices", "network", "roce", "roce_ports", "erdma", "erdma_state", "soft")
"""Those of gpuprov/onhost/at_boot that set RDMA; on a host they are the package `rdma`."""
OLD = (*(f"{DIRECTORY}/{name}.sh" for name in ("roce", "roce-read", "soft")), "/usr/local/lib/gpuprov/erdma/erdma.sh")
"""What an earlier gpuprov had in their place."""
PLACES = (*(f"{DIRECTORY}/{name}.py" for name in EVERY), *OLD)
"""What no unit needs is not there."""


class AtBoot(msgspec.Struct, frozen=True, kw_only=True):
    """`text`: the unit's own; `modules`: its program's; `files`: other texts by path. `differs`: what is not as asked for now, in
    words; empty if nothing differs. `speaks`: the name that the program puts before what it says; `way_out`: what
    to do where the unit fails."""

    unit: str
    text: str
    modules: tuple[str, ...]
    files: dict[str, str]
    differs: str
    speaks: str
    way_out: str = "correct what it reports, and apply again"


class Left(msgspec.Struct, frozen=True, kw_only=True):
    """What the unit of a fabric that is not asked for any more may have left: the unit's name where it is there, its files."""

    unit: str
    there: bool
    files: tuple[str, ...]


def program(module: str, *words: object) -> str:
    """The command by which a unit runs one of the modules."""
    return " ".join([PYTHON, "-B", "-m", f"rdma.{module}", *map(str, words)])


def modules(asked: AtBoot | None) -> dict[str, str]:
    """The modules that the unit needs: by its path on the host the role's file."""
    return {f"{DIRECTORY}/{name}.py": f"{name}.py" for name in (asked.modules if asked else ())}


def configuration(lines: tuple[str, ...], about: str) -> str:
    """The text of a unit's configuration."""
    return "\n".join([f"{HEADER}# {about}", *lines]) + "\n"
