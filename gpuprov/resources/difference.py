"""One thing that differs on a host from what it should be."""

from typing import Literal

import msgspec


class Difference(msgspec.Struct, frozen=True):
    """A path, or the name of a setting, what is wrong with it in words, and what apply makes of it."""

    path: str
    before: str
    after: str = "written"
    # Nothing of it is there yet, of lines no key.
    lacking: bool = False
    # It has the right content, and another mode or owner.
    same: bool = False
    # What it is.
    kind: Literal["file", "setting", "module", "package", "initramfs", "service"] = "file"
    device: str = ""
    # How it is reported, where {devices} stands for all devices that differ alike; empty: PATH: BEFORE.
    words: str = ""
    # When it is felt.
    moment: Literal["now", "next-boot"] = "next-boot"
    # Why only a reboot brings it.
    reboot: str = ""
    # What to do about it; empty: apply.
    fix: str = ""
    # A file of others decides it, whatever apply does.
    outdone: bool = False
