"""The record of what was applied here: the receipt of all capabilities, and the mark of an apply in progress.

The receipt lists what each capability brought, one line each: `file SHA256 PATH`, `unit NAME`, `hold PACKAGE`, and
settings (`lasting`). A mark that exists when an apply begins was left by one that was interrupted: what it names is
half-done until it is applied again.
"""

from __future__ import annotations

import datetime
import json
import os
import re
from typing import Any, Collection, Dict, Iterable, Iterator, Mapping, TypedDict

from .fence import Owner
from .files import compute_digest, read, remove, settle, write
from .lasting import SETTING, UNREAD, Lasting, format_setting, is_over, merge_settings, parse_settings
from .restore.kinds import explain_stay
from .unit_files import derive_unit_file

FOLDER = "/var/lib/gpuprov"
RECEIPT = f"{FOLDER}/receipt.json"
MARK = f"{FOLDER}/applying.json"
BOOT_ID = "/proc/sys/kernel/random/boot_id"
# Folders of files listed in a receipt: they must survive a loss of power.
PROMISED = ("/etc", "/usr", "/var/lib", "/boot", "/boot/efi", "/lib/modules", "/opt")


def list_half_way() -> list[str]:
    """Return the capabilities that the mark names; of a damaged mark all words that may be capabilities."""
    text = read(MARK)
    try:
        return [str(name) for name in json.loads(text)["capabilities"]]
    except (ValueError, KeyError, TypeError):
        return re.findall(r'"([a-z_]+)"', text)


def begin(
    run: Owner,
    names: Collection[str],
    known: Collection[str],
    changing: Mapping[str, Collection[str]] = {},
) -> list[str]:
    """Mark that these capabilities are being applied. Of the half-done ones, the `known` ones stay marked; they are
    returned. `changing`: by capability, lines of settings that the apply changes next."""
    half = [name for name in list_half_way() if name in known and name not in names]
    write_mark(run, [*names, *half], changing)
    return half


def write_mark(run: Owner, names: Collection[str], changing: Mapping[str, Collection[str]] = {}) -> None:
    """Write the mark. Where an apply was cut off after it had changed a setting, the value before that stays."""
    settings = read_changing()
    for name, lines in changing.items():
        known = {each.key: each for each in parse_settings(settings.get(name, ()))}
        for each in parse_settings(lines):
            earlier = known.get(each.key)
            known[each.key] = each._replace(before=earlier.before) if earlier and each.before == earlier.value else each
        settings[name] = list(map(format_setting, known.values()))
    mark = {"run": run.get("run", ""), "since": run.get("since", ""), "capabilities": list(names)}
    kept = {name: lines for name, lines in settings.items() if name in names}
    write(MARK, json.dumps({**mark, "settings": kept} if kept else mark) + "\n")


def read_changing() -> dict[str, list[str]]:
    """Return, by capability, lines of settings with their values before an apply that did not come to its end."""
    try:
        settings = json.loads(read(MARK))["settings"]
        return {str(name): [str(line) for line in lines] for name, lines in settings.items()}
    except (ValueError, KeyError, TypeError, AttributeError):
        return {}


Entry = Dict[str, Any]


class Merged(TypedDict):
    """The result of writing a receipt."""

    # Capabilities whose digest differs; the others have the time of this apply, too.
    fresh: list[str]
    # Deleted entries.
    gone: list[str]
    # The problem with the receipt before.
    damaged: str


def read_entries() -> tuple[dict[str, Entry], str]:
    """Return entries by capability, and the problem with the receipt ("" if none)."""
    try:
        with open(RECEIPT, encoding="utf-8") as file:
            entries = json.load(file)["capabilities"]
        return {
            name: parse_entry(entry["digest"], entry["applied_at"], entry.get("resources"))
            for name, entry in entries.items()
        }, ""
    except FileNotFoundError:
        return {}, ""
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        return {}, str(error) or type(error).__name__


def parse_entry(digest: str, at: str, resources: Iterable[str] | None) -> Entry:
    """Return one capability's entry. Without `resources` it is from an earlier gpuprov, which listed nothing."""
    more = {} if resources is None else {"resources": list(resources)}
    return {"digest": digest, "applied_at": at, **more}


def digest_of(path: str) -> str:
    """Return the SHA-256 of a file; "" for a link, or if there is no file."""
    return compute_digest(path) if os.path.isfile(path) and not os.path.islink(path) else ""


