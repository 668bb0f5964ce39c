"""Differences between two hosts, as text and as JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from gpuprov.core import terminal
from gpuprov.core.errors import CODES
from gpuprov.core.safe_parse import format_document

if TYPE_CHECKING:
    from gpuprov.export.difference import Compared

DEFAULT = "(default)"


def show(compared: Compared, *, as_json: bool) -> int:
    """Print it. Returns the exit code: 1 if the hosts differ, or if it is unknown whether they do."""
    for host, doubts in compared.doubts.items():
        for doubt in doubts:
            terminal.warning(f"{host}: looks like a defect: {doubt}")
    if as_json:
        terminal.result(format_document(compared))
    else:
        terminal.result(as_text(compared))
    return CODES["differs" if compared.differences or compared.unknown else "ok"]


def as_text(compared: Compared) -> str:
    """Return a block for each capability, with both values of each field; the last line sums up."""
    lines: list[str] = []
    for name in dict.fromkeys(difference.capability for difference in compared.differences):
        rows = [difference for difference in compared.differences if difference.capability == name]
        lines.append(name)
        for row in rows:
            if row.field:
                lines += [
                    f"  {row.field}",
                    f"    {compared.left}: {_format_value(row.left)}",
                    f"    {compared.right}: {_format_value(row.right)}",
                ]
            else:
                lines.append(f"  {row.left} on {compared.left}, {row.right} on {compared.right}")
    for name, why in compared.unknown.items():
        lines.append(f"{name}: not compared: {why}")
    count = len({difference.capability for difference in compared.differences})
    summary = f"{count} capabilit{'y differs' if count == 1 else 'ies differ'}" if count else "nothing differs"
    summary += f", {len(compared.unknown)} could not be compared" if compared.unknown else ""
    return "\n".join([*lines, f"{compared.left} and {compared.right}: {summary}"])


def _format_value(value: Any) -> str:
    return DEFAULT if value is None else value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
