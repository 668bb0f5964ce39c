"""Merge what was applied into the receipt; stdin: the request as JSON, stdout: the answer as JSON.

The file is replaced atomically, and only when a digest differs. One that cannot be read is kept as receipt.json.damaged.
"""

from __future__ import annotations

import datetime
import json
import os
import sys
import tempfile

FOLDER = "/var/lib/gpuprov"
RECEIPT = f"{FOLDER}/receipt.json"


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


def write(text: str) -> None:
    os.makedirs(FOLDER, mode=0o755, exist_ok=True)
    handle, fresh = tempfile.mkstemp(prefix=".receipt-", dir=FOLDER)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.chmod(fresh, 0o644)
    os.replace(fresh, RECEIPT)


def main() -> None:
    request = json.load(sys.stdin)
    entries, damaged = known()
    digests = request["digests"]
    fresh = {name: digest for name, digest in digests.items() if entries.get(name, {}).get("digest") != digest}
    if fresh and not request["check"]:
        now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
        if damaged:
            os.replace(RECEIPT, f"{RECEIPT}.damaged")
        entries.update({name: {"digest": digest, "applied_at": now} for name, digest in fresh.items()})
        receipt = {
            "schema": 1,
            "applied_at": now,
            "gpuprov_version": request["gpuprov_version"],
            "capabilities": dict(sorted(entries.items())),
        }
        write(json.dumps(receipt, indent=2) + "\n")
    print(json.dumps({"changed": sorted(fresh), "damaged": damaged}))


main()
