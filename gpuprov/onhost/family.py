"""The families of distributions, by what os-release(5) says. Programs that happen to be installed decide nothing."""

from __future__ import annotations

import shlex

IDS: dict[str, str] = {
    **dict.fromkeys(("debian", "ubuntu"), "debian"),
    **dict.fromkeys(("rhel", "centos", "fedora", "rocky", "almalinux", "ol", "amzn", "azurelinux"), "redhat"),
    **dict.fromkeys(("openEuler", "anolis", "alinux"), "redhat"),
    **dict.fromkeys(("sles", "opensuse-leap", "opensuse", "suse"), "suse"),
}
"""ID and words of ID_LIKE that name a family; the first that is known decides."""


def family_of(*names: str) -> str:
    """The family of a distribution with this ID and these words of ID_LIKE; empty if it is of none."""
    known = {name.casefold(): family for name, family in IDS.items()}
    return next((known[name.casefold()] for name in names if name.casefold() in known), "")


def here(path: str = "/etc/os-release") -> str:
    """The family of this host; empty if it is of none."""
    fields: dict[str, str] = {}
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            for line in file:
                name, _, value = line.strip().partition("=")
                fields[name] = " ".join(shlex.split(value, comments=True)) if name in ("ID", "ID_LIKE") else ""
    except (OSError, ValueError):
        return ""
    return family_of(fields.get("ID", ""), *fields.get("ID_LIKE", "").split())
