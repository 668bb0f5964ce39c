"""Alibaba's eRDMA installer as a stand-in: erdma_installer-VERSION.tar.gz with install.sh, which brings a DKMS package `erdma`.

Files, parameters, defaults and the order of the build are those of https://github.com/alibaba/elastic-rdma-drivers (kernel/conf,
kernel/debian, kernel/src/erdma_compat.c); what is in Alibaba's own installer beside them is not public.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
from pathlib import Path

from gpuprov.simulate.debs import MAINTAINER, NOTICE

FILES = Path(__file__).parents[1] / "parts" / "erdma_files" / "driver"
PACKAGE = "1.0.2"
VERSION = "1.5.7"
CONTROL = f"""\
Package: erdma
Version: {PACKAGE}
Architecture: amd64
Maintainer: {MAINTAINER}
Depends: dkms, cmake
Section: kernel
Priority: optional
Description: Linux kernel driver for Elastic RDMA Adapter (gpuprov stand-in)
{NOTICE.rstrip()}
"""
LOADED = "# /etc/modules-load.d/erdma.conf of a gpuprov stand-in\nib_core\nib_uverbs\nerdma\n"
OPTIONS = "# Of a gpuprov stand-in.\n\nsoftdep erdma pre: ib_uverbs\n"
CONFFILES = "/etc/modules-load.d/erdma.conf\n/etc/modprobe.d/erdma.conf\n"


def write(folder: Path, version: str = VERSION) -> tuple[Path, str]:
    """The archive, and its SHA-256. The same for the same simulation."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"erdma_installer-{version}.tar.gz"
    content = archive()
    file.write_bytes(content)
    return file, hashlib.sha256(content).hexdigest()


def archive() -> bytes:
    """A gzipped tar archive of the folder erdma_installer."""
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as made:
        for name, content in sorted(_content().items()):
            entry = tarfile.TarInfo(f"erdma_installer/{name}")
            entry.size, entry.mode = len(content), 0o755 if content.startswith(b"#!") else 0o644
            made.addfile(entry, io.BytesIO(content))
    return gzip.compress(plain.getvalue(), mtime=0)


def _content() -> dict[str, bytes]:
    source = {name: (FILES / name).read_bytes() for name in ("erdma.c", "Makefile", "configure-dkms.sh", "dkms.conf")}
    texts = {
        "DEBIAN/control": CONTROL,
        "DEBIAN/conffiles": CONFFILES,
        "etc/modules-load.d/erdma.conf": LOADED,
        "etc/modprobe.d/erdma.conf": OPTIONS,
    }
    return {
        "install.sh": (FILES / "install.sh").read_bytes(),
        "package/bin/eadm": (FILES / "eadm").read_bytes(),
        **{f"package/DEBIAN/{name}": (FILES / name).read_bytes() for name in ("postinst", "prerm")},
        **{f"package/{name}": text.encode() for name, text in texts.items()},
        **{f"package/usr/src/erdma-{PACKAGE}/{name}": content for name, content in source.items()},
    }
