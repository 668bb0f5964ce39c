"""`passthrough`: whole GPUs for virtual machines, bound to vfio-pci before NVIDIA's driver is loaded."""

from gpuprov.capabilities.at_boot import carried
from gpuprov.capabilities.base import Capability
from gpuprov.capabilities.passthrough.checks import CHECKS
from gpuprov.capabilities.passthrough.desired import DESIRED, MODULES, RESOURCES
from gpuprov.capabilities.passthrough.fragment import DRIVERS, Passthrough
from gpuprov.capabilities.passthrough.rules import contribute, rules
from gpuprov.capabilities.passthrough.tasks import TASKS
from gpuprov.catalog import gpus
from gpuprov.facts.probes.base import Facts
from gpuprov.facts.probes.host.pci import PASSTHROUGH
from gpuprov.host_code.at_boot.passthrough import parse_config
from gpuprov.spec.build import convert
from gpuprov.spec.model import Fragment


def export(facts: Facts) -> Fragment | None:
    """Return the configuration of gpuprov's own unit, if it is enabled."""
    known = facts.get(PASSTHROUGH)
    if not known.config or known.file != "enabled":
        return None
    config = parse_config([line.split() for line in known.config])
    named = [gpu.key if (gpu := gpus.find_by_pci_id(each)) else each for each in config.gpus]
    values = {"gpus": "all" if "all" in named else [*dict.fromkeys(named)], "nvswitches": config.switches}
    driver = next((module for module, name in DRIVERS.items() if name == config.driver), config.driver)
    block: Fragment | None = convert({**values, "driver": driver}, Passthrough)[0]
    return block


FIRST = tuple(f"passthrough.{name}" for name in ("hardware", "iommu", "group", "clients"))

CAPABILITY = Capability(
    name="passthrough",
    summary="whole GPUs for virtual machines: bound to vfio-pci before NVIDIA's driver is loaded, with the IOMMU on",
    fragment=Passthrough,
    checks=CHECKS,
    rules=rules,
    contribute=contribute,
    export=export,
    export_probes=(PASSTHROUGH,),
    tasks=TASKS,
    desired=DESIRED,
    resources=RESOURCES,
    carried=carried(MODULES),
    driverless=True,
    needs_gpu=True,
    at_boot={"bound": "passthrough.enabled"},
    presupposes={"iommu": FIRST[:1], "bound": FIRST, "active": FIRST},
    taken_away={"gpus": []},
    until_boot="the drivers of lent GPUs",
    shown_by="tests/e2e/test_passthrough.py",
    not_rehearsed="a container has no drivers of its own, and the GPUs of simulated machines no IOMMU",
)
