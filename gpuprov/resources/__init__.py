"""Typed values of what a host should have: each is declared once, by one capability, and compared by one function.

Checks, plans and the values of roles are readings of a list of these.
"""

from gpuprov.resources.difference import Difference
from gpuprov.resources.file import Absent, File, Lines, Program, differences
from gpuprov.resources.kernel_module import KernelModule, Modules
from gpuprov.resources.packages import Packages, compare_packages, packages_of
from gpuprov.resources.setting import Setting, Values
from gpuprov.resources.unit import Unit
from gpuprov.resources.values import role_values, started

Resource = File | Program | Absent | Lines | Unit

__all__ = (
    "Absent",
    "Difference",
    "File",
    "KernelModule",
    "Lines",
    "Modules",
    "Packages",
    "Program",
    "Resource",
    "Setting",
    "Unit",
    "Values",
    "compare_packages",
    "differences",
    "packages_of",
    "role_values",
    "started",
)
