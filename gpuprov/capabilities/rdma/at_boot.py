"""A systemd unit of gpuprov's that applies settings at each boot: its files on the host, and whether it has to run
now."""

import msgspec

from gpuprov.capabilities.answers import HEADER
from gpuprov.capabilities.at_boot import ABOVE, COMMON, files

RDMA = "rdma"
UNITS = "/etc/systemd/system"
# Modules of gpuprov/host_code/at_boot that configure RDMA.
EVERY = (*COMMON, "devices", "devices_reader", "network", "roce", "roce_ports", "erdma", "erdma_state", "soft")
# Files that an earlier gpuprov installed in their place.
OLD = (*(f"{ABOVE}/rdma/{name}.sh" for name in ("roce", "roce-read", "soft")), f"{ABOVE}/erdma/erdma.sh")
# Every file a unit may have; those that no unit needs are removed.
PLACES = (*files(RDMA, EVERY), *OLD)


class AtBoot(msgspec.Struct, frozen=True, kw_only=True):
    """`text`: the unit file; `modules`: those of its program; `files`: other texts by path. `differs`: current
    differences from the spec, in words; empty if there are none. `speaks`: the name with which the program prefixes its
    output; `fix`: what to do if the unit fails."""

    unit: str
    text: str
    modules: tuple[str, ...]
    files: dict[str, str]
    differs: str
    speaks: str
    fix: str = "correct what it reports, and apply again"


def configuration(lines: tuple[str, ...], about: str) -> str:
    """Return the text of a unit's configuration."""
    return "\n".join([f"{HEADER}# {about}", *lines]) + "\n"
