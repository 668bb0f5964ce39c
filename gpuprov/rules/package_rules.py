"""Rules by which packages belong to a set, and the answer of `resolve` about a set. Standard library only."""

from collections.abc import Sequence
from typing import TypedDict


class Rule(TypedDict, total=False):
    """A package of a set: `{branch}` and `{version}` in its name are filled in, `min` and `max` are branches."""

    name: str
    min: int
    max: int
    # A pattern of its archive's package versions.
    like: str
    # Moves with the set, but is not part of it.
    companion: bool
    # Names with `{kernel}`, one of which must be installed.
    proof: list[str]
    # A package of the driver without which it does not go.
    needs: str
    # It identifies another source's driver.
    mark: bool
    # One whose modules come to the host in the other way.
    built: bool
    # The fix if none is offered.
    fix: str


class Choice(TypedDict):
    """The flavour of the kernel modules."""

    flavour: str
    reason: str
    problem: str


class Answer(TypedDict, total=False):
    """A set in one version, or the problem; `kept`: it is installed, `replaced`: installed packages that it
    replaces."""

    flavour: str
    reason: str
    version: str
    branch: str
    packages: dict[str, str]
    kept: bool
    replaced: list[str]
    problem: str
    hint: str


class Follower(TypedDict):
    """The package that follows an installed driver."""

    name: str
    version: str
    replaced: Sequence[str]
    problem: str
    hint: str
