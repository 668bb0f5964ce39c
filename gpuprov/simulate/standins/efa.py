"""AWS's EFA installer as a stand-in: aws-efa-installer-VERSION.tar.gz, which brings driver, libfabric, NCCL's plugin
and MPI.

Options, order and the note that it leaves (/opt/amazon/efa_installed_packages) are those of AWS's own efa_installer.sh:
https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/efa-start-nccl.html. The package efa (version, DKMS, modules-load.d,
modprobe.d) follows https://github.com/amzn/amzn-drivers/tree/master/kernel/linux/efa (debian, conf), without cmake;
libnccl-ofi follows https://github.com/aws/aws-ofi-nccl/tree/master/contrib/debian-template. The others have AWS's names
and a program each.
"""

from __future__ import annotations

from pathlib import Path

from gpuprov.simulate.standins import installers

FILES = installers.FILES / "efa_installer"
VERSION, DRIVER = "1.47.0", "3.1.0"
# Name -> version, description, dependencies.
PACKAGES = {
    "efa": (f"{DRIVER}-1.amzn1", "Linux kernel driver for Elastic Fabric Adapter", "dkms"),
    "libfabric1-aws": ("2.4.0amzn3.0", "libfabric", ""),
    "libfabric-aws-bin": ("2.4.0amzn3.0", "fi_info of libfabric", ""),
    "efa-profile": ("1.7", "Search paths of programs and libraries for EFA", ""),
    "libnccl-ofi": ("1.19.0-1", "NCCL libfabric plugin", ""),
    "openmpi40-aws": ("4.1.7-1", "Open MPI 4", ""),
    "openmpi50-aws": ("5.0.9-1", "Open MPI 5", ""),
}
PLUGIN = "/opt/amazon/ofi-nccl/lib"
SOURCE = "/* A gpuprov stand-in: a library of this name, which has nothing in it. */\nint gpuprov_stand_in;\n"
MPIRUN = "#!/bin/sh\necho 'mpirun (gpuprov stand-in)'\n"
TEXTS = {
    "efa/DEBIAN/conffiles": "/etc/modules-load.d/efa.conf\n/etc/modprobe.d/efa.conf\n",
    "efa/etc/modules-load.d/efa.conf": "# /etc/modules-load.d/efa.conf of a gpuprov "
    "stand-in\nib_core\nib_uverbs\nefa\n",
    "efa/etc/modprobe.d/efa.conf": "# Of a gpuprov stand-in.\n\nsoftdep efa pre: ib_uverbs\n",
    "efa-profile/etc/profile.d/efa.sh": "# Of a gpuprov stand-in.\nPATH=/opt/amazon/efa/bin:$PATH\n",
    "efa-profile/etc/ld.so.conf.d/efa.conf": "/opt/amazon/efa/lib\n",
    "libnccl-ofi/DEBIAN/triggers": "activate-noawait ldconfig\n",
    "libnccl-ofi/etc/ld.so.conf.d/100_ofinccl.conf": f"{PLUGIN}\n",
    **{f"libnccl-ofi{PLUGIN}/{name}.c": SOURCE for name in ("libnccl-net", "libnccl-net-ofi")},
    "openmpi40-aws/opt/amazon/openmpi/bin/mpirun": MPIRUN,
    "openmpi50-aws/opt/amazon/openmpi5/bin/mpirun": MPIRUN,
}


def write(folder: Path, version: str = VERSION) -> tuple[Path, str]:
    """Write the archive; return its path and SHA-256."""
    return installers.write(folder / f"aws-efa-installer-{version}.tar.gz", "aws-efa-installer", _content(version))


def _content(version: str) -> dict[str, bytes]:
    script = (FILES / "efa_installer.sh").read_text(encoding="utf-8").replace("@version@", version)
    sources = f"efa/usr/src/efa-{DRIVER}"
    copied = {
        **{f"{sources}/{name}": name for name in ("efa.c", "Makefile", "dkms.conf")},
        **{f"efa/DEBIAN/{name}": name for name in ("postinst", "prerm")},
        "libfabric-aws-bin/opt/amazon/efa/bin/fi_info": "fi_info",
    }
    packages = {
        **{f"{name}/DEBIAN/control": installers.control(name, *fields) for name, fields in PACKAGES.items()},
        **{path: text.encode() for path, text in TEXTS.items()},
        **{path: (FILES / name).read_bytes() for path, name in copied.items()},
    }
    return {"efa_installer.sh": script.encode(), **{f"packages/{path}": body for path, body in packages.items()}}
