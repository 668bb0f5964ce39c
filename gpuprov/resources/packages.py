"""Packages as a resource: one transaction of the host's package manager, and what is held after it."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from gpuprov.host_code.json_members import Json
from gpuprov.host_code.packages.model import Transaction
from gpuprov.resources.difference import Difference

Option = dict[str, Any]


class Packages(msgspec.Struct, frozen=True, kw_only=True):
    """A transaction, by the names of the options of the module gpuprov_packages."""

    of: str
    # As NAME, or NAME=VERSION.
    install: tuple[str, ...] = ()
    remove: tuple[str, ...] = ()
    may_remove: tuple[str, ...] = ()
    # `hold`, `release`: after it.
    hold: tuple[str, ...] = ()
    release: tuple[str, ...] = ()
    pin: Option = {}
    stream: str = ""
    refuse: Option = {}
    fix: str = Transaction.fix
    instead: str = ""
    # It is refused for packages of another driver than the host's alone; what else is in its way may be gone when it is
    # done.
    judge: bool = False
    # Its packages are those of the driver itself.
    is_driver: bool = False

    @property
    def empty(self) -> bool:
        """True for a transaction that changes nothing."""
        return not (self.install or self.remove or self.hold or self.release)


def packages_of(values: Mapping[str, Json], **more: Any) -> Packages:
    """Build the transaction from the values of a role. more: options that have another name there, or none."""
    known = {name: values[name] for name in Packages.__struct_fields__ if values.get(name)}
    return msgspec.convert({"of": "", **known, **more}, Packages)


# Wanted versions that any installed one meets.
ANY = ("installed", "newest")


def compare_packages(
    desired: Mapping[str, str], installed: Mapping[str, str], remove: Iterable[str] = ()
) -> Iterator[Difference]:
    """Compare packages by version, ANY where none is asked for; `remove`: those that should not be there."""
    for name in remove:
        if name in installed:
            yield Difference(name, installed[name], "", kind="package", device=name, words="installed: {devices}")
    for name, version in desired.items():
        actual = installed.get(name)
        if actual is None or (version not in ANY and actual != version):
            words = f"{name} {actual}" if actual else "not installed: {devices}"
            yield Difference(name, actual or "", version, kind="package", device=name, words=words)
