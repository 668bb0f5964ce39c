"""`gpu_settings`: ECC mode, power limit, clocks and compute mode of GPUs, kept across boots; confidential computing,
proven only."""

from __future__ import annotations

from gpuprov.capabilities.base import LOADED, Capability
from gpuprov.capabilities.gpu_settings import boot, now, preflight, reality
from gpuprov.capabilities.gpu_settings.desired import DESIRED, PROGRAM, RESOURCES
from gpuprov.capabilities.gpu_settings.fragment import HERE, GpuSettings
from gpuprov.capabilities.gpu_settings.rules import rules
from gpuprov.capabilities.gpu_settings.tasks import TASKS

CAPABILITY = Capability(
    name=HERE,
    summary="ECC mode, power limit, clocks and compute mode of GPUs, kept across boots",
    fragment=GpuSettings,
    ends_with_reset=True,
    checks=now.CHECKS + boot.CHECKS + preflight.CHECKS,
    rules=rules,
    export=reality.export,
    export_probes=reality.PROBES,
    follows=("nvidia_driver", "mig"),
    tasks=TASKS,
    desired=DESIRED,
    resources=RESOURCES,
    carried=tuple(f"gpuprov.host_code.gpu_settings.{name[:-3]}".removesuffix(".__init__") for name in PROGRAM),
    needs_gpu=True,
    presupposes={
        **dict.fromkeys(
            (
                *("active", "ecc", "power_limit", "application_clocks", "locked_clocks", "compute_mode"),
                "confidential_computing",
            ),
            LOADED,
        ),
        "persistence": ("persistence.mode_on", *LOADED),
    },
)
