"""Rules across capabilities."""

from gpuprov.spec.kernel import Conflict
from gpuprov.spec.problem import Path, Problem
from gpuprov.spec.shown import show


def report_conflict(conflict: Conflict) -> Problem:
    """Report two capabilities that set different values of one kernel setting, which must agree."""
    first, second = conflict.sources
    message = (
        f"kernel.{conflict.setting} is {show(conflict.values[0])} by {first} and {show(conflict.values[1])} by {second}"
    )
    path: Path = ("kernel", *split_setting(conflict.setting)) if first == "kernel" else (second,)
    return Problem(path=path, message=message, fix="one host has one value: change or remove one of the two")


def split_setting(setting: str) -> list[str]:
    """Split `module_options.nvidia.NVreg_X` by its levels; only sysctl names have dots of their own."""
    room, _, rest = setting.partition(".")
    return [room, *(rest.split(".", 1) if room == "module_options" else [rest] if rest else [])]
