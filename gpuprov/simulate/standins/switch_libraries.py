"""Stand-ins for the libraries that DCGM uses to read NVSwitches: empty files with the real ones' names and versions.

NSCQ's file has the driver's version in its name (https://github.com/nvidia/apt-packaging-libnvidia-nscq), NVSDM's has
none (https://docs.nvidia.com/datacenter/tesla/nvsdm/installation.html). The stand-in host engine loads them as the real
one does.
"""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path

from gpuprov.simulate import tools
from gpuprov.simulate.distributions import Distribution
from gpuprov.simulate.parts.base import File
from gpuprov.simulate.standins.catalogue import part_names
from gpuprov.simulate.standins.driver import RPM
from gpuprov.simulate.standins.model import Standin

SUMMARIES = {"nscq": "NVSwitch Configuration and Query library", "nvsdm": "NVSwitch Device Monitoring library"}
SONAMES = {"nscq": "libnvidia-nscq.so.2", "nvsdm": "libnvsdm.so.1"}
SHELL = "#!/bin/sh\nset -e\n"
DEB_SCRIPTS = {"postinst": SHELL + "ldconfig\n", "postrm": SHELL + "ldconfig\n"}
RPM_SCRIPTS = {"post": "/sbin/ldconfig\n", "postun": "/sbin/ldconfig\n"}
SOURCE = (
    'const char gpuprov_stand_in[] = "{}: a gpuprov stand-in";\nconst char *gpuprov_version(void) {{ return "{}"; }}\n'
)


def files(part: str, version: str, folder: str) -> dict[str, File]:
    """Return the contents of the package of this driver version; `folder`: the distribution's for libraries. ldconfig
    makes the links."""
    name = f"libnvidia-nscq.so.{version}" if part == "nscq" else SONAMES[part]
    return {f"{folder}/{name}": File(_library(SONAMES[part], version))}


def rpms(distribution: Distribution, version: str) -> list[Standin]:
    """Return the packages of them in NVIDIA's repository for this driver version."""
    return [
        Standin(
            name, f"{version}-1", f"{summary} {version}", files=files(part, version, RPM.libraries), scripts=RPM_SCRIPTS
        )
        for part, summary in SUMMARIES.items()
        for name in part_names(distribution, part, version)
    ]


@cache
def _library(soname: str, version: str) -> bytes:
    with tempfile.TemporaryDirectory(prefix="gpuprov-") as temporary:
        source, library = Path(temporary) / "library.c", Path(temporary) / "library"
        source.write_text(SOURCE.format(soname, version), encoding="utf-8")
        tools.run(["gcc", "-shared", "-fPIC", "-nostdlib", f"-Wl,-soname,{soname}", "-o", str(library), str(source)])
        return library.read_bytes()
