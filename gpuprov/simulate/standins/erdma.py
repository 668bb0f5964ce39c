"""Alibaba's eRDMA installer as a stand-in: erdma_installer-VERSION.tar.gz with install.sh, which installs a DKMS
package `erdma`.

Files, parameters, defaults and the order of the build are those of https://github.com/alibaba/elastic-rdma-drivers
(kernel/conf, kernel/debian, kernel/src/erdma_compat.c); the rest of Alibaba's own installer is not public.
"""

from __future__ import annotations

from pathlib import Path

from gpuprov.simulate.standins import installers

FILES = installers.FILES / "erdma_driver"
PACKAGE = "1.0.2"
VERSION = "1.5.7"
LOADED = "# /etc/modules-load.d/erdma.conf of a gpuprov stand-in\nib_core\nib_uverbs\nerdma\n"
OPTIONS = "# Of a gpuprov stand-in.\n\nsoftdep erdma pre: ib_uverbs\n"
CONFFILES = "/etc/modules-load.d/erdma.conf\n/etc/modprobe.d/erdma.conf\n"


def write(folder: Path, version: str = VERSION) -> tuple[Path, str]:
    """Write the archive; return its path and SHA-256."""
    return installers.write(folder / f"erdma_installer-{version}.tar.gz", "erdma_installer", _content())


def _content() -> dict[str, bytes]:
    source = {name: (FILES / name).read_bytes() for name in ("erdma.c", "Makefile", "configure-dkms.sh", "dkms.conf")}
    texts = {
        "DEBIAN/conffiles": CONFFILES,
        "etc/modules-load.d/erdma.conf": LOADED,
        "etc/modprobe.d/erdma.conf": OPTIONS,
    }
    says = "Linux kernel driver for Elastic RDMA Adapter"
    return {
        "install.sh": (FILES / "install.sh").read_bytes(),
        "package/bin/eadm": (FILES / "eadm").read_bytes(),
        "package/DEBIAN/control": installers.control("erdma", PACKAGE, says, "dkms, cmake"),
        **{f"package/DEBIAN/{name}": (FILES / name).read_bytes() for name in ("postinst", "prerm")},
        **{f"package/{name}": text.encode() for name, text in texts.items()},
        **{f"package/usr/src/erdma-{PACKAGE}/{name}": content for name, content in source.items()},
    }
