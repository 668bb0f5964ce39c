"""Rules for `hpc` that hold on any host."""

import re
from collections.abc import Iterable

from gpuprov.capabilities.driver import find_requested_version
from gpuprov.capabilities.hpc.fragment import Hpc, find_archive
from gpuprov.catalog import cuda, gpus
from gpuprov.catalog import hpc as catalogue
from gpuprov.spec import named
from gpuprov.spec.model import HostSpec
from gpuprov.spec.problem import Problem, report_under

HERE = "hpc"
problem = report_under(HERE)
NAME = "hpcx-v2.25.1-gcc-doca_ofed-ubuntu24.04-cuda13-x86_64.tbz"


def rules(host: HostSpec, block: Hpc) -> Iterable[Problem]:
    """Yield what cannot work on any host."""
    source = block.hpcx
    if block.mpi == "openmpi" and block.cuda_aware and _find_stack(host) != "doca-ofed":
        message = "is true, and the distribution's own UCX is built without CUDA"
        yield problem("cuda_aware", message, "mpi: hpcx; or rdma: {stack: doca-ofed}")
    if block.mpi == "hpcx" and (source.url or source.file or source.sha256):
        yield from _check_archive(host, block)


def _check_archive(host: HostSpec, block: Hpc) -> Iterable[Problem]:
    source, archive = block.hpcx, find_archive(block)
    if source.url and source.file:
        yield problem("hpcx", "has both url and file", "one of them")
    elif not (source.url or source.file):
        yield problem(("hpcx", "sha256"), "is of no file", "name url or file, or leave it out")
        return
    if not source.sha256:
        message = "is missing: whatever comes would be run as root"
        yield problem(("hpcx", "sha256"), message, "sha256sum FILE, of the file that NVIDIA's download page gives")
    if source.file and not source.url and (why := named.explain_unusable(source.file, source.sha256)):
        yield problem(("hpcx", "file"), f"{source.file} {why}", "put the archive there, or name url")
    key = "url" if source.url else "file"
    if archive is None:
        message = f"is not named as NVIDIA names archives of HPC-X, by which it is known what it was built for: {NAME}"
        yield problem(("hpcx", key), message, "give it its own name again")
        return
    yield from _check_build_target(host, archive, key)


def _check_build_target(host: HostSpec, archive: catalogue.Archive, key: str) -> Iterable[Problem]:
    place, majors = ("hpcx", key), {version.partition(".")[0] for version in cuda.list_floors()}
    known = tuple(name for names in catalogue.DISTRIBUTIONS.values() for name in names)
    distribution = re.sub(r"[0-9].*", "", archive.distribution)
    given = (
        ("compiler", archive.compiler, (catalogue.COMPILER,), archive.compiler),
        ("distribution", archive.distribution, known, distribution),
        ("CUDA", archive.cuda, sorted(majors, key=int), archive.cuda),
    )
    unknown = [row for row in given if row[3] not in row[2]]
    for what, value, allowed, _ in unknown:
        yield problem(place, f"names an unknown {what}: {value}", f"allowed: {', '.join(allowed)}")
    if not unknown:
        yield from _check_processor(host, archive, place)
        yield from _check_software(host, archive, place)


def _check_processor(host: HostSpec, archive: catalogue.Archive, place: tuple[str, str]) -> Iterable[Problem]:
    gpu = gpus.find_gpu(host.gpu.model) if host.gpu else None
    if gpu and gpu.superchip and archive.arch != "aarch64":
        message = f"is built for {archive.arch}, and the processor of a {gpu.key} is aarch64"
        yield problem(place, message, "the archive with aarch64 in its name")
    elif gpu and gpu.nvswitch and archive.arch != "x86_64":
        message = f"is built for {archive.arch}, and hosts of {', '.join(gpu.nvswitch.boards)} are mostly x86_64"
        yield problem(place, message, "the archive with x86_64 in its name", warning=True)


def _check_software(host: HostSpec, archive: catalogue.Archive, place: tuple[str, str]) -> Iterable[Problem]:
    stack = _find_stack(host)
    if stack and archive.stack and archive.stack != stack:
        words = "doca_ofed" if stack == "doca-ofed" else "inbox"
        message = f"is built for {archive.build}, and rdma.stack is {stack}: its UCX needs the other one's libraries"
        yield problem(place, message, f"the archive with {words} in its name; or rdma: {{stack: {archive.stack}}}")
    driver = find_requested_version(host)
    if driver and cuda.check_support(driver, f"{archive.cuda}.0").runs is False:
        message = f"is built for CUDA {archive.cuda}, which driver {driver} does not run"
        yield problem(place, message, "the archive of a CUDA that it runs; or a newer nvidia_driver")
    majors = {
        str(version).partition(".")[0] for version in getattr(host.capabilities.get("cuda_toolkit"), "versions", ())
    }
    if majors and archive.cuda not in majors:
        message = f"is built for CUDA {archive.cuda}, and cuda_toolkit has {', '.join(sorted(majors))} alone"
        yield problem(place, message, f"the archive with cuda{max(majors)} in its name", warning=True)


def _find_stack(host: HostSpec) -> str:
    """Return the RDMA stack of the spec; empty without one."""
    return str(getattr(host.capabilities.get("rdma"), "own_stack", ""))
