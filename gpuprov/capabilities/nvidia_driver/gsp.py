"""`NVreg_EnableGpuFirmware: 0` takes effect with proprietary kernel modules only, though open ones show it as well:
https://github.com/NVIDIA/open-gpu-kernel-modules/issues/820"""

from collections.abc import Iterable

import msgspec

from gpuprov.capabilities.nvidia_driver.fragment import NvidiaDriver
from gpuprov.catalog import drivers
from gpuprov.catalog.gpus import Gpu
from gpuprov.core.safe_parse import is_whole
from gpuprov.rules.reload import shown_value
from gpuprov.spec.problem import Problem

KEY = "NVreg_EnableGpuFirmware"
# Bits of the parameter's value that control use of the firmware; all zero means off: nv-reg.h of
# https://github.com/NVIDIA/open-gpu-kernel-modules
MODE = 0xF
WHY = "open kernel modules always run with GSP firmware"
WITHOUT = "kernel_modules: proprietary, where branch and GPU have them; or leave the parameter out"


def switched_off(driver: NvidiaDriver) -> bool:
    """Return whether the spec asks for GPUs that run without GSP firmware."""
    value = shown_value(driver.module_parameters.get(KEY, ""))
    return is_whole(value) and int(value) & MODE == 0


def exported(driver: NvidiaDriver) -> NvidiaDriver:
    """Return the host's driver, without the parameter if it has no effect."""
    if driver.kernel_modules != "open" or not switched_off(driver):
        return driver
    left = {name: value for name, value in driver.module_parameters.items() if name != KEY}
    return msgspec.structs.replace(driver, module_parameters=left)


def problems(driver: NvidiaDriver, gpu: Gpu | None, branch: str) -> Iterable[Problem]:
    """Yield a problem for the parameter if the modules will be open on any host."""
    flavour = driver.kernel_modules
    if flavour == "auto" and gpu and (branch or gpu.kernel_modules.flavour == "open-required"):
        flavour = drivers.choose_kernel_modules(gpu, branch or drivers.list_branches()[-1].branch)
    if switched_off(driver) and flavour == "open":
        message = f"nvidia_driver.module_parameters.{KEY} switches GSP firmware off, without effect: {WHY}"
        yield Problem(path=("nvidia_driver", "module_parameters", KEY), message=message, fix=WITHOUT)
