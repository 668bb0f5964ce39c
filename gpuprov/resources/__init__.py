"""What a host should have, as typed values: each is said once, by the capability that asks for it, and compared by one function.

Checks, plans and the values of roles are readings of a list of these.
"""

from __future__ import annotations

from gpuprov.resources.difference import Difference
from gpuprov.resources.file import Absent, File, Program, Shared, differences
from gpuprov.resources.unit import Unit
from gpuprov.resources.values import listed, role_values

Resource = File | Program | Absent | Shared | Unit

__all__ = (
    "Absent",
    "Difference",
    "File",
    "Program",
    "Resource",
    "Shared",
    "Unit",
    "differences",
    "listed",
    "role_values",
)
