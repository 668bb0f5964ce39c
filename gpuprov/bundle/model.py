"""Manifest of a bundle of packages, which the site's ssh key signs."""

from typing import Annotated, Literal

import msgspec

from gpuprov import __version__

FORMAT = 1
# Files of a bundle; `manifest` begins with its signature.
MANIFEST, BOM, KEY = "manifest", "bom.json", "key.asc"
# Folders of it: files that the specs name by address, called by their SHA-256; keys of package sources, by the SHA-256
# of their address.
FILES, KEYS = "files", "keys"
# Allowed names of a release's folder.
FOLDER = r"[a-z0-9][a-z0-9._-]*"
# Suffix of the file beside a bundle with the line that identifies its key: in the bundle it would prove nothing.
SIGNERS = ".allowed_signers"


class File(msgspec.Struct, frozen=True, kw_only=True):
    """A file of the bundle."""

    sha256: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
    size: Annotated[int, msgspec.Meta(ge=0)]


class Package(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """A package of a repository, at its one version."""

    name: str
    version: str
    architecture: str
    file: str
    section: str
    sha256: str
    # The class of `licences` that permits the copy.
    licence: str


class Named(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """A file that a spec names by its address, in the field `of`; it lies in `files`, called by its SHA-256."""

    of: str
    url: str
    sha256: str


class Repository(msgspec.Struct, frozen=True, kw_only=True):
    """The packages of one release and architecture."""

    folder: Annotated[str, msgspec.Meta(pattern=rf"^{FOLDER}\Z")]
    family: Literal["debian", "redhat", "suse"]
    distribution: str
    release: str
    architecture: str
    # Those that modules can be built for.
    kernels: tuple[str, ...]
    packages: tuple[Package, ...]


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """The specs of a bundle, its expiry, and every file of it."""

    gpuprov_bundle: int = FORMAT
    kind: Literal["packages"] = "packages"
    gpuprov_version: str = __version__
    made_at: str
    expires_at: str
    # Fingerprint of the key of its package repositories.
    key: str
    specs: tuple[str, ...]
    repositories: tuple[Repository, ...]
    # Classes of licences that whoever made it answers for.
    accepted: tuple[str, ...] = ()
    downloads: tuple[Named, ...] = ()
    # Addresses of package sources' keys in it.
    keys: tuple[str, ...] = ()
    files: dict[str, File]
