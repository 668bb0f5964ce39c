"""Results as JSON: a list of flat objects, the keys of a result and no others."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from gpuprov.verify.evaluate import Result

KEYS = ("host", "capability", "check", "fields", "status", "expected", "found", "evidence", "hint", "moment")


def render(results: Iterable[Result], *, verbose: bool = False) -> str:
    """In the order given, keys in the order of KEYS, two spaces deep, a line break at the end. verbose: also what is n/a."""
    rows = [{key: getattr(one, key) for key in KEYS} for one in results if verbose or one.status != "n/a"]
    return msgspec.json.format(msgspec.json.encode(rows), indent=2).decode() + "\n"
