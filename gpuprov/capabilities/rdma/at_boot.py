"""A unit of gpuprov's that sets something at each boot: what it needs on the host, and whether it has to run now."""

from __future__ import annotations

import msgspec

from gpuprov.capabilities.answers import HEADER
from gpuprov.capabilities.at_boot import ABOVE, COMMON, files

RDMA = "rdma"
UNITS = "/etc/systemd/system"
EVERY = (*COMMON, "devices", "network", "roce", "roce_ports", "erdma", "erdma_state", "soft")
"""The modules of gpuprov/onhost/at_boot that set RDMA."""
OLD = (*(f"{ABOVE}/rdma/{name}.sh" for name in ("roce", "roce-read", "soft")), f"{ABOVE}/erdma/erdma.sh")
"""What an earlier gpuprov had in their place."""
PLACES = (*files(RDMA, EVERY), *OLD)
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


def configuration(lines: tuple[str, ...], about: str) -> str:
    """The text of a unit's configuration."""
    return "\n".join([f"{HEADER}# {about}", *lines]) + "\n"
