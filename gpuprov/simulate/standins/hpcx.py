"""Open MPI and UCX of DOCA-OFED and NVIDIA's HPC-X as stand-ins: programs that say so, and libraries without content.

Names and layout: gpuprov/catalog/data/hpc.yaml;
https://docs.nvidia.com/networking/display/hpcx222/Installing+and+Loading+HPC-X
"""

from __future__ import annotations

import bz2
import gzip
import hashlib
import tempfile
from pathlib import Path

from gpuprov.simulate import tools
from gpuprov.simulate.parts.base import File
from gpuprov.simulate.standins import installers
from gpuprov.simulate.standins.model import Standin

FILES = Path(__file__).parents[1] / "parts" / "hpc_files"
FOLDER = "hpcx-v2.24.1-gcc-doca_ofed-ubuntu24.04-cuda12-x86_64"
SHARP = "libsharp_coll.so.5"
# The plugin of an HPC-X for a CUDA that no simulated host has, which a fault puts in the place of the other one.
OTHER_CUDA = "stand-in/libnccl-net.so"
PLUGIN = "nccl_rdma_sharp_plugin/lib/libnccl-net.so"
MODULE = b"#%Module1.0\n# A stand-in of gpuprov's simulated hosts.\n"


def read_program(name: str, library: str, cuda: bool) -> bytes:
    """Return a program of the stand-ins."""
    words = {b"@LIBRARY@": library.encode(), b"@CUDA@": b"true" if cuda else b"false"}
    text = (FILES / name).read_bytes()
    for word, value in words.items():
        text = text.replace(word, value)
    return text


def link(soname: str, *needs: str) -> bytes:
    """Return a shared object without content that needs libraries of these names."""
    with tempfile.TemporaryDirectory(prefix="gpuprov-") as temporary:
        flags = ("-shared", "-nostdlib", "-x", "c", "/dev/null", "-Wl,--no-as-needed")
        for need in needs:
            tools.run(["gcc", *flags, f"-Wl,-soname,{need}", "-o", f"{temporary}/{need}"])
        linked = [f"-L{temporary}", *(f"-l:{need}" for need in needs)]
        tools.run(["gcc", *flags, f"-Wl,-soname,{soname}", "-o", f"{temporary}/made", *linked])
        return Path(temporary, "made").read_bytes()


def write(folder: Path, name: str = FOLDER) -> tuple[Path, str]:
    """Write the archive; return its path and SHA-256."""
    content = {
        "hpcx-init.sh": (FILES / "hpcx-init.sh").read_bytes(),
        "modulefiles/hpcx": MODULE,
        "ompi/bin/mpirun": read_program("mpirun", "", cuda=True),
        "ompi/bin/ompi_info": read_program("ompi_info", "", cuda=True),
        "ucx/bin/ucx_info": read_program("ucx_info", "/opt/hpcx/ucx/lib/libucs.so.0", cuda=True),
        f"sharp/lib/{SHARP}": link(SHARP),
        PLUGIN: link("libnccl-net.so", SHARP),
        OTHER_CUDA: link("libnccl-net.so", SHARP, "libcudart.so.99"),
    }
    packed = bz2.compress(gzip.decompress(installers.archive(name, content)))
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{name}.tbz"
    file.write_bytes(packed)
    return file, hashlib.sha256(packed).hexdigest()


def build_packages(end: str) -> list[Standin]:
    """Return DOCA's openmpi and ucx; `end`: the end of their versions, which names the OFED level."""
    home = "/usr/mpi/gcc/openmpi-4.1.9a1/bin"
    library = "/usr/lib/libucs.so.0"
    mpi = {f"{home}/{name}": File(read_program(name, "", cuda=False), 0o755) for name in ("mpirun", "ompi_info")}
    ucx = {"/usr/bin/ucx_info": File(read_program("ucx_info", library, cuda=False), 0o755)}
    return [
        Standin("ucx", f"1.20.0-1.{end}", "DOCA's UCX: ucx_info alone", ucx),
        Standin("openmpi", f"4.1.9a1-1.{end}", "DOCA's Open MPI: mpirun and ompi_info alone", mpi, requires=("ucx",)),
    ]
