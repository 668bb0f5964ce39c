"""Installers of a cloud's RDMA software as stand-ins: a reproducible gzipped tar archive of one folder."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
from collections.abc import Mapping
from pathlib import Path

from gpuprov.simulate.debs import MAINTAINER, NOTICE

FILES = Path(__file__).parents[1] / "parts" / "cloud_rdma_files"


def write(file: Path, folder: str, content: Mapping[str, bytes]) -> tuple[Path, str]:
    """Write the archive of this folder's files, unless it is there; return its path and SHA-256."""
    file.parent.mkdir(parents=True, exist_ok=True)
    made = archive(folder, content)
    if not (file.is_file() and file.read_bytes() == made):
        file.write_bytes(made)
    return file, hashlib.sha256(made).hexdigest()


def archive(folder: str, content: Mapping[str, bytes]) -> bytes:
    """Return the archive; files that begin with #! are executable."""
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as made:
        for name, body in sorted(content.items()):
            entry = tarfile.TarInfo(f"{folder}/{name}")
            entry.size, entry.mode = len(body), 0o755 if body.startswith(b"#!") else 0o644
            made.addfile(entry, io.BytesIO(body))
    return gzip.compress(plain.getvalue(), mtime=0)


def control(package: str, version: str, says: str, depends: str = "") -> bytes:
    """Return the control file of one of its packages."""
    lines = [f"Package: {package}", f"Version: {version}", "Architecture: amd64", f"Maintainer: {MAINTAINER}"]
    lines += [f"Depends: {depends}"] * bool(depends)
    lines += ["Section: kernel", "Priority: optional", f"Description: {says} (gpuprov stand-in)", NOTICE.rstrip()]
    return ("\n".join(lines) + "\n").encode()
