"""Build nccl-tests or nvbandwidth on the host from an archive.

The folder is replaced as a whole or not at all. Its file `built` names the program; the build's output is in
FOLDER.log.
gpuprov calls this step only when a build is needed, so that running it counts as the change. Check mode reports the
build and does not run it.

name: The tool.
archive: The source archive, on the host.
folder: The destination folder.
program: The program that the build must produce.
mpi: True to build with MPI.

Returns:
msg: The build made, or in check mode pending.
"""

from __future__ import annotations

import glob
import os
import re
import shutil
import stat
import subprocess
from typing import Mapping

from ..archives import unpack
from ..failed import Failed
from ..files import settle
from ..module import AnsibleModule

OPTIONS = {
    "name": {"type": "str", "choices": ["nccl", "nvbandwidth"], "required": True},
    "archive": {"type": "path", "required": True},
    "folder": {"type": "path", "required": True},
    "program": {"type": "str", "required": True},
    "mpi": {"type": "bool", "default": False},
}
# Suffix of the build folder, which is specific to this host if /opt is shared over a network.
WORK = f".{os.uname().nodename}.work"
CUDA = "/usr/local/cuda"
MPI = ("/usr/lib/*/openmpi", "/usr/lib64/openmpi")


def run(module: AnsibleModule) -> None:
    name, archive, folder, program = (module.params[key] for key in ("name", "archive", "folder", "program"))
    if module.check_mode:
        module.exit_json(changed=True, msg=f"would build {name} in {folder}")
    try:
        build(name, archive, folder, program, mpi=module.params["mpi"])
    except (Failed, OSError) as error:
        fix = f"see {folder}.log there; it needs a CUDA toolkit that fits the driver"
        module.fail_json(msg=f"{name} could not be built: {error}. Fix: {fix}")
    module.exit_json(changed=True, msg=f"{name} was built in {folder}")


def build(name: str, archive: str, folder: str, program: str, *, mpi: bool = False) -> None:
    """Build nccl or nvbandwidth, with the program in `bin`. The output goes to FOLDER.log. Raises Failed."""
    # Of a run that was killed.
    for leftover in glob.glob(f"{glob.escape(os.path.dirname(folder))}/*{glob.escape(WORK)}"):
        shutil.rmtree(leftover, ignore_errors=True)
    work = folder + WORK
    source, new = f"{work}/source", f"{work}/new"
    try:
        os.mkdir(work, 0o700)
        os.makedirs(source)
        os.makedirs(f"{new}/bin")
        unpack(archive, source)
        inside = [entry.path for entry in os.scandir(source)]
        top = inside[0] if len(inside) == 1 and os.path.isdir(inside[0]) else source
        with open(f"{folder}.log", "w", encoding="utf-8") as log:
            make = build_nccl if name == "nccl" else build_nvbandwidth
            make(top, new, log.name, mpi)
        if not os.access(f"{new}/bin/{program}", os.X_OK):
            raise Failed(f"the build made no {program}")
        with open(f"{new}/built", "w", encoding="utf-8") as file:
            file.write(f"bin/{program}\n")
        _open_to_all(new)
        settle([new])  # else a loss of power leaves `built` beside a program without content
        shutil.rmtree(folder, ignore_errors=True)
        os.rename(new, folder)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def build_nccl(source: str, new: str, log: str, mpi: bool) -> None:
    words = [f"CUDA_HOME={find_cuda()}", f"BUILDDIR={new}/bin"]
    _run("make", log, "make", "-C", source, "-j", str(os.cpu_count() or 1), *words, *(find_mpi() if mpi else []))


def build_nvbandwidth(source: str, new: str, log: str, _mpi_too: bool) -> None:
    made, compiler = f"{os.path.dirname(new)}/build", f"{find_cuda()}/bin/nvcc"
    release = ["-DCMAKE_BUILD_TYPE=Release", f"-DCMAKE_CUDA_COMPILER={compiler}"]
    _run("cmake", log, "cmake", "-S", source, "-B", made, *release)
    _run("the build", log, "cmake", "--build", made, "-j", str(os.cpu_count() or 1))
    if os.path.exists(f"{made}/nvbandwidth"):
        shutil.copy(f"{made}/nvbandwidth", f"{new}/bin")


def find_cuda() -> str:
    """Return the folder of the CUDA toolkit."""
    nvcc = shutil.which("nvcc") or shutil.which("nvcc", path=f"{CUDA}/bin")
    if not nvcc:
        raise Failed(f"no nvcc, in PATH or below {CUDA}")
    return os.path.dirname(os.path.dirname(nvcc))


def find_mpi() -> list[str]:
    """Return nccl-tests' setting for MPI: the folder with its headers."""
    # https://github.com/NVIDIA/nccl-tests#build
    compiler = shutil.which("mpicc")
    if not compiler:
        raise Failed("across hosts it needs MPI: no mpicc")
    beside = os.path.dirname(os.path.dirname(os.path.realpath(compiler)))
    for home in (beside, *(path for pattern in MPI for path in sorted(glob.glob(pattern)))):
        if os.path.exists(f"{home}/include/mpi.h"):
            return ["MPI=1", f"MPI_HOME={home}"]
    raise Failed("across hosts it needs MPI: no mpi.h beside mpicc")


def _run(what: str, log: str, *argv: str) -> None:
    env: Mapping[str, str] = {**os.environ, "PATH": f"{os.environ.get('PATH', os.defpath)}:{find_cuda()}/bin"}
    try:
        with open(log, "ab") as file:
            status = subprocess.run(
                argv, env=env, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT, check=False
            ).returncode
    except OSError as error:
        raise Failed(f"{argv[0]}: {error.strerror}") from error
    if status:
        with open(log, encoding="utf-8", errors="replace") as log_file:
            errors = [line.strip() for line in log_file if re.search("error|not found|cannot", line, re.I)]
        raise Failed(f"{what} failed: {' '.join(errors[:3]) or f'status {status}'}")


def _open_to_all(folder: str) -> None:
    """Allow everybody to read it, and to run what its owner runs."""
    for place, _, names in os.walk(folder):
        for path in (place, *(os.path.join(place, name) for name in names)):
            mode = os.lstat(path).st_mode
            if not stat.S_ISLNK(mode):
                os.chmod(path, 0o755 if mode & stat.S_IXUSR else 0o644)
