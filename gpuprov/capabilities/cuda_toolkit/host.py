"""Values that follow from the `cuda_toolkit` block on a given host."""

from gpuprov.capabilities.cuda_toolkit import decision
from gpuprov.capabilities.cuda_toolkit.decision import Decision, There
from gpuprov.capabilities.cuda_toolkit.fragment import CudaToolkit
from gpuprov.capabilities.driver import find_current_version, find_requested_version
from gpuprov.catalog import cuda
from gpuprov.catalog.cuda import packages as catalogue
from gpuprov.facts.probes.base import Facts, ProbeFailed
from gpuprov.facts.probes.driver import cuda_toolkit, nvidia
from gpuprov.facts.probes.host import family, system
from gpuprov.facts.probes.software.packages import Package
from gpuprov.rules import resolve
from gpuprov.spec.model import HostSpec

BASE = (system.OS_RELEASE, cuda_toolkit.PACKAGES, nvidia.LIBRARIES, nvidia.DRIVER)


def find_family(facts: Facts) -> family.Family:
    """Return the host's family. Raises ProbeFailed on a host of neither."""
    release = facts.get(system.OS_RELEASE)
    known_family = family.family(release)
    if known_family is None:
        message = f"no packages of the CUDA toolkit are known for {release.name or release.id}"
        raise ProbeFailed(message, "take cuda_toolkit out of the spec")
    return known_family


def list_versions(facts: Facts) -> dict[str, str]:
    """Return package versions by name."""
    return {name: package.version for name, package in facts.get(cuda_toolkit.PACKAGES).items()}


def choose_driver(host: HostSpec, facts: Facts) -> str:
    """Return the driver that the toolkits will run on: the installed (or loaded) one if it matches the spec, else the
    spec's."""
    current = find_current_version(facts)
    named, least = find_requested_version(host), find_lowest_driver(host)
    kept = (not named or catalogue.is_satisfying(current, named)) and resolve.order(current) >= resolve.order(least)
    return current if kept else least


def find_lowest_driver(host: HostSpec) -> str:
    """Return the lowest driver that the spec leads to: the named one, or the oldest that runs the CUDA of
    `nvidia_driver.cuda`."""
    named = find_requested_version(host)
    floor = cuda.list_floors().get(getattr(host.capabilities.get("nvidia_driver"), "cuda", ""), "")
    return floor if floor and (not named or named == catalogue.take_major(floor)) else named


def suggest_driver(host: HostSpec, version: str, floor: str) -> str:
    """Return the spec's text for a driver that runs this toolkit."""
    field = f'cuda: "{catalogue.take_minor(version)}"'
    if not find_requested_version(host):
        return f"nvidia_driver: {{{field}}}"
    return f'nvidia_driver: {{version: "{catalogue.take_major(floor)}", {field}}} (or a newer branch)'


def find_basis(host: HostSpec, facts: Facts) -> There:
    """Return the basis of the decision before anything is changed: what the repositories offer, and the driver that is
    to run the toolkits."""
    return There(find_family(facts), facts.get(cuda_toolkit.INDEX), list_versions(facts), choose_driver(host, facts))


def decide(block: CudaToolkit, facts: Facts) -> Decision:
    """Return the decision without an index, in which only installed packages can be chosen."""
    return decision.decide(block, There(find_family(facts), {}, list_versions(facts)))


def find_installed(block: CudaToolkit, facts: Facts) -> dict[str, Package]:
    """Return the installed packages of the block: of its toolkits, and of cuDNN and NCCL if they are requested."""
    present = facts.get(cuda_toolkit.PACKAGES)
    minors = list_minors(block, facts)
    libraries = [
        entry.replace("{cuda}", catalogue.take_major(choose_default(block, facts)))
        for row in catalogue.read_toolkits_file().libraries
        if getattr(block, row.library) and row.family == find_family(facts)
        for entry in (*row.run, *row.build, *row.beside)
    ]
    return {name: p for name, p in present.items() if catalogue.find_toolkit(name) in minors or name in libraries}


def list_minors(block: CudaToolkit, facts: Facts) -> list[str]:
    """Return the requested toolkits (`12.4`); without versions, the installed ones."""
    named = [catalogue.take_minor(version) for version in block.versions]
    return named or list(decide(block, facts).releases)


def choose_default(block: CudaToolkit, facts: Facts) -> str:
    """Return the toolkit that /usr/local/cuda should lead to; empty if there is none."""
    return block.default or max(list_minors(block, facts), key=resolve.order, default="")
