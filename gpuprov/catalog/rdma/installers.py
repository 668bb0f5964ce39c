"""Data of a cloud's installer: its published versions with their checksums, and their addresses."""

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
    """The address of the versions."""

    form: str


class Published(File, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The contents of a catalogue file about such a driver."""

    functions: tuple[Function, ...]
    installers: tuple[Installer, ...]
    address: Address

    def find(self, version: str) -> Installer | None:
        """A published version."""
        return next((entry for entry in self.installers if entry.version == version), None)

    def at(self, version: str) -> str:
        """Return the address of that version."""
        return self.address.form.replace("{version}", version)
