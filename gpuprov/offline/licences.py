"""Whether a package may be copied to hosts in a bundle: by where its archive files it, or by its owner's licence."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from gpuprov.catalog.licences import Licence, licences_file, source
from gpuprov.errors import GpuprovError

FREE, UNKNOWN = "free", "unknown"


def classes() -> dict[str, Licence]:
    """Every class, by its key."""
    return {one.key: one for one in licences_file().classes}


def licence(name: str, section: str) -> Licence:
    """The class of a package. `section` as in its index: `non-free/kernel`."""
    known = next((one for one in licences_file().classes if one.names and re.fullmatch(one.names, name)), None)
    area = section.partition("/")[0] if "/" in section else "main"
    # NVIDIA's own repositories have no areas: their packages stand in sections as Debian's main does.
    return known or classes()[UNKNOWN if area in licences_file().areas else FREE]


def judge(packages: Iterable[tuple[str, str]], accepted: Collection[str]) -> list[str]:
    """Names of the classes in use that are no free software. Raises GpuprovError for what nobody has accepted."""
    found: dict[str, list[str]] = {}
    for name, section in packages:
        found.setdefault(licence(name, section).key, []).append(name)
    for one in classes().values():
        if one.accept and one.key in found and one.key not in accepted:
            names = sorted(set(found[one.key]))
            shown = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
            raise GpuprovError(
                f"{shown}: {one.told} ({source(one)})",
                f"where your contract with the owner allows the copy, say so with --accept-licence {one.key}; "
                "else leave the capability out of the spec; nothing was written",
            )
    return [key for key in classes() if key in found and key != FREE]
