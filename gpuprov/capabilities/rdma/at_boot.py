"""A unit of gpuprov's that sets something at each boot: what it needs on the host, and whether it has to run now."""

from __future__ import annotations

import msgspec

from gpuprov.capabilities.answers import HEADER

UNITS = "/etc/systemd/system"


class AtBoot(msgspec.Struct, frozen=True, kw_only=True):
    """`program`: by its path on the host the role's file. `files`: text by path, the unit's own among them. `differs`: what is not as
    asked for now, in words; empty if nothing differs. `speaks`: the name that the program puts before what it says; `way_out`: what
    to do where the unit fails."""

    unit: str
    program: dict[str, str]
    files: dict[str, str]
    differs: str
    speaks: str
    way_out: str = "correct what it reports, and apply again"


class Left(msgspec.Struct, frozen=True, kw_only=True):
    """What the unit of a fabric that is not asked for any more may have left: the unit's name where it is there, its files."""

    unit: str
    there: bool
    files: tuple[str, ...]


def configuration(lines: tuple[str, ...], about: str) -> str:
    """The text of a unit's configuration."""
    return "\n".join([f"{HEADER}# {about}", *lines]) + "\n"
