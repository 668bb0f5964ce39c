"""GPUDirect Storage of simulated hosts: stand-ins of libcufile, of its tools and of nvidia-fs, with the real packages'
names.

Names and versions: gpuprov/catalog/data/gds.yaml. DKMS really builds the module, which does nothing; gdscheck says that
it is a stand-in.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from gpuprov.catalog import gds
from gpuprov.catalog.cuda import packages
from gpuprov.catalog.cuda.packages import format_dashed, take_minor
from gpuprov.simulate.parts.base import File
from gpuprov.simulate.standins import driver
from gpuprov.simulate.standins.extra import Extra, Form
from gpuprov.simulate.standins.extras_cuda import LDCONFIG, library, package

ASSETS = Path(__file__).parents[1] / "parts" / "gds_files"
MODULE, DKMS_NAME = "2.24.2", "nvidia-fs"
REGISTER = """\
#!/bin/sh
set -e
update-alternatives --install {link} cufile.json {place} {priority}
"""
FORGET = """\
#!/bin/sh
set -e
if [ "$1" = remove ] || [ "$1" = 0 ]; then update-alternatives --remove cufile.json {place}; fi
"""


def asset(name: str, version: str = "", mode: int = 0o644) -> File:
    """Return a file of the stand-ins, which has the version where it names one."""
    return File((ASSETS / name).read_bytes().replace(b"@VERSION@", version.encode()), mode)


def release(cuda: str, version: str) -> list[Extra]:
    """Return libcufile and the tools of one CUDA release."""
    kit, root, place = format_dashed(cuda), f"{packages.LINK}-{take_minor(cuda)}", gds.configuration(take_minor(cuda))
    words = {"link": gds.LINK, "place": place, "priority": take_minor(cuda).replace(".", "")}

    def files(_form: Form) -> Mapping[str, File]:
        lib = f"{root}/targets/x86_64-linux/lib/libcufile.so.{version}"
        return {lib: File(library("libcufile.so.0")), place: asset("cufile.json")}

    tools = {f"{root}/gds/tools/gdscheck": asset("gdscheck", version, 0o755)}
    scripts = (REGISTER.format(**words) + LDCONFIG.removeprefix("#!/bin/sh\n"), FORGET.format(**words))
    return [
        package(f"libcufile-{kit}", f"{version}-1", f"cuFile of CUDA {take_minor(cuda)}", files, scripts=scripts),
        package(
            f"gds-tools-{kit}",
            f"{version}-1",
            f"tools of GPUDirect Storage of CUDA {take_minor(cuda)}",
            tools,
            {f"libcufile-{kit}": version},
        ),
    ]


def module() -> Extra:
    """Return nvidia-fs, which DKMS builds for each kernel."""
    tree = f"/usr/src/{DKMS_NAME}-{MODULE}"
    files = {f"{tree}/{name}": asset(name, MODULE) for name in ("nvidia-fs.c", "Makefile", "dkms.conf")}
    scripts = (f"#!/bin/sh\n{driver.build(MODULE, DKMS_NAME)}", f"#!/bin/sh\n{driver.forget(MODULE, DKMS_NAME)}")
    return package(
        f"{DKMS_NAME}-dkms",
        f"{MODULE}-1",
        "the kernel module of GPUDirect Storage",
        files,
        {"dkms": ""},
        scripts=scripts,
    )


EXTRAS: tuple[Extra, ...] = (*release("12.8.1", "1.13.1.3"), *release("13.0.2", "1.15.1.6"), module())
