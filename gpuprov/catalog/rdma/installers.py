"""What the catalogue has of a cloud's installer: its published versions with their checksums, and where they are."""

from __future__ import annotations

from gpuprov.catalog.reader import Fact, File


class Function(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A PCI function of the cloud's."""

    id: str


class Installer(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A version of the archive with its published checksum."""

    version: str
    sha256: str
    date: str = ""


class Address(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the versions are."""

    form: str


class Published(File, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a file of the catalogue has of such a driver."""

    functions: tuple[Function, ...]
    installers: tuple[Installer, ...]
    address: Address

    def find(self, version: str) -> Installer | None:
        """A published version."""
        return next((one for one in self.installers if one.version == version), None)

    def at(self, version: str) -> str:
        """Where that version is."""
        return self.address.form.replace("{version}", version)
