"""NVIDIA's .run file as a stand-in: an archive behind a shell script, whose installer has the real one's options and
record.

https://github.com/NVIDIA/nvidia-installer (option_table.h, backup.c, install-from-cwd.c): it builds first, then
uninstalls the existing driver. Its modules are the simulation's, its programs NVIDIA's own from Debian's packages.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
from collections.abc import Mapping
from pathlib import Path

from gpuprov.simulate.parts import silicon
from gpuprov.simulate.parts.base import File
from gpuprov.simulate.repository.standins import Flavour
from gpuprov.simulate.standins import driver as pieces
from gpuprov.simulate.standins.driver import Place

FILES = Path(__file__).with_name("files")
PROGRAMS = ("nvidia-smi", "nvidia-persistenced", "nvidia-cuda-mps-control", "nvidia-cuda-mps-server", "nvidia-modprobe")
LIBRARIES = Place("lib")
FLAVOURS: tuple[tuple[str, Flavour], ...] = (("kernel", "proprietary"), ("kernel-open", "open"))


def name(version: str) -> str:
    """Return NVIDIA's name of the file."""
    return f"NVIDIA-Linux-x86_64-{version}.run"


def write(folder: Path, version: str) -> Path:
    """Write the file, and its checksum beside it (FILE.sha256). The same simulation gives the same file."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / name(version)
    content = runfile(version)
    file.write_bytes(content)
    (folder / f"{file.name}.sha256").write_text(
        f"{hashlib.sha256(content).hexdigest()}  {file.name}\n", encoding="utf-8"
    )
    return file


def runfile(version: str) -> bytes:
    """Return header and archive. The header has the number of its lines to skip, and the checksum of what follows."""
    archive = _archive(_content(version))
    header = (FILES / "runfile.sh").read_text(encoding="utf-8")
    lines = str(header.count("\n") + 1)
    replacements = {"@VERSION@": version, "@SKIP@": lines, "@SHA256@": hashlib.sha256(archive).hexdigest()}
    for word, value in replacements.items():
        header = header.replace(word, value)
    return header.encode() + archive


def _content(version: str) -> dict[str, File]:
    """Return the contents of the archive, by path in it."""
    made = {f"bin/{path.rpartition('/')[2]}": file for path, file in pieces.programs(*PROGRAMS).items()}
    made |= pieces.management_library(version, LIBRARIES)
    made |= pieces.libraries(version, LIBRARIES, "libcuda", "libnvidia-ptxjitcompiler")
    made |= pieces.configuration(version, LIBRARIES)
    made |= {path.replace("/usr/lib/firmware", "firmware", 1): file for path, file in pieces.firmware(version).items()}
    for folder, flavour in FLAVOURS:
        source = silicon.dkms_source(version, flavour, "nvidia")
        made |= {f"{folder}/{path}": File(content) for path, content in source.items()}
    return made | {"nvidia-installer": File(FILES / "nvidia-installer", 0o755)}


def _archive(files: Mapping[str, File]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for path, file in sorted(files.items()):
            content = file.content.read_bytes() if isinstance(file.content, Path) else file.content
            entry = tarfile.TarInfo(path)
            entry.size, entry.mode = len(content), file.mode
            archive.addfile(entry, io.BytesIO(content))
    return gzip.compress(packed.getvalue(), mtime=0)
