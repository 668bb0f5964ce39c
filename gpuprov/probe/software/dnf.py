"""dnf without dnf's writes: what its repositories offer, from what the host has fetched."""

from __future__ import annotations

NEVRA = "rpm|%{name}|%{epoch}|%{version}|%{release}|%{arch}"


def search(*patterns: str, form: str = NEVRA) -> str:
    """Shell: a line in this form, `rpm|NAME|EPOCH|VERSION|RELEASE|ARCHITECTURE`, of every version that the enabled repositories offer
    of these patterns, in whatever module stream. It waits for no lock, and asks no network."""
    return (
        "dnf -q -C --setopt=exit_on_lock=True --disableplugin=versionlock repoquery --available --showduplicates \\\n"
        f"""  --disable-modular-filtering --arch "$(uname -m),noarch" --qf '{form}' {" ".join(f"'{one}'" for one in patterns)}"""
    )
