"""What was applied here: the receipt of all capabilities, and the mark of an apply that is under way.

A mark that is there when an apply begins was left by one that was cut off: what it names is half-way, until it is applied again.
"""

from __future__ import annotations

import datetime
import json
import os
import re
from typing import Any, Collection, Mapping

from .files import read, remove, settle, write

FOLDER = "/var/lib/gpuprov"
RECEIPT = f"{FOLDER}/receipt.json"
MARK = f"{FOLDER}/applying.json"
PROMISED = ("/etc", "/usr", "/var/lib", "/boot", "/boot/efi", "/lib/modules", "/opt")
"""Where that lies of which a receipt says that it was applied: after a loss of power it must be so."""


def half_way() -> list[str]:
    """The capabilities that the mark names; of a damaged one all words that may be capabilities."""
    text = read(MARK)
    try:
        return [str(name) for name in json.loads(text)["capabilities"]]
    except (ValueError, KeyError, TypeError):
        return re.findall(r'"([a-z_]+)"', text)


def begin(run: Mapping[str, object], names: Collection[str], known: Collection[str]) -> list[str]:
    """Mark that these capabilities are being applied. Of those that are half-way, the `known` ones stay marked; they are returned."""
    half = [name for name in half_way() if name in known and name not in names]
    _mark(run, [*names, *half])
    return half


def _mark(run: Mapping[str, object], names: Collection[str]) -> None:
    mark = {"run": run.get("run", ""), "since": run.get("since", ""), "capabilities": list(names)}
    write(MARK, json.dumps(mark) + "\n")


def known() -> tuple[dict[str, dict[str, str]], str]:
    """Entries by capability, and what is wrong with the receipt (empty: nothing)."""
    try:
        with open(RECEIPT, encoding="utf-8") as file:
            entries = json.load(file)["capabilities"]
        return {
            name: {"digest": entry["digest"], "applied_at": entry["applied_at"]} for name, entry in entries.items()
        }, ""
    except FileNotFoundError:
        return {}, ""
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        return {}, str(error) or type(error).__name__


def applied(
    run: Mapping[str, object], names: Collection[str], digests: Mapping[str, str], version: str, *, check: bool = False
) -> dict[str, Any]:
    """Merge what was applied, as far as it has a digest, into the receipt, and take it out of the mark.

    `fresh`: those whose digest differs; the others have the time of this apply, too. A receipt that cannot be read is kept as
    receipt.json.damaged.
    """
    entries, damaged = known()
    given = {name: digests[name] for name in names if name in digests}
    fresh = {name: digest for name, digest in given.items() if entries.get(name, {}).get("digest") != digest}
    if check:
        return {"fresh": sorted(fresh), "damaged": damaged}
    if given:
        now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
        if damaged:
            os.replace(RECEIPT, f"{RECEIPT}.damaged")
        entries.update({name: {"digest": digest, "applied_at": now} for name, digest in given.items()})
        receipt = {
            "schema": 1,
            "applied_at": now,
            "gpuprov_version": version,
            "capabilities": dict(sorted(entries.items())),
        }
        settle(PROMISED)
        write(RECEIPT, json.dumps(receipt, indent=2) + "\n")
    left = [name for name in half_way() if name not in names]
    if left:
        _mark(run, left)
    else:
        remove(MARK)
    return {"fresh": sorted(fresh), "damaged": damaged}
