"""Manual pages in the wheel, where docs/generate.py has written them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class ManualHook(BuildHookInterface):
    """The pages go where `man` of the wheel's environment finds them. A build of files as git has them goes without."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if (Path(self.root) / "docs" / "man").is_dir():
            build_data["shared_data"]["docs/man"] = "share/man/man1"
