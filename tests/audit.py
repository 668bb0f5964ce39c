"""Usage: python tests/audit.py requirements.lock [ADVISORIES]. Exit code 1 if a locked version has a known
vulnerability.

Without ADVISORIES pip-audit asks PyPI, if it is installed. ADVISORIES is a folder of advisories in OSV's format as YAML
or JSON files, in subfolders or not: a copy of PyPA's advisory database (https://github.com/pypa/advisory-database,
folder vulns), for machines without internet.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

LOCKED = re.compile(r"([A-Za-z0-9._-]+)==([^\s;\\]+)")

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def locked(text: str) -> dict[str, set[str]]:
    """Return the versions of each package that a lock file names; several if they depend on the Python version."""
    found: dict[str, set[str]] = {}
    for line in text.splitlines():
        if match := LOCKED.match(line):
            found.setdefault(canonicalize_name(match[1]), set()).add(match[2])
    return found


def advisories(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield every advisory that was not withdrawn."""
    for file in sorted(path for pattern in ("*.yaml", "*.json") for path in folder.rglob(pattern)):
        text = file.read_text(encoding="utf-8")
        advisory = json.loads(text) if file.suffix == ".json" else yaml.load(text, _LOADER)
        if isinstance(advisory, dict) and "affected" in advisory and not advisory.get("withdrawn"):
            yield advisory


def affects(affected: dict[str, Any], version: str) -> bool:
    """Return whether an entry of an advisory names this version, in its list or in one of its ranges."""
    if version in (affected.get("versions") or ()):
        return True
    return any(
        _within(entry["events"], version) for entry in affected.get("ranges", ()) if entry["type"] == "ECOSYSTEM"
    )


def _within(events: list[dict[str, str]], version: str) -> bool:
    inside = False
    try:
        here = Version(version)
        for event in sorted(events, key=lambda event: Version(next(iter(event.values())))):
            kind, bound = next(iter(event.items()))
            if kind == "introduced" and here >= Version(bound):
                inside = True
            elif (kind == "fixed" and here >= Version(bound)) or (kind == "last_affected" and here > Version(bound)):
                inside = False
    except InvalidVersion:
        return True  # rather one line too many than one too few
    return inside


def findings(versions: dict[str, set[str]], folder: Path) -> Iterator[str]:
    """Yield a line for each locked version with a known vulnerability."""
    for advisory in advisories(folder):
        for affected in advisory["affected"]:
            name = canonicalize_name(str(affected.get("package", {}).get("name", "")))
            for version in sorted(versions.get(name, ())):
                if affects(affected, version):
                    yield f"{name} {version}: {advisory['id']} {' '.join(advisory.get('aliases', ()))}".rstrip()


def main(arguments: list[str]) -> int:
    """Return the exit code."""
    lock = Path(arguments[0])
    versions = locked(lock.read_text(encoding="utf-8"))
    if len(arguments) < 2:
        audit = shutil.which("pip-audit", path=str(Path(sys.executable).parent))
        if audit is None:
            print("pip-audit is not installed, and no folder of advisories was named", file=sys.stderr)
            return 2
        # --strict: a package that could not be asked about is a failure, not a package without vulnerabilities.
        command = [audit, "--strict", "--requirement", str(lock), "--no-deps", "--disable-pip"]
        return subprocess.run(command, check=False).returncode
    folder = Path(arguments[1])
    known = sum(1 for _ in advisories(folder))
    if not known:
        print(f"{folder}: no advisories in it", file=sys.stderr)
        return 2
    lines = list(findings(versions, folder))
    for line in lines:
        print(line)
    print(f"{len(versions)} packages, {known} advisories, {len(lines)} known vulnerabilities")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
