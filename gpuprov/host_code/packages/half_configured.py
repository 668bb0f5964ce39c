"""Packages that dpkg left half-configured, and the fix. Their scripts may ask questions, to which the default is
answered."""

from __future__ import annotations

from .other_driver import CLEANUP


def parse_audit(audit: str) -> list[str]:
    """Return the names in the output of `dpkg --audit`: a line with one blank before it for each package, below a
    sentence."""
    lines = [line for line in audit.splitlines() if line[:1] == " " and line[1:2].strip()]
    return list(dict.fromkeys(line.split()[0] for line in lines))


def needs_answer(names: list[str]) -> bool:
    """Return whether a script is known to ask a question that only a person may answer: no run can complete it."""
    return CLEANUP in names


def describe_packages(names: list[str]) -> str:
    """Describe the packages that are half-configured."""
    asks = "asks whether to uninstall the driver of NVIDIA's runfile, by default yes, and fails where nobody can answer"
    why = f"; the script of {CLEANUP} {asks}" if needs_answer(names) else ""
    return f"dpkg left half-way: {' '.join(names)}{why}"


def describe_fix(names: list[str]) -> str:
    """Describe the fix on the host, without a question answered blindly."""
    if needs_answer(names):
        return (
            f"to keep the driver of the runfile: apt-get purge {CLEANUP}, which takes along what depends on it, and "
            "leave that out of the spec. No dpkg --configure -a before: it asks, and Enter uninstalls the driver"
        )
    return (
        f"read in /var/lib/dpkg/info what the scripts of {' '.join(names[:5]) or 'what dpkg --audit names'} do and "
        "ask (*.postinst, *.templates), then dpkg --configure -a, which prints why one fails; apt-get -f install"
    )
