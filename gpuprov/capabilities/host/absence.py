"""Contradictions of `nvidia_absent` in a spec."""

from collections.abc import Collection, Iterable, Iterator
from typing import Any

from gpuprov.host_code.driver.loaded import STACK
from gpuprov.host_code.initramfs import NVIDIA
from gpuprov.spec.kernel import Kernel
from gpuprov.spec.model import HostSpec
from gpuprov.spec.problem import Path, Problem, format_path

HERE = "nvidia_absent"
# Fields of blocks that may stay by which the driver would be needed, with the values by which it is not, and the one
# to write.
DEMANDS: tuple[tuple[Path, tuple[object, ...], str], ...] = (
    (("health", "cuda_user"), (None,), "null"),
    (("health", "ecc"), ("delivered", "any"), "any"),
    (("acceptance", "nccl", "test"), ("none",), "none"),
    (("acceptance", "nvbandwidth", "tests"), ((),), "[]"),
)


def find_contradictions(host: HostSpec, driverless: Collection[str]) -> Iterable[Problem]:
    """Yield a problem for each block, field and module that needs what `nvidia_absent` removes. driverless: names of
    the blocks that do not."""
    if HERE not in host.capabilities:
        return
    for name in host.capabilities:
        if name not in driverless:
            message = f"{name} needs NVIDIA's driver, and {HERE} removes it from this host"
            yield Problem(path=(name,), message=message, fix=f"{name}: false for this host, or {HERE}: false")
    for path, harmless, value in DEMANDS:
        setting: Any = host.capabilities.get(str(path[0]))
        for field in path[1:]:
            setting = getattr(setting, str(field), harmless[0])
        if setting not in harmless:
            message = f"{format_path(path)} needs NVIDIA's driver, and {HERE} removes it from this host"
            fix = f"{format_path(path)}: {value} for this host, or {HERE}: false"
            yield Problem(path=path, message=message, fix=fix)
    kernel = host.capabilities.get("kernel")
    if isinstance(kernel, Kernel):
        yield from _find_modules(kernel)


def _find_modules(kernel: Kernel) -> Iterator[Problem]:
    """Yield a problem for each part of the kernel's settings that names modules of NVIDIA's."""
    parts = {
        "command_line": [key.partition(".")[0] for key in kernel.command_line if "." in key],
        "modules_load": kernel.modules_load,
        "module_options": kernel.module_options,
        "modules_built": kernel.modules_built,
    }
    for part, modules in parts.items():
        if named := sorted({name for name in modules if is_nvidias(name)}):
            message = f"kernel.{part} names {', '.join(named)}, and {HERE} removes NVIDIA's modules from this host"
            fix = f"take {', '.join(named)} out of kernel.{part}, or {HERE}: false"
            yield Problem(path=("kernel", part), message=message, fix=fix)


def is_nvidias(module: str) -> bool:
    """Return whether a module is the driver's, under any distribution's name, or depends on it."""
    return module.replace("-", "_") in STACK or NVIDIA.fullmatch(f"{module}.ko") is not None
