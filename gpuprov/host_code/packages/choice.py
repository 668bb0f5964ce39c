"""Selection of the host's package manager."""

from __future__ import annotations

from typing import Callable

from .. import bundle, family
from .apt import Apt
from .dnf import Dnf
from .model import Manager, Refused, Settings
from .zypper import Zypper

MANAGERS: dict[str, Callable[[Settings], Manager]] = {"debian": Apt, "redhat": Dnf, "suse": Zypper}


def choose_manager(settings: Settings) -> Manager:
    """Return this host's package manager. Raises Refused."""
    bundle.require_bundle()
    host_family = family.read_family()
    if host_family not in MANAGERS:
        raise Refused(
            f"this host's distribution is unknown; known families: {', '.join(MANAGERS)}. Fix: a supported distribution"
        )
    return MANAGERS[host_family](settings)
