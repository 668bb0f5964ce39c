"""dnf without dnf's writes: what its repositories offer, from what the host has fetched."""

from __future__ import annotations

NEVRA = "rpm|%{name}|%{epoch}|%{version}|%{release}|%{arch}"


def search(*patterns: str, form: str = NEVRA, streams: bool = False) -> str:
    """Shell: a line in this form, `rpm|NAME|EPOCH|VERSION|RELEASE|ARCHITECTURE`, of every version that the enabled repositories offer
    of these patterns. `streams`: also of module streams that are not enabled, for who enables them first; dnf installs nothing of
    them. It waits for no lock and asks no network, and a repository that was never fetched hides no other's."""
    wanted = " ".join(f"'{pattern}'" for pattern in patterns)
    whatever = "--disable-modular-filtering " if streams else ""
    return (
        'dnf ${GPUPROV_AHEAD:+--config="$GPUPROV_AHEAD/dnf.conf"} '
        "-q -C --setopt=exit_on_lock=True --setopt='*.skip_if_unavailable=True' --disableplugin=versionlock \\\n"
        f"""  repoquery --available --showduplicates {whatever}--arch "$(uname -m),noarch" --qf '{form}' {wanted}"""
    )
