"""`mig`: MIG mode, GPU instances and compute instances: fitted before anything moves, applied through NVML, kept across
reboots."""

from gpuprov.capabilities.base import LOADED, Capability
from gpuprov.capabilities.mig import now, preflight, reality, rules
from gpuprov.capabilities.mig.desired import DESIRED, MODULES, RESOURCES
from gpuprov.capabilities.mig.fragment import Mig
from gpuprov.capabilities.mig.tasks import TASKS
from gpuprov.facts.probes.gpus import mig
from gpuprov.facts.probes.host import pci

CAPABILITY = Capability(
    name="mig",
    summary="MIG mode, GPU instances and compute instances: fitted exactly, applied through NVML, kept across reboots",
    fragment=Mig,
    ends_with_reset=True,
    checks=now.CHECKS + preflight.CHECKS,
    rules=rules.rules,
    export=reality.export,
    doubts=reality.doubts,
    export_probes=(mig.STATE, mig.UNITS, pci.NVIDIA_FUNCTIONS),
    follows=("nvidia_driver",),
    tasks=TASKS,
    desired=DESIRED,
    resources=RESOURCES,
    carried=("gpuprov.host_code.mig", *(f"gpuprov.host_code.mig.{name}" for name in ("__main__", *MODULES)), "pynvml"),
    presupposes={
        **dict.fromkeys(("mode", "active"), LOADED),
        "instances": ("mig.mode", *LOADED),
        "cdi": ("mig.instances", "container_toolkit.packages", *LOADED),
        "capabilities": ("mig.instances", *LOADED),
    },
    at_boot=dict.fromkeys(("mode", "instances", "cdi", "capabilities"), "mig.enabled"),
    taken_away={"mode": "disabled"},
)
