"""Check of a bundle's packages on this host: a run that must use them alone stops if they are missing, and asks no
other source."""

from __future__ import annotations

import os

from .packages.model import Refused

VARIABLE = "GPUPROV_BUNDLE"
"""In the environment of a run whose packages come from a bundle: their folder."""
AHEAD = "GPUPROV_AHEAD"
"""In the environment where package sources are seen that are still to be added: the folder of `ahead`."""
READY = "ready"
"""The file in it that says that it is whole, and what of the bundle it has."""
MISSING = "the bundle's packages are not on this host any more: somebody, or something, took away their folder or a part of it"
WAY_OUT = "apply again with --bundle, which carries them there"
REQUIRED = f"""if [ -n "${{{VARIABLE}:-}}" ] && [ ! -e "${VARIABLE}/{READY}" ]; then
  echo "{MISSING}" >&2
  exit 1
fi
"""
"""The same as shell: apt, dnf and zypper would go on with the host's own sources, and say little or nothing of it."""


def folder() -> str:
    """The folder with the configuration of package managers for this run; empty where it is the host's own."""
    return os.environ.get(AHEAD) or os.environ.get(VARIABLE, "")


def required() -> None:
    """Raise Refused where this run has a bundle, and the host does not have it."""
    place = os.environ.get(VARIABLE, "")
    if place and not os.path.exists(os.path.join(place, READY)):
        raise Refused(f"{MISSING}. Fix: {WAY_OUT}")
