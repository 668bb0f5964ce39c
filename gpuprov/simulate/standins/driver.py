"""Contents of the stand-in driver packages of Ubuntu and of NVIDIA's repositories: pieces of one driver, by path.

nvidia-smi, the persistence daemon and the MPS programs are NVIDIA's own, from Debian's packages; everything that
touches a GPU is simulated.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from gpuprov.simulate import debs, image, sources, tools
from gpuprov.simulate.parts import nvml, silicon
from gpuprov.simulate.parts.base import File, text
from gpuprov.simulate.repository.debian import Archive, Package
from gpuprov.simulate.repository.standins import FIRMWARE, Flavour, configuration_library

SUITE = "bookworm"
PROGRAMS = {  # program -> Debian's package, place in it, place in the others' packages
    "nvidia-smi": ("nvidia-smi", "usr/lib/nvidia/current/nvidia-smi", "/usr/bin/nvidia-smi"),
    "nvidia-persistenced": ("nvidia-persistenced", "usr/bin/nvidia-persistenced", "/usr/bin/nvidia-persistenced"),
    "nvidia-cuda-mps-control": (
        "nvidia-cuda-mps",
        "usr/bin/nvidia-cuda-mps-control",
        "/usr/bin/nvidia-cuda-mps-control",
    ),
    "nvidia-cuda-mps-server": ("nvidia-cuda-mps", "usr/sbin/nvidia-cuda-mps-server", "/usr/bin/nvidia-cuda-mps-server"),
    "nvidia-modprobe": ("nvidia-modprobe", "usr/bin/nvidia-modprobe", "/usr/bin/nvidia-modprobe"),
}
MODPROBE = """\
# Of a gpuprov simulated host: nouveau is kept out, as in the real package.
blacklist nouveau
alias nouveau off
"""
USER = "nvidia-persistenced"
ACCOUNT = (
    f"getent passwd {USER} >/dev/null || useradd --system --no-create-home --home-dir / "
    f"--shell /usr/sbin/nologin --comment 'NVIDIA Persistence Daemon' {USER}\n"
)
RELOAD = "if [ -d /run/systemd/system ]; then systemctl daemon-reload; fi\n"
# Ubuntu's unit starts the daemon without persistence mode, and is started by a udev rule: it has no [Install] section.
UNIT = """\
[Unit]
Description=NVIDIA Persistence Daemon
Wants=syslog.target

[Service]
Type=forking
ExecStart=/usr/bin/nvidia-persistenced --user {user}{flags} --verbose
ExecStopPost=/bin/rm -rf /var/run/nvidia-persistenced
"""
INSTALL = "\n[Install]\nWantedBy=multi-user.target\n"
# Modules are built for every kernel whose headers are there: the running one is another machine's, below the container.
BUILD = """\
for build in /lib/modules/*/build; do
  [ -d "$build" ] || continue
  kernel=${{build%/build}}; kernel=${{kernel##*/}}
  dkms install -m {name} -v {version} -k "$kernel" --force >/dev/null || {otherwise}
done
"""
HOLLOW = 'const char gpuprov_stand_in[] = "{}: a gpuprov stand-in";\n'


@dataclass(frozen=True)
class Place:
    """Folders of a package format: libraries and units."""

    libraries: str
    units: str = "/usr/lib/systemd/system"


DEB = Place("/usr/lib/x86_64-linux-gnu")
RPM = Place("/usr/lib64")


def modules(version: str, flavour: Flavour, package: str) -> dict[str, File]:
    """Return the kernel modules' source as DKMS expects it, under their DKMS name."""
    tree = f"/usr/src/{package}-{version}"
    return {f"{tree}/{path}": File(content) for path, content in silicon.dkms_source(version, flavour, package).items()}


def build(version: str, package: str, options: str = "", *, otherwise: str = "exit 1") -> str:
    """Return a shell script that makes DKMS build them."""
    return f"dkms add -m {package} -v {version}{options} >/dev/null 2>&1 || :\n" + BUILD.format(
        name=package, version=version, otherwise=otherwise
    )


