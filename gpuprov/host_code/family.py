"""The families of distributions according to os-release(5). Installed programs do not matter."""

from __future__ import annotations

import shlex

# ID and words of ID_LIKE that name a family; the first known one decides.
IDS: dict[str, str] = {
    **dict.fromkeys(("debian", "ubuntu"), "debian"),
    **dict.fromkeys(("rhel", "centos", "fedora", "rocky", "almalinux", "ol", "amzn", "azurelinux"), "redhat"),
    **dict.fromkeys(("openEuler", "anolis", "alinux"), "redhat"),
    **dict.fromkeys(("sles", "opensuse-leap", "opensuse", "suse"), "suse"),
}


def derive_family(*names: str) -> str:
    """Return the family of a distribution with this ID and these words of ID_LIKE; "" if it belongs to none."""
    known = {name.casefold(): family for name, family in IDS.items()}
    return next((known[name.casefold()] for name in names if name.casefold() in known), "")


def read_family(path: str = "/etc/os-release") -> str:
    """Return the family of this host; "" if it belongs to none."""
    fields: dict[str, str] = {}
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            for line in file:
                name, _, value = line.strip().partition("=")
                fields[name] = " ".join(shlex.split(value, comments=True)) if name in ("ID", "ID_LIKE") else ""
    except (OSError, ValueError):
        return ""
    return derive_family(fields.get("ID", ""), *fields.get("ID_LIKE", "").split())
