"""`pcie`: IOMMU mode, ACS, relaxed ordering, maximum read request and affinity of GPUs and HCAs, set again at each
boot."""

from collections.abc import Iterable

from gpuprov.capabilities.at_boot import carried
from gpuprov.capabilities.base import Capability
from gpuprov.capabilities.pcie import checks, preflight
from gpuprov.capabilities.pcie.desired import DESIRED, MODULES, RESOURCES
from gpuprov.capabilities.pcie.fragment import Pcie, lines, model
from gpuprov.capabilities.pcie.tasks import TASKS
from gpuprov.catalog import pcie as catalogue
from gpuprov.core.safe_parse import is_whole
from gpuprov.facts.probes import rdma
from gpuprov.facts.probes.base import Facts
from gpuprov.facts.probes.host.pcie import PCIE
from gpuprov.host_code.at_boot.pcie import Function
from gpuprov.spec.kernel import Kernel
from gpuprov.spec.model import Fragment, HostSpec
from gpuprov.spec.problem import Problem, report_under

HERE = "pcie"
problem = report_under(HERE)


def rules(host: HostSpec, block: Pcie) -> Iterable[Problem]:
    for key in ("max_read_request", "gpu_max_read_request"):
        value = getattr(block, key)
        if value and value not in catalogue.READ_REQUESTS:
            allowed = ", ".join(str(size) for size in catalogue.READ_REQUESTS)
            yield problem((key,), f"is {value}", f"allowed: {allowed}, or 0, which leaves it alone")
    if block.iommu != "keep" and not catalogue.build_parameters(block.iommu, block.cpu, model(host)):
        message = f"is {block.iommu}, and no kernel parameter switches the IOMMU of an Arm processor off"
        yield problem("iommu", message, "iommu: passthrough, or set it in the firmware")
    if block.acs == "disabled" and model(host).startswith(catalogue.ARM_GPUS):
        message = f"is disabled, and on machines with {model(host)} each port needs a mask of its own"
        yield problem("acs", message, "acs: rdma_topo, with rdma-core 61 or later; or acs: keep")
    if block.acs == "rdma_topo" and block.iommu == "disabled":
        message = "pcie.acs is rdma_topo, whose masks the kernel sets only with an IOMMU, and pcie.iommu is disabled"
        yield Problem(path=(HERE, "iommu"), message=message, fix="iommu: keep, or acs: keep")
    if block == Pcie():
        message = "asks for nothing: all of it is keep or 0"
        yield problem("", message, "name a setting, or leave the block out", warning=True)


def contribute(host: HostSpec, block: Pcie) -> Kernel | None:
    """Return the IOMMU's parameters."""
    parameters = catalogue.build_parameters(block.iommu, block.cpu, model(host)) if block.iommu != "keep" else {}
    return Kernel(command_line=parameters) if parameters else None


def export(facts: Facts) -> Fragment | None:
    """Return the settings of gpuprov's own unit, as far as the functions have them now."""
    state = facts.get(PCIE)
    if not state.config or state.file != "enabled":
        return None
    known = {device.address for device in rdma.list_hcas(facts.get(rdma.DEVICES))}
    hcas = [function for function in state.of("hca") if function.address in known]
    values = dict(line.split() for line in state.config if len(line.split()) == 2)
    sizes = {
        key: int(values[key]) for key in ("max_read_request", "gpu_max_read_request") if is_whole(values.get(key, ""))
    }
    ordering = values.get("relaxed_ordering", "keep")
    block = Pcie(
        acs="disabled"
        if values.get("acs") == "disabled" and not any(function.acs for function in state.path())
        else "keep",
        max_read_request=_count_held(sizes.get("max_read_request", 0), hcas),
        gpu_max_read_request=_count_held(sizes.get("gpu_max_read_request", 0), state.of("gpu")),
        relaxed_ordering=ordering if ordering in ("enabled", "disabled") else "keep",  # type: ignore[arg-type]
        affinity="local" if values.get("affinity") == "local" else "keep",
    )
    return block if lines(block) else None


def _count_held(size: int, functions: Iterable[Function]) -> int:
    return (
        size if size in catalogue.READ_REQUESTS and all(function.read_request == size for function in functions) else 0
    )


CAPABILITY = Capability(
    name=HERE,
    summary="IOMMU mode, ACS, relaxed ordering, maximum read request and affinity of GPUs and HCAs, set again at "
    "each boot",
    fragment=Pcie,
    checks=checks.CHECKS + preflight.CHECKS,
    rules=rules,
    contribute=contribute,
    export=export,
    export_probes=(PCIE, rdma.DEVICES),
    follows=("rdma", "nvidia_driver"),
    tasks=TASKS,
    desired=DESIRED,
    resources=RESOURCES,
    carried=carried(MODULES),
    packages=True,
    driverless=True,
    needs_gpu=True,
    shown_by="tests/e2e/test_rdma_traps.py",
    taken_away={},
    until_boot="registers and interrupts",
)
