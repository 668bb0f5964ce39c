"""One thing that differs on a host from what it should be."""

from __future__ import annotations

import msgspec


class Difference(msgspec.Struct, frozen=True):
    """A path, what is wrong with it in words, and what apply makes of it. `lacking`: nothing of it is there yet, of lines no key."""

    path: str
    before: str
    after: str = "written"
    lacking: bool = False
