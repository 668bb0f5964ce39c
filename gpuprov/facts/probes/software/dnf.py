"""dnf without side effects: versions that its repositories offer, from the metadata that the host has fetched."""

NEVRA = "rpm|%{name}|%{epoch}|%{version}|%{release}|%{arch}"


def search(*patterns: str, form: str = NEVRA, streams: bool = False) -> str:
    """Return shell that prints a line in this form, `rpm|NAME|EPOCH|VERSION|RELEASE|ARCHITECTURE`, of every version
    that the enabled repositories offer of these patterns. `streams`: also of module streams that are not enabled; dnf
    installs nothing from those until they are. It waits for no lock and uses no network, and a repository that was
    never fetched does not hide the others."""
    quoted = " ".join(f"'{pattern}'" for pattern in patterns)
    whatever = "--disable-modular-filtering " if streams else ""
    return (
        'dnf ${GPUPROV_AHEAD:+--config="$GPUPROV_AHEAD/dnf.conf"} '
        "-q -C --setopt=exit_on_lock=True --setopt='*.skip_if_unavailable=True' --disableplugin=versionlock \\\n"
        f"""  repoquery --available --showduplicates {whatever}--arch "$(uname -m),noarch" --qf '{form}' {quoted}"""
    )
