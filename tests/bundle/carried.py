"""A bundle of one small package, signed by a key made here."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import msgspec

from gpuprov.bundle import opened
from gpuprov.bundle.bom import build_bom
from gpuprov.bundle.model import BOM, KEY, MANIFEST, Manifest, Named, Package, Repository
from gpuprov.bundle.needs import HostNeeds
from gpuprov.bundle.specs import identifier
from gpuprov.facts.probes.host.family import Family
from gpuprov.fleet.specs import Fleet, load_fleet
from gpuprov.pull import signing
from tests.pull.site import new_key

SPEC: dict[str, Any] = {"nvidia_driver": {"version": "535"}}
DEB = Package(
    name="gcc-12",
    version="12.2.0-14",
    architecture="amd64",
    file="gcc-12_12.2.0-14_amd64.deb",
    section="devel",
    sha256="0" * 64,
    licence="free",
)
DRIVER = msgspec.structs.replace(
    DEB, name="libcuda1", version="1:535.1-1", section="non-free/libs", licence="nvidia-driver"
)
REPOSITORY = Repository(
    folder="debian12-amd64",
    family="debian",
    distribution="debian",
    release="12",
    architecture="amd64",
    kernels=("6.1.0-1-amd64",),
    packages=(DEB, DRIVER),
)


EL = Repository(
    folder="rocky9.6-x86_64",
    family="redhat",
    distribution="rocky",
    release="9.6",
    architecture="x86_64",
    kernels=(),
    packages=(
        msgspec.structs.replace(
            DRIVER,
            name="nvidia-driver",
            version="3:580.1-1.el9",
            architecture="x86_64",
            file="n.rpm",
            section="main/NVIDIA",
        ),
    ),
)
ARCHIVE = Named(of="acceptance.nccl.source", url="https://example.org/nccl.tar.gz", sha256="1" * 64)


def asked(family: Family, *packages: str) -> HostNeeds:
    """What a host of this family asks for."""
    pin = {"version": "580.1", "patterns": ["nvidia-*"]}
    return HostNeeds(
        family=family,
        release="12",
        distribution="debian",
        architecture="amd64",
        kernels=(),
        packages=packages or ("gcc",),
        pin=pin,
    )


class Carried:
    """The folder, the key, and the inventory that it is for."""

    def __init__(self, folder: Path, spec: dict[str, Any] | None = None, **changed: Any) -> None:
        self.place, self.key = folder / "bundle", new_key(folder)
        self.signers = folder / "allowed_signers"
        self.signers.write_text(signing.format_allowed_signers(self.key))
        self.fleet = fleet(folder, SPEC)
        packages = self.place / REPOSITORY.folder
        packages.mkdir(parents=True)
        (packages / DEB.file).write_bytes(b"a package")
        (self.place / KEY).write_text("a key\n")
        (self.place / BOM).write_text(json.dumps(build_bom((REPOSITORY,), (), "2026-01-01T00:00:00Z")))
        told: dict[str, Any] = {
            "made_at": "2026-01-01T00:00:00Z",
            "expires_at": "2199-01-01T00:00:00Z",
            "key": "A" * 40,
            "specs": tuple(identifier(raw) for raw, _ in self.fleet.pairs),
            "repositories": (REPOSITORY,),
            "files": opened.list_files(self.place),
        }
        self.sign(msgspec.json.encode(Manifest(**told | changed)))

    def sign(self, data: bytes, key: Path | None = None) -> None:
        (self.place / MANIFEST).write_bytes(signing.sign(key or self.key, data) + data)


def fleet(folder: Path, spec: dict[str, Any]) -> Fleet:
    file = folder / "inventory.json"
    host = {"ansible_connection": "local"}
    file.write_text(json.dumps({"all": {"vars": {"gpuprov": spec}, "hosts": {"gpu1": host}}}))
    return load_fleet([str(file)], None, cache=False)


NOW = time.mktime((2026, 6, 1, 0, 0, 0, 0, 0, 0))
