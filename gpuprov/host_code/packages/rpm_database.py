"""rpm's database: checks, fixes and contents; for managers that have no Python module of their own."""

from __future__ import annotations

from .commands import run
from .model import MARKED, Refused

QUERY = r"%{NAME}|%{EPOCHNUM}|%{VERSION}-%{RELEASE}|%{SOURCERPM}|%{ARCH}|%{VENDOR}|%{INSTALLTIME}\n"
FIX = "Fix, on the host: rpm --rebuilddb"


def rebuild_database(is_ours: bool, check: bool) -> list[str]:
    """Rebuild the database if an interrupted apply damaged it. Raises Refused."""
    if not run(["rpm", "--verifydb"]).status:
        return []
    if not is_ours:
        raise Refused(f"rpm's database is damaged (rpm --verifydb), and not by gpuprov; nothing was changed. {FIX}")
    for argv in () if check else (["rpm", "--rebuilddb"], ["rpm", "--verifydb"]):
        ran = run(argv)
        if ran.status:
            raise Refused(
                f"rpm's database is damaged (rpm --verifydb) since {MARKED}, and cannot be rebuilt: "
                f"{' '.join(ran.err.splitlines()[:6])}. {FIX}"
            )
    return ["rebuild rpm's database"]


def read_rows() -> list[list[str]]:
    """Return [state, name, version, source, architecture, vendor] of each package, the youngest installation last.
    Raises Refused."""
    ran = run(["rpm", "-qa", "--qf", QUERY])
    if ran.status:
        raise Refused(f"rpm -qa fails: {ran.message[-300:]}. {FIX}")
    cells = sorted((line.split("|") for line in ran.lines if line.count("|") == 6), key=lambda row: int(row[6]))
    records = []
    for name, epoch, version, source, arch, vendor, _ in cells:
        full = f"{epoch}:{version}" if epoch != "0" else version
        origin = source.rsplit("-", 2)[0] if source != "(none)" else name
        records.append(["ii", name, full, origin, arch, vendor if vendor != "(none)" else ""])
    return [row for row in records if row[1] != "gpg-pubkey"]


def find_twice() -> list[tuple[str, list[str]]]:
    """Return packages that are in the database twice, with rpm's names of their older installations; kernels and
    similar packages may be."""
    several = set(run(["rpm", "-q", "--qf", "%{NAME}\n", "--whatprovides", "multiversion(kernel)"]).lines)
    groups: dict[tuple[str, str], list[str]] = {}
    for _, name, version, _, arch, _ in read_rows():
        if name not in several:
            groups.setdefault((name, arch), []).append(f"{name}-{version.rpartition(':')[2]}.{arch}")
    return sorted((name, versions[:-1]) for (name, _), versions in groups.items() if len(versions) > 1)


def drop(nevras: list[str]) -> None:
    """Remove duplicate installations. Raises Refused."""
    ran = run(["rpm", "-e", "--nodeps", *nevras])
    if ran.status:
        raise Refused(f"rpm -e fails: {ran.message[-300:]}. Fix: correct what it reports, then apply again")
