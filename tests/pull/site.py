"""A control machine with a key and wheels, and a host that pulls from a folder."""

from __future__ import annotations

import io
import json
import os
import stat
import subprocess
import tarfile
import time
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from gpuprov import __version__
from gpuprov.fleet.specs import load_fleet
from gpuprov.host_code.pull import __main__ as puller
from gpuprov.host_code.pull import config, signed
from gpuprov.pull import bundles, signing

HOSTS = {"gpu1": {"pull_declared": "a1b2"}, "gpu2": {"pull_declared": "c3d4"}}
NEEDED = (f"gpuprov-{__version__}", "ansible_core-2.19.0", "ansible_runner-2.4.0", "msgspec-0.19.0")
STARTS = "import sys\nsys.exit(0)\n"


def new_key(folder: Path, name: str = "key") -> Path:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)], check=True)
    return folder / name


def wheel(path: Path, files: Mapping[str, str | bytes], modes: Mapping[str, int] | None = None) -> Path:
    """A wheel with these members; `modes`: of members that are not plain files."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            member = zipfile.ZipInfo(name)
            member.compress_type = zipfile.ZIP_DEFLATED
            member.external_attr = (modes or {}).get(name, stat.S_IFREG | 0o644) << 16
            archive.writestr(member, data)
    return path


class Site:
    """Both machines."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.out, self.state = folder, folder / "www", folder / "state"
        self.key = new_key(folder)
        self.wheels = folder / "wheels"
        self.wheels.mkdir()
        for name in NEEDED:
            package = name.partition("-")[0]
            files = {f"{package}/__init__.py": "", f"{package}/__main__.py": STARTS}
            wheel(self.wheels / f"{name}-py3-none-any.whl", files)

    def make(self, now: float = 0.0, spec: Mapping[str, Any] | None = None, **more: Any) -> bundles.Made:
        inventory = self.folder / "inventory.yaml"
        told = {"vars": {"gpuprov": spec or {"persistence": {}}}, "hosts": HOSTS}
        inventory.write_text(json.dumps({"all": told}), encoding="utf-8")
        fleet = load_fleet([str(inventory)], None, cache=False, also=("site", "rack", *bundles.IDENTITY))
        given: dict[str, Any] = {"out": self.out, "key": self.key, "wheels": self.wheels, "source": str(self.out)}
        given |= {"results": str(self.folder / "results"), **more}
        return bundles.make(fleet, bundles.Options(**given), now or time.time())

    @property
    def bundle(self) -> Path:
        return self.out / "gpu1.bundle"

    def archive(self) -> bytes:
        return signed.split_signature(self.bundle.read_bytes())[1]

    def sign(self, archive: bytes, key: Path | None = None) -> None:
        """Put it in the place of gpu1's bundle."""
        self.bundle.write_bytes(signing.sign(key or self.key, archive) + archive)

    def packed(self, **changes: Any) -> bytes:
        """The archive with another manifest."""
        with tarfile.open(fileobj=io.BytesIO(self.archive())) as archive:
            files = {name: archive.extractfile(name).read() for name in archive.getnames()}  # type: ignore[union-attr]
        manifest = {**msgspec.json.decode(files["manifest.json"]), **changes}
        return tar({**files, "manifest.json": msgspec.json.encode(manifest)})

    def config(self, **more: str) -> config.Config:
        results = self.folder / "results"
        results.mkdir(exist_ok=True)
        given = {
            "name": "gpu1",
            "source": str(self.out),
            "signers": str(self.out / "allowed_signers"),
            "declared": "a1b2",
        }
        given |= {"results": str(results), "result": "gpu1.json", "state": str(self.state)}
        return config.Config(**{**given, **more})

    def pull(self, **more: str) -> tuple[int, dict[str, Any]]:
        """The exit code, and the result that arrived."""
        for folder in (self.state, self.state / "home"):
            folder.mkdir(mode=0o700, exist_ok=True)
        code = puller.pull(self.config(**more))
        return code, json.loads((self.folder / "results" / "gpu1.json").read_text())

    def untouched(self) -> bool:
        """Whether nothing was unpacked or run on the host."""
        return {path.name for path in self.state.iterdir()} <= {"home", "results", "state.json"} and not os.listdir(
            self.state / "home"
        )


def tar(files: Mapping[str, bytes], *members: tarfile.TarInfo) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, data in files.items():
            one = tarfile.TarInfo(name)
            one.size = len(data)
            archive.addfile(one, io.BytesIO(data))
        for member in members:
            archive.addfile(member)
    return made.getvalue()
