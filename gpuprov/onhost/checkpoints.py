"""The checkpoints of a host: what was applied when verify called it green, exactly, and the packages of it as files.

Run on a host as a program, by root: a request as JSON on standard input, the answer as one line of JSON. A folder for each checkpoint,
for root alone; the files are beside them, once for all, where apt's own user reads them.
"""

from __future__ import annotations

import contextlib
import datetime
import glob
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from typing import Any, Iterator, Mapping, Sequence

from .files import write

FOLDER = "/var/lib/gpuprov/checkpoints"
POOL = "/var/lib/gpuprov/packages"
TARGET = f"{FOLDER}/target.json"
"""The checkpoint that a rollback has begun to go back to, until one has ended."""
LAST = f"{FOLDER}/last.json"
"""The checkpoint that the host was at, when verify was last green."""
MARK = "/var/lib/gpuprov/applying.json"
ARCHIVES = "/var/cache/apt/archives"
SOURCE = "/etc/apt/sources.list.d/gpuprov-kept.sources"
RUN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
MOST = 3
"""Checkpoints that are kept: the newest."""
BYTES = 2 << 30
"""The most that the files of one checkpoint take."""
FREE = 2 << 30
"""What is left free on the disk all the same."""


def keep(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Write a checkpoint, with the packages that are held now; the oldest go."""
    run = _name(asked["run"])
    packages, files, left_out = _packages()
    made = {**asked["checkpoint"], "run": run, "at": _now(), "packages": packages, "files": files}
    _folder(FOLDER, 0o700)
    _folder(f"{FOLDER}/{run}", 0o700)
    write(f"{FOLDER}/{run}/checkpoint.json", json.dumps(made) + "\n", 0o600)
    write(LAST, json.dumps({"run": run}) + "\n", 0o600)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(TARGET)
    _prune()
    _withdraw()
    return {"kept": run, "left_out": left_out}


def begin(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Note where the host goes back to, and have apt offer the kept files of packages that no repository has any more."""
    run = _name(asked["run"])
    kept = _read(run)
    write(TARGET, json.dumps({"run": run}) + "\n", 0o600)
    if not shutil.which("apt-get"):
        return {"offered": [], "missing": []}
    offered = _offered(kept["packages"])
    lacking = sorted(name for name, version in kept["packages"].items() if version not in offered.get(name, ()))
    found = {name: file for name in lacking for file in kept["files"] if _is_of(file, name, kept["packages"][name])}
    good = {name: file for name, file in found.items() if _digest(f"{POOL}/{file}") == kept["files"][file]}
    if good:
        _offer(sorted(good.values()))
    return {"offered": sorted(good), "missing": [name for name in lacking if name not in good]}


def end(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Withdraw what `begin` offered. `over`: the host is where it was to go, or was left alone, unless an apply is half-way here.
    `there`: the checkpoint that it has come to."""
    _withdraw()
    if asked.get("there"):
        write(LAST, json.dumps({"run": _name(asked["there"])}) + "\n", 0o600)
    if asked.get("over") and not os.path.exists(MARK):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(TARGET)
    return {}


def _packages() -> tuple[dict[str, str], dict[str, str], list[str]]:
    """What is held, with all that was built from one source with it, at its exact version; the files of it, with their digests; what
    there is no file of."""
    if not shutil.which("dpkg-query"):
        return {}, {}, []
    form = "${db:Status-Abbrev}|${Package}|${Version}|${source:Package}|${source:Version}|${Architecture}\\n"
    rows = [line.split("|") for line in _out(["dpkg-query", "-W", "-f", form]).splitlines()]
    held = set(_out(["apt-mark", "showhold"]).split())
    built = {(row[3], row[4]) for row in rows if row[1] in held}
    mine = sorted((row[1], row[2], row[5]) for row in rows if row[0][1:2] == "i" and (row[3], row[4]) in built)
    files: dict[str, str] = {}
    left_out = []
    _folder(POOL, 0o755)
    size = 0
    for name, version, architecture in mine:
        file = f"{name}_{version.replace(':', '%3a')}_{architecture}.deb"
        if not _have(file, name, version, BYTES - size):
            left_out.append(name)
            continue
        size += os.path.getsize(f"{POOL}/{file}")
        files[file] = _digest(f"{POOL}/{file}")
    return {name: version for name, version, _ in mine}, files, left_out


def _have(file: str, name: str, version: str, room: int) -> bool:
    """Whether the pool has the file: already, from apt's archives, or from a repository."""
    place = f"{POOL}/{file}"
    if os.path.exists(place):
        return True
    if shutil.disk_usage(POOL).free < FREE:
        return False
    if not os.path.exists(f"{ARCHIVES}/{file}"):
        _run(["apt-get", "-qq", "-o", "APT::Sandbox::User=root", "download", f"{name}={version}"], POOL)
    elif os.path.getsize(f"{ARCHIVES}/{file}") <= room:
        shutil.copyfile(f"{ARCHIVES}/{file}", f"{place}.part")
        os.replace(f"{place}.part", place)
    if os.path.exists(place) and os.path.getsize(place) > room:
        os.unlink(place)
    if os.path.exists(place):
        os.chmod(place, 0o644)
    return os.path.exists(place)


def _offered(packages: Mapping[str, str]) -> dict[str, list[str]]:
    """The versions that repositories have, by name."""
    found: dict[str, list[str]] = {}
    for line in _out(["apt-cache", "madison", *packages]).splitlines() if packages else ():
        name, version = (cell.strip() for cell in line.split("|")[:2])
        found.setdefault(name, []).append(version)
    return found


def _offer(files: Sequence[str]) -> None:
    """An index of these files, and a source of it. They were root's alone since apt had checked their signatures."""
    told = []
    for file in files:
        path = f"{POOL}/{file}"
        control = _out(["dpkg-deb", "-f", path]).rstrip("\n")
        told.append(f"{control}\nFilename: ./{file}\nSize: {os.path.getsize(path)}\nSHA256: {_digest(path)}\n")
    write(f"{POOL}/Packages", "\n".join(told))
    write(SOURCE, f"# Of gpuprov rollback, while it runs\nTypes: deb\nURIs: file:{POOL}\nSuites: ./\nTrusted: yes\n")
    only = ["-o", f"Dir::Etc::sourcelist={SOURCE}", "-o", "Dir::Etc::sourceparts=-", "-o", "APT::Get::List-Cleanup=0"]
    ran = _run(["apt-get", "-qq", *only, "-o", "APT::Update::Error-Mode=any", "update"])
    if ran.returncode:
        raise ValueError(f"the kept packages cannot be offered: {ran.stderr.strip()[-300:]}")


def _withdraw() -> None:
    """The source goes, also one that a rollback which was killed has left."""
    if os.path.exists(SOURCE):
        os.unlink(SOURCE)
        for path in glob.glob("/var/lib/apt/lists/_var_lib_gpuprov_packages_*"):
            os.unlink(path)


def _prune() -> None:
    """Checkpoints beyond the newest go, and those of which a newer one is the like; then files that none of them names."""
    kept: list[dict[str, Any]] = []
    for one in sorted(_all(), key=lambda one: str(one.get("at")), reverse=True):
        alike = any((one.get("spec"), one.get("packages")) == (each["spec"], each["packages"]) for each in kept)
        if alike or len(kept) == MOST:
            shutil.rmtree(f"{FOLDER}/{one['run']}")
        else:
            kept.append(one)
    named = {file for one in kept for file in one.get("files", ())}
    for file in os.listdir(POOL) if os.path.isdir(POOL) else ():
        if file not in named:
            os.unlink(f"{POOL}/{file}")


def _all() -> Iterator[dict[str, Any]]:
    for run in os.listdir(FOLDER):
        with contextlib.suppress(OSError, ValueError):
            yield _read(run)


def _read(run: str) -> dict[str, Any]:
    with open(f"{FOLDER}/{run}/checkpoint.json", encoding="utf-8") as file:
        found: dict[str, Any] = json.load(file)
    if found["run"] != run:
        raise ValueError(f"{FOLDER}/{run} is another run's")
    return found


def _name(run: object) -> str:
    if not isinstance(run, str) or not RUN.fullmatch(run):
        raise ValueError(f"{run!r} is no name of a run")
    return run


def _is_of(file: str, name: str, version: str) -> bool:
    return file.startswith(f"{name}_{version.replace(':', '%3a')}_")


def _folder(path: str, mode: int) -> None:
    os.makedirs(path, exist_ok=True)
    os.chmod(path, mode)


def _digest(path: str) -> str:
    found = hashlib.sha256()
    try:
        with open(path, "rb") as file:
            for block in iter(lambda: file.read(1 << 20), b""):
                found.update(block)
    except OSError:
        return ""
    return found.hexdigest()


def _now() -> str:
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _run(argv: Sequence[str], folder: str = "/") -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "LC_ALL": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive"}
    return subprocess.run(
        argv, cwd=folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False,
    )  # fmt: skip


def _out(argv: Sequence[str]) -> str:
    ran = _run(argv)
    if ran.returncode:
        raise ValueError(f"{' '.join(argv[:2])} fails: {ran.stderr.strip()[-300:]}")
    return ran.stdout


def main() -> None:
    """The program."""
    os.umask(0o022)
    asked = json.load(sys.stdin)
    try:
        answer = {"keep": keep, "begin": begin, "end": end}[asked["action"]](asked)
    except (OSError, ValueError, KeyError, TypeError) as error:
        answer = {"problem": str(error) or type(error).__name__}
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
