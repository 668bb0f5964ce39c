"""Permission to copy a package to hosts in a bundle: by its section in its archive, or by its owner's licence."""

import re
from collections.abc import Collection, Iterable

from gpuprov.catalog.licences import Licence, format_source, read_licences_file
from gpuprov.core.errors import GpuprovError

FREE, UNKNOWN = "free", "unknown"


def classes() -> dict[str, Licence]:
    """Return every class, by its key."""
    return {entry.key: entry for entry in read_licences_file().classes}


def classify(name: str, section: str) -> Licence:
    """Return the class of a package. `section` as in its index: `non-free/kernel`."""
    known = next(
        (entry for entry in read_licences_file().classes if entry.names and re.fullmatch(entry.names, name)), None
    )
    area = section.partition("/")[0] if "/" in section else "main"
    # NVIDIA's own repositories have no areas: their packages stand in sections as Debian's main does.
    return known or classes()[UNKNOWN if area in read_licences_file().areas else FREE]


def judge(packages: Iterable[tuple[str, str]], accepted: Collection[str]) -> list[str]:
    """Return the classes in use that are no free software. Raises GpuprovError for those that nobody has accepted."""
    by_class: dict[str, list[str]] = {}
    for name, section in packages:
        by_class.setdefault(classify(name, section).key, []).append(name)
    for entry in classes().values():
        if entry.accept and entry.key in by_class and entry.key not in accepted:
            names = sorted(set(by_class[entry.key]))
            shown = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
            raise GpuprovError(
                f"{shown}: {entry.told} ({format_source(entry)})",
                f"where your contract with the owner allows the copy, say so with --accept-licence {entry.key}; "
                "else leave the capability out of the spec; nothing was written",
            )
    return [key for key in classes() if key in by_class and key != FREE]
