"""Debian mirrors of this machine: read from its own apt sources, so that no mirror's name is hard-coded in the
project."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from gpuprov.core.errors import GpuprovError

KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
VARIABLES = ("GPUPROV_SIM_MIRROR", "GPUPROV_SIM_SECURITY_MIRROR")
SUITES = frozenset({"bullseye", "bookworm", "trixie", "forky", "sid", "oldstable", "stable", "testing", "unstable"})


@dataclass(frozen=True)
class Mirrors:
    """The two archives a Debian host needs."""

    debian: str
    security: str


def read(etc_apt: Path = Path("/etc/apt")) -> Mirrors:
    """Return the mirrors that this machine uses itself; on a machine other than Debian, those that the variables
    name."""
    named = [os.environ.get(variable, "").rstrip("/") for variable in VARIABLES]
    if all(named):
        return Mirrors(*named)
    if any(named):
        raise GpuprovError(f"only one of {' and '.join(VARIABLES)} is set", fix="set both, or none")
    files = [etc_apt / "sources.list", *sorted((etc_apt / "sources.list.d").glob("*"))]
    entries = [entry for file in files if file.is_file() for entry in _entries(file)]
    debian = next((uri for uri, suite in entries if suite in SUITES), None)
    security = next((uri for uri, suite in entries if _is_security(suite)), None)
    if debian is None or security is None:
        missing = "a Debian suite" if debian is None else "a Debian security suite"
        raise GpuprovError(
            f"{etc_apt}: no http source names {missing}",
            fix="simulated hosts are built from the Debian mirror of this machine's apt sources; "
            f"elsewhere set {' and '.join(VARIABLES)}",
        )
    return Mirrors(debian, security)


def _is_security(suite: str) -> bool:
    base, slash, rest = suite.partition("/")
    return (slash and rest == "updates" and base in SUITES) or suite.removesuffix("-security") in SUITES - {suite}


def _entries(file: Path) -> list[tuple[str, str]]:
    text = file.read_text(encoding="utf-8", errors="replace")
    pairs = parse_deb822(text) if file.suffix == ".sources" else parse_one_line(text)
    return [(uri.rstrip("/"), suite) for uri, suite in pairs if uri.startswith(("http://", "https://"))]


def parse_one_line(text: str) -> list[tuple[str, str]]:
    """Parse (uri, suite) of each `deb [options] uri suite components...` line."""
    pairs: list[tuple[str, str]] = []
    for line in text.splitlines():
        line = line.partition("#")[0].strip()
        if not line.startswith(("deb ", "deb\t")):
            continue
        rest = line[3:].strip()
        if rest.startswith("["):
            rest = rest.partition("]")[2].strip()
        words = rest.split()
        if len(words) >= 2:
            pairs.append((words[0], words[1]))
    return pairs


def parse_deb822(text: str) -> list[tuple[str, str]]:
    """Parse (uri, suite) of each enabled `deb` stanza of a .sources file."""
    pairs: list[tuple[str, str]] = []
    for stanza in _stanzas(text):
        if "deb" not in stanza.get("types", "").split() or stanza.get("enabled", "yes").strip().lower() == "no":
            continue
        for suite in stanza.get("suites", "").split():
            pairs.extend((uri, suite) for uri in stanza.get("uris", "").split())
    return pairs


def _stanzas(text: str) -> list[dict[str, str]]:
    stanzas: list[dict[str, str]] = [{}]
    key = ""
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        if not line.strip():
            stanzas.append({})
        elif line[0].isspace():
            stanzas[-1][key] = stanzas[-1].get(key, "") + " " + line.strip()
        else:
            key, _, value = line.partition(":")
            key = key.strip().lower()
            stanzas[-1][key] = value.strip()
    return [stanza for stanza in stanzas if stanza]
