"""A package that stands in for an unavailable one: the same in the deb and the rpm form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from gpuprov.simulate.parts.base import File


@dataclass(frozen=True)
class Standin:
    """`version` with revision or release, without epoch: `580.159.03-0ubuntu0.24.04.1`, `580.95.05-1.el9`. `requires`,
    `provides`, `conflicts` and `replaces` (rpm: obsoletes) are relations in the format's syntax. `scripts` by name:
    `postinst`, `prerm`, `postrm` of a deb; `post`, `preun`, `postun` of an rpm."""

    name: str
    version: str
    summary: str
    files: Mapping[str, File] = field(default_factory=dict)
    requires: tuple[str, ...] = ()
    provides: tuple[str, ...] = ()
    conflicts: tuple[str, ...] = ()
    replaces: tuple[str, ...] = ()
    scripts: Mapping[str, str] = field(default_factory=dict)
    epoch: int = 0
    # The source package (an rpm's gets a suffix).
    source: str = ""

    def instead_of(self, *names: str) -> Standin:
        """Return the same package, in conflict with every other package that provides one of these names."""
        return replace(
            self,
            provides=(*self.provides, *names),
            conflicts=(*self.conflicts, *names),
            replaces=(*self.replaces, *names),
        )