def forget(version: str, package: str, options: str = "") -> str:
    """Return a shell script that removes them from DKMS."""
    return f"dkms remove -m {package} -v {version} --all{options} >/dev/null 2>&1 || :\n"


def management_library(version: str, place: Place) -> dict[str, File]:
    """Return the stand-in NVML."""
    (file,) = nvml.package_files(version).values()
    return {f"{place.libraries}/libnvidia-ml.so.{version}": file}


def libraries(version: str, place: Place, *names: str) -> dict[str, File]:
    """Return libraries without any content of their own."""
    return {f"{place.libraries}/{name}.so.{version}": File(_hollow(name)) for name in names}


def configuration(version: str, place: Place) -> dict[str, File]:
    """Return the stand-in libnvidia-cfg."""
    return {f"{place.libraries}/libnvidia-cfg.so.{version}": File(configuration_library())}


def firmware(version: str) -> dict[str, File]:
    """Return the firmware of the GPU's GSP, as an empty stand-in."""
    return {f"/usr/lib/firmware/nvidia/{version}/{name}.bin": File(FIRMWARE) for name in ("gsp_ga10x", "gsp_tu10x")}


def programs(*names: str) -> dict[str, File]:
    """Return NVIDIA's own programs."""
    folder = _extracted()
    return {PROGRAMS[name][2]: File(folder / name, 0o4755 if name == "nvidia-modprobe" else 0o755) for name in names}


def persistence(place: Place, *, on: bool) -> Mapping[str, File]:
    """Return the persistence daemon and its unit; `on`: with persistence mode, and started at boot once it is
    enabled."""
    unit = UNIT.format(user=USER, flags="" if on else " --no-persistence-mode") + (INSTALL if on else "")
    return programs("nvidia-persistenced") | {f"{place.units}/nvidia-persistenced.service": text(unit)}


def key() -> bytes:
    """Return a hash input for all of that content."""
    root = Path(__file__).parents[1]
    digest = hashlib.sha256()
    for file in (root / "parts/nvml_files", root / "parts/silicon_files/nvidia"):
        for each in sorted(file.iterdir()):
            digest.update(each.read_bytes())
    return digest.digest()


@cache
def _hollow(name: str) -> bytes:
    with tempfile.TemporaryDirectory(prefix="gpuprov-") as temporary:
        source, library = Path(temporary) / "library.c", Path(temporary) / "library"
        source.write_text(HOLLOW.format(name), encoding="utf-8")
        flags = ("-shared", "-fPIC", "-nostdlib", f"-Wl,-soname,{name}.so.1")
        tools.run(["gcc", *flags, "-o", str(library), str(source)])
        return library.read_bytes()


@cache
def _extracted() -> Path:
    """Return a folder with the programs, cached: those of Debian's newest packages when it was made."""
    made = image.cache_dir() / f"driver-programs-{hashlib.sha256(repr((SUITE, PROGRAMS)).encode()).hexdigest()[:12]}"
    with image.alone(made.with_name(f"{made.name}.lock")):
        if not made.is_dir():
            tools.say("fetching NVIDIA's programs from Debian's packages")
            with tempfile.TemporaryDirectory(prefix=".programs-", dir=image.cache_dir()) as temporary:
                folder = Path(temporary) / "programs"
                folder.mkdir()
                _extract(Path(temporary), folder)
                os.replace(folder, made)
    return made


def _extract(scratch: Path, folder: Path) -> None:
    archive = Archive(scratch / "apt", SUITE, sources.read())
    kept = image.cache_dir() / "packages"
    kept.mkdir(exist_ok=True)
    newest: dict[str, Package] = {}
    for package in archive.packages():
        newest.setdefault(package.name, package)  # an index has the newest of its suite only
    for name in sorted({deb for deb, _, _ in PROGRAMS.values()}):
        (deb,) = archive.download([newest[name]], kept)
        debs.unpack(deb, scratch / name)
    for program, (deb_name, path, _) in PROGRAMS.items():
        (folder / program).write_bytes((scratch / deb_name / path).read_bytes())
