"""Check of a bundle's packages on this host: a run that must use them alone stops if they are missing, and asks no
other source."""

from __future__ import annotations

import os

from .packages.model import Refused

# Environment variable of a run whose packages come from a bundle: their folder.
VARIABLE = "GPUPROV_BUNDLE"
# Environment variable of a run that sees package sources still to be added: the folder of `ahead`.
AHEAD = "GPUPROV_AHEAD"
# The file in it that marks it as complete, and lists the contents of the bundle.
READY = "ready"
MISSING = (
    "the bundle's packages are not on this host any more: somebody, or something, took away their folder or a "
    "part of it"
)
FIX = "apply again with --bundle, which carries them there"
# The same as shell: apt, dnf and zypper would continue with the host's own sources, almost silently.
REQUIRED = f"""if [ -n "${{{VARIABLE}:-}}" ] && [ ! -e "${VARIABLE}/{READY}" ]; then
  echo "{MISSING}" >&2
  exit 1
fi
"""


def get_folder() -> str:
    """Return the folder with the configuration of package managers for this run; "" if it is the host's own."""
    return os.environ.get(AHEAD) or os.environ.get(VARIABLE, "")


def require_bundle() -> None:
    """Raise Refused if this run has a bundle, and the host does not have it."""
    place = os.environ.get(VARIABLE, "")
    if place and not os.path.exists(os.path.join(place, READY)):
        raise Refused(f"{MISSING}. Fix: {FIX}")
