"""One thing that differs on a host from what it should be."""

from typing import Literal

import msgspec


class Difference(msgspec.Struct, frozen=True):
    """A path, or the name of a setting, what is wrong with it in words, and what apply makes of it. `lacking`: nothing
    of it is there yet, of lines no key. `same`: it has the right content, and another mode or owner.

    `kind`: what it is. `words`: how it is told, where {devices} stands for all devices that differ alike; empty: PATH:
    BEFORE. `moment`: when it is felt. `reboot`: why only a reboot brings it. `fix`: what to do about it; empty: apply.
    """

    path: str
    before: str
    after: str = "written"
    lacking: bool = False
    same: bool = False
    kind: Literal["file", "setting", "module", "package", "initramfs", "service"] = "file"
    device: str = ""
    words: str = ""
    moment: Literal["now", "next-boot"] = "next-boot"
    reboot: str = ""
    fix: str = ""