def list_resources(resources: Iterable[str], before: Iterable[str] = ()) -> Iterator[str]:
    """Yield these resources in the receipt's format: for `file PATH`, with the sum of the present file; nothing if
    there is no file. Of the earlier ones, also unchanged files that still exist, their units, and settings still in
    force."""
    before, now = list(before), list(resources)
    yield from merge_settings(now, before, (read(BOOT_ID) or "").strip())
    for line in now:
        kind, _, name = line.partition(" ")
        if kind != "file":
            if not line.startswith((SETTING, UNREAD)):
                yield line
        elif checksum := digest_of(name):
            yield f"file {checksum} {name}"
    kept = set()
    for line in before:
        kind, _, name = line.partition(" ")
        if kind == "file":
            before_sum, _, path = name.partition(" ")
            if f"file {path}" not in now and digest_of(path) == before_sum:
                kept.add(path)
                yield line
    yield from (
        entry
        for entry in before
        if entry.startswith("unit ") and entry not in now and derive_unit_file(entry[5:]) in kept
    )


def merge_applied(
    run: Owner,
    names: Collection[str],
    digests: Mapping[str, str],
    version: str,
    resources: Mapping[str, list[str]] = {},
    forgotten: Collection[str] = (),
    *,
    check: bool = False,
) -> Merged:
    """Merge the applied capabilities that have a digest into the receipt, and remove them from the mark.

    `resources`: by capability, its resources on the host, files without their sums. `forgotten`: capabilities whose
    entries are deleted, except settings that were to be put back and still stand there (`drop_settings`). An unreadable
    receipt is kept as receipt.json.damaged.
    """
    entries, damaged = read_entries()
    given = {name: digests[name] for name in names if name in digests and name not in forgotten}
    fresh = [name for name, digest in given.items() if entries.get(name, {}).get("digest") != digest]
    waiting = {name: list(_list_waiting(entries[name])) for name in forgotten if name in entries}
    gone = [name for name, lines in waiting.items() if not lines]
    answer: Merged = {"fresh": sorted(fresh), "gone": sorted(gone), "damaged": damaged}
    if check:
        return answer
    if given or waiting:
        now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
        changing = read_changing()
        for name, spec in given.items():
            lines: Iterable[str] | None = entries.get(name, {}).get("resources")
            if name in resources:
                lines = list_resources(resources[name], [*changing.get(name, ()), *(lines or ())])
            entries[name] = parse_entry(spec, now, lines)
        for name, settings in waiting.items():
            entries[name]["resources"] = settings
        if damaged:
            os.replace(RECEIPT, f"{RECEIPT}.damaged")
        _write_receipt(now, version, {name: entry for name, entry in sorted(entries.items()) if name not in gone})
    _remove_from_mark(run, names)
    return answer


def _remove_from_mark(run: Owner, names: Collection[str]) -> None:
    """Remove these capabilities from the mark."""
    remaining = [name for name in list_half_way() if name not in names]
    if remaining:
        write_mark(run, remaining)
    else:
        remove(MARK)


def _write_receipt(now: str, version: str, entries: Mapping[str, Entry]) -> None:
    receipt = {"schema": 2, "applied_at": now, "gpuprov_version": version, "capabilities": entries}
    settle(PROMISED)
    write(RECEIPT, json.dumps(receipt, indent=2) + "\n")


def _list_waiting(entry: Entry) -> Iterator[str]:
    """Yield the settings of an entry that can be put back."""
    boot = (read(BOOT_ID) or "").strip()
    for setting in parse_settings(entry.get("resources") or ()):
        if not explain_stay(setting) and not is_over(setting, boot):
            yield format_setting(setting)


def drop_settings(settled: Collection[Lasting], failed: Collection[Lasting]) -> None:
    """Take settings that need no listing any more out of the receipt; the failed ones stay until what ends them."""
    try:
        receipt = json.loads(read(RECEIPT))
        entries = [entry for entry in receipt["capabilities"].values() if "resources" in entry]
        done, boot = {setting.key for setting in settled}, (read(BOOT_ID) or "").strip()
        waiting = {setting.key for setting in failed}
        for entry in entries:
            lines = [line for line in entry["resources"] if not line.startswith(SETTING)]
            settings = [each for each in parse_settings(entry["resources"]) if each.key not in done]
            marked = [each._replace(left=each.left or boot) if each.key in waiting else each for each in settings]
            entry["resources"] = [*lines, *map(format_setting, marked)]
    except (ValueError, KeyError, TypeError, AttributeError):
        return
    write(RECEIPT, json.dumps(receipt, indent=2) + "\n")
