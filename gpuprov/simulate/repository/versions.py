"""Driver versions that the repositories of distributions other than Debian offer."""

from __future__ import annotations

from gpuprov.catalog.drivers import Version, find_branch
from gpuprov.core.errors import GpuprovError

# The branches on offer if a description names none.
DEFAULT = ("570", "580")
# A release of each branch that the catalogue has no release of.
NEWEST = {"535": "535.309.01", "550": "550.163.01", "570": "570.211.01", "575": "575.57.08", "590": "590.48.01"}


def newest(branch: str) -> str:
    """Return the newest known release of a branch. Raises GpuprovError if none is known."""
    entry = find_branch(branch)
    seen = (entry.newest_seen if entry else "") or NEWEST.get(branch, "")
    if not seen:
        raise GpuprovError(
            f'driver is "{branch}"; neither Debian nor the catalogue has a release of that branch',
            fix="give an exact version, for instance 570.124.06",
        )
    return seen


def versions(driver: str) -> tuple[str, ...]:
    """Return versions. `driver`: branches and exact versions, separated by commas; a branch stands for its newest known
    release."""
    words = driver.replace(",", " ").split() or DEFAULT
    return tuple(dict.fromkeys(newest(word) if Version.parse(word).is_branch else word for word in words))
