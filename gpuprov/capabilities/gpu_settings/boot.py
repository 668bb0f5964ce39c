"""Check of the GPUs' ECC mode after the next boot."""

from __future__ import annotations

from gpuprov.capabilities.base import Outcome
from gpuprov.capabilities.compared import Group, compared
from gpuprov.capabilities.gpu_settings.host import STATE, Ctx, list_requests
from gpuprov.capabilities.gpu_settings.now import PENDING_ECC, state_settings
from gpuprov.host_code.gpu_settings.compare import compare_ecc


@compared(
    "gpu_settings.ecc_boot", *STATE, fields=("ecc", "per_gpu"), moment="next-boot", evidence="nvidia-smi -q -d ECC"
)
def ecc_boot(ctx: Ctx) -> Group | Outcome:
    """The pending ECC mode of each GPU is the one that the spec asks for: the GPU keeps it, and a boot brings it into
    force."""
    return state_settings(
        ctx, list_requests(ctx, "ecc"), PENDING_ECC, lambda gpu: compare_ecc(gpu.state, gpu.settings["ecc"])[1]
    )


CHECKS = (ecc_boot,)
