"""The NVLink subnet manager of simulated hosts: a stand-in with the real package's name and path.

NVIDIA's repositories have it for every family, and so has Amazon's copy of them:
https://github.com/aws/amazon-ecs-ami/blob/main/scripts/al2023/gpu/install-nvidia-driver.sh
"""

from __future__ import annotations

from gpuprov.simulate.parts import fabric
from gpuprov.simulate.standins.extra import Extra, Packaged

EXTRAS: tuple[Extra, ...] = (
    Extra(
        "nvlsm",
        "NVIDIA NVLink subnet manager",
        deb=Packaged(fabric.NVLSM),
        rpm=Packaged(fabric.NVLSM),
        files=fabric.subnet_manager_files(),
    ),
)
