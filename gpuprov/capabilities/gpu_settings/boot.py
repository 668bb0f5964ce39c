"""Check of the GPUs' ECC mode after the next boot."""

from __future__ import annotations

from gpuprov.capabilities.base import Outcome
from gpuprov.capabilities.compared import Group, compared
from gpuprov.capabilities.gpu_settings.host import STATE, Asked, Ctx, list_requests
from gpuprov.capabilities.gpu_settings.now import PENDING_ECC, state_settings


@compared(
    "gpu_settings.ecc_boot", *STATE, fields=("ecc", "per_gpu"), moment="next-boot", evidence="nvidia-smi -q -d ECC"
)
def ecc_boot(ctx: Ctx) -> Group | Outcome:
    """The pending ECC mode of each GPU is the one that the spec asks for: the GPU keeps it, and a boot brings it into
    force."""

    def pair(gpu: Asked) -> tuple[str, str]:
        return gpu.settings["ecc"], gpu.now.ecc_pending or "no ECC mode"

    return state_settings(list_requests(ctx, "ecc"), PENDING_ECC, pair)


CHECKS = (ecc_boot,)
