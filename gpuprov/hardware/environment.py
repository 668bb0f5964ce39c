"""Variables of everybody that hide GPUs from programs, or give them other libraries than the driver's: one judge for
host and health."""

import re
from collections.abc import Iterator

from gpuprov.facts.probes.base import Facts
from gpuprov.facts.probes.driver import nvidia
from gpuprov.facts.probes.host import pci
from gpuprov.facts.probes.host.environment import ENVIRONMENT, Environment, Variable
from gpuprov.rules.resolve import order

PROBES = (ENVIRONMENT, nvidia.LIBRARIES, pci.NVIDIA_FUNCTIONS)
OWN_LIBRARY = re.compile(r"lib(?:cuda|nvidia|nccl|ibverbs|mlx5)")
CLIENT = "CUDA_MPS_PIPE_DIRECTORY"


def list_obstacles(facts: Facts, *, mps: bool) -> list[tuple[str, str]]:
    """List what is in the way, and the file that sets it. `mps`: the host has MPS daemons of gpuprov's."""
    environment = facts.get(ENVIRONMENT)
    count = len(pci.driven(facts.get(pci.NVIDIA_FUNCTIONS)))
    driver = (facts.known(nvidia.LIBRARIES) or {}).get("libcuda", "")
    return [
        (f"{each.file} sets {each.name}={each.value[:80]}: {why}", f"{each.name} out of {each.file}")
        for each in environment.variables
        for why in _judge(each, environment, count, driver, mps=mps)
    ]


def _judge(each: Variable, environment: Environment, count: int, driver: str, *, mps: bool) -> Iterator[str]:
    if each.name in ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES") and not _names_every_gpu(each, count):
        whom = "CUDA programs" if each.name.startswith("CUDA") else "containers that take it from there, as Enroot's,"
        yield f"{whom} do not see all {count} GPUs"
    elif each.name == CLIENT and each.value and not (mps and each.value.startswith("/run/gpuprov/")):
        yield "CUDA programs are clients of the MPS daemon there, " + ("and not of gpuprov's" if mps else "if one runs")
    elif each.name == "LD_PRELOAD":
        yield from _judge_preloaded(each.value, environment)
    elif each.name == "LD_LIBRARY_PATH":
        for folder in each.value.split(":"):
            for library in environment.libraries.get(folder, ()):
                version = _find_version(library)
                newer = "compat" in folder and version and driver and order(version) > order(driver)
                if driver and version != driver and not newer:
                    yield f"{library} comes before that of driver {driver}"


def _judge_preloaded(value: str, environment: Environment) -> Iterator[str]:
    for path in re.split(r"[\s:]+", value):
        if path in environment.missing:
            yield f"{path} is not there"
        elif OWN_LIBRARY.search(path.rpartition("/")[2]):
            yield f"{path} comes before the library of the driver, of CUDA or of RDMA"


def _names_every_gpu(each: Variable, count: int) -> bool:
    """Return whether a list of devices names every GPU: CUDA ignores what follows a name that it does not know."""
    if each.name.startswith("NVIDIA") and each.value == "all":
        return True
    named = [word.strip() for word in each.value.split(",")]
    if all(word.startswith("GPU-") for word in named):
        return len(set(named)) >= count
    return {str(number) for number in range(count)} <= set(named)


def _find_version(library: str) -> str:
    version = re.search(r"\.so\.([0-9]{3}(?:\.[0-9]+)+)\Z", library)
    return version[1] if version else ""
