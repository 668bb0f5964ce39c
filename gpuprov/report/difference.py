"""Differences between two hosts, as text and as JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from gpuprov import console
from gpuprov.errors import CODES
from gpuprov.reading import format_document

if TYPE_CHECKING:
    from gpuprov.export.difference import Compared

DEFAULT = "(default)"


def show(found: Compared, *, as_json: bool) -> int:
    """Print it. Returns the exit code: 1 if the hosts differ, or if it is unknown whether they do."""
    for host, told in found.doubts.items():
        for doubt in told:
            console.warning(f"{host}: looks like a defect: {doubt}")
    if as_json:
        console.result(format_document(found))
    else:
        console.result(as_text(found))
    return CODES["differs" if found.differences or found.unknown else "ok"]


def as_text(found: Compared) -> str:
    """Return a block for each capability, with both values of each field; the last line sums up."""
    lines: list[str] = []
    for name in dict.fromkeys(one.capability for one in found.differences):
        rows = [one for one in found.differences if one.capability == name]
        lines.append(name)
        for one in rows:
            if one.field:
                lines += [
                    f"  {one.field}",
                    f"    {found.left}: {_told(one.left)}",
                    f"    {found.right}: {_told(one.right)}",
                ]
            else:
                lines.append(f"  {one.left} on {found.left}, {one.right} on {found.right}")
    for name, why in found.unknown.items():
        lines.append(f"{name}: not compared: {why}")
    count = len({one.capability for one in found.differences})
    told = f"{count} capabilit{'y differs' if count == 1 else 'ies differ'}" if count else "nothing differs"
    told += f", {len(found.unknown)} could not be compared" if found.unknown else ""
    return "\n".join([*lines, f"{found.left} and {found.right}: {told}"])


def _told(value: Any) -> str:
    return DEFAULT if value is None else value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
