"""What a snippet printed on a host."""

from __future__ import annotations

import msgspec


class Output(msgspec.Struct, frozen=True):
    """Standard output, the first lines of standard error, exit status."""

    text: str
    status: int = 0
    error: str = ""
