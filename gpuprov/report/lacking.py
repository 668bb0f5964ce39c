"""Checks skipped for one reason, such as all that a short record says nothing of, as one line instead of a hundred."""

from collections.abc import Hashable, Iterable, Sequence
from typing import TypeVar

import msgspec

from gpuprov.verify.evaluate import Result

T = TypeVar("T")
# Number of checks of one reason up to which each has a line of its own.
FEW = 3


def fold_lacking(rows: Iterable[tuple[Result, Hashable, T]]) -> tuple[list[T], dict[str, list[T]]]:
    """Return the rows that stay alone, and by reason those that more than FEW have in common.

    A row: its result, the hosts, and what is returned of it. The reason is `not in this kernel log` of `not in this
    kernel log: rdma_devices`.
    """
    groups: dict[tuple[str, Hashable], list[T]] = {}
    alone = []
    for result, where, row in rows:
        reason, _, about = result.found.rpartition(": ")
        if result.status == "skip" and reason and not result.fix and " " not in about:
            groups.setdefault((reason, where), []).append(row)
        else:
            alone.append(row)
    folded: dict[str, list[T]] = {}
    for (reason, _), members in groups.items():
        if len(members) > FEW and reason not in folded:
            folded[reason] = members
        else:
            alone += members
    return alone, folded


def merge_results(reason: str, results: Sequence[Result]) -> Result:
    """Return one result in the place of these, to be shown: `104 checks`, its reason, and whose they are."""
    owners = ", ".join(dict.fromkeys(result.check.partition(".")[0] for result in results))
    about = f"{reason}: {owners}; -v names them"
    return msgspec.structs.replace(results[0], check=f"{len(results):,} checks", found=about)
