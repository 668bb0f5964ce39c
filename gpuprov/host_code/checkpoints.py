"""The checkpoints of a host: the exact spec that was applied when verify was green, and its packages as files.

Run on a host as a program, by root: a request as JSON on standard input, the answer as one line of JSON. Each
checkpoint has a folder that only root can read; the files are beside them, stored once for all, where apt's own user
can read them. The work belongs to a run, whose owner is in each request; one at a time: a rollback takes the host's
lock before it offers anything.
"""

from __future__ import annotations

import contextlib
import datetime
import fcntl
import json
import os
import re
import shutil
import sys
from types import ModuleType
from typing import Iterator, Sequence

from . import family, kept_debs, kept_rpms, lock
from .fence import Owner
from .files import compute_digest, settle, write
from .kept_files import Answer, Checkpoint, Kept, Request, Target, is_of
from .packages.commands import shorten_end
from .packages.model import Refused

FOLDER = "/var/lib/gpuprov/checkpoints"
POOL = "/var/lib/gpuprov/packages"
# The target of a rollback that has begun and not yet ended with a report; with its run, and the previous contents
# (`before`).
TARGET = f"{FOLDER}/target.json"
# The checkpoint of the host when verify was last green, and the time of that.
LAST = f"{FOLDER}/last.json"
RUN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
KINDS: dict[str, ModuleType] = {"debian": kept_debs, "redhat": kept_rpms, "suse": kept_rpms}
# The sources that offer the kept files to a package manager during a rollback: the source's file, and the address in
# it.
OFFERS = frozenset(
    ((kept_debs.SOURCE, f"file:{POOL}"), *((path, f"file://{kept_rpms.FOLDER}") for path in kept_rpms.SOURCES.values()))
)
# Maximum number of checkpoints; the newest are kept.
MOST = 3
# Maximum size of the files of one checkpoint, in bytes.
BYTES = 2 << 30
# Bytes that stay free on the disk.
FREE = 2 << 30


def keep(request: Request) -> Answer:
    """Write a checkpoint, with the packages that are held now; delete the oldest."""
    run = make_name(request["run"])
    _refuse_others(request["owner"])
    withdraw_offers()
    make_folder(FOLDER, 0o700)
    packages, files, left_out = list_packages()
    made: Checkpoint = {**request["checkpoint"], "run": run, "at": format_now(), "packages": packages, "files": files}
    make_folder(f"{FOLDER}/{run}", 0o700)
    write(f"{FOLDER}/{run}/checkpoint.json", json.dumps(made) + "\n", 0o600)
    note_arrival(run)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(TARGET)
    _prune()
    return {"kept": run, "left_out": left_out}


def begin(request: Request) -> Answer:
    """Take the host's lock, record the rollback's target, and make its package manager offer the kept files. `offered`
    and `missing`: packages that no repository has any more, or `unasked`, why the repositories could not be queried.
    `locked`: the answer of `lock.take` if another run has the lock. If offering fails, the host is left alone."""
    run, owner = make_name(request["run"]), request["owner"]
    kept = _read(run)
    taken = lock.take(owner, request.get("broken", ()), request.get("stale"))
    if not taken["taken"]:
        return {"locked": taken}
    try:
        target = read_target()
        before = target.get("before", "") if target.get("of") == owner["run"] else target.get("run", "")
        write(TARGET, json.dumps({"run": run, "of": owner["run"], "before": before}) + "\n", 0o600)
        offered = offer_rollback(kept)
        lock.renew_lease(owner)
        return offered
    except BaseException:
        with contextlib.suppress(OSError):
            end_request({"over": True, "owner": owner})
        raise


def offer_rollback(kept: Checkpoint) -> Answer:
    kind = KINDS.get(family.read_family())
    if kind is None:
        return {"offered": [], "missing": [], "unasked": ""}
    good = {file: known for file, known in kept["files"].items() if known and compute_digest(f"{POOL}/{file}") == known}
    kind.withdraw()
    unasked = ""
    try:
        offered = kind.offered(sorted(kept["packages"]))
    except Refused as refused:  # its mirrors may be gone, and all be kept
        offered, unasked = {}, shorten_end(str(refused), 300)
    lacking = {name: version for name, version in kept["packages"].items() if version not in offered.get(name, ())}
    if good:  # also those that the host's lists have: its mirror may have dropped them since
        kind.offer(good, POOL)
    present = sorted(name for name, version in lacking.items() if any(is_of(file, name, version) for file in good))
    return {"offered": present, "missing": sorted(lacking.keys() - {*present}), "unasked": unasked}


def end_request(request: Request) -> Answer:
    """Withdraw the offers of `begin`, and release the lock. `over`: the host was left alone, and the previous contents
    of TARGET are restored. `there`: the checkpoint that it has reached. Anything begun by another run since then stays.

    If a rollback is killed now, nobody knows that the host is back: the next one goes to the same target, and no
    further (`told`).
    """
    owner = request["owner"]
    try:
        target = read_target()
        if target.get("of") == owner["run"] and not _is_others(owner):
            withdraw_offers()
            if request.get("arrived"):
                note_arrival(make_name(request["arrived"]))
            if request.get("over") and target.get("before"):
                write(TARGET, json.dumps({"run": target["before"]}) + "\n", 0o600)
            elif request.get("over"):
                os.unlink(TARGET)
    finally:
        lock.release_lock(owner)
    return {}


def forget_target(request: Request) -> Answer:
    """Forget the target of a rollback: it has reported that the host is there."""
    if read_target().get("of") == request["owner"]["run"]:
        os.unlink(TARGET)
    return {}


def _is_others(owner: Owner) -> bool:
    held = lock.read_owner_file()
    return held is not None and not lock.is_mine(held, owner)


def _refuse_others(owner: Owner) -> None:
    if _is_others(owner):
        raise ValueError(f"another run has the host's lock by now ({lock.name_of(lock.read_owner_file() or '')})")


def read_target() -> Target:
    """Return a rollback's record; empty if none has begun or the record is damaged."""
    with contextlib.suppress(OSError, ValueError), open(TARGET, encoding="utf-8") as file:
        content: Target = json.load(file)
        if isinstance(content, dict):
            return content
    return {}


def note_arrival(run: str) -> None:
    write(LAST, json.dumps({"run": run, "at": format_now()}) + "\n", 0o600)


def list_packages() -> tuple[dict[str, str], dict[str, str], list[str]]:
    """Return the held packages, and all that were built from the same source, with their exact versions; their files
    with digests; and the packages without a file."""
    kind = KINDS.get(family.read_family())
    if kind is None:
        return {}, {}, []
    packages_held = kind.list_kept()
    make_folder(POOL, 0o755)
    known = list_pool_files()
    kind.bring([missing for missing in select_fitting(packages_held) if not get_file_size(missing)], POOL, FREE)
    settle([POOL])  # a checkpoint names what is there also after a loss of power
    files: dict[str, str] = {}
    left_out = []
    size = 0
    for package in packages_held:
        place, length = f"{POOL}/{package.file}", get_file_size(package)
        if not length or size + length > BYTES:
            left_out.append(package.name)
            continue
        os.chmod(place, 0o644)
        size += length
        files[package.file] = known.get(package.file) or compute_digest(place)
    return {item.name: item.version for item in packages_held}, files, left_out


def select_fitting(packages: Sequence[Kept]) -> Iterator[Kept]:
    """Yield the packages for which there is room; the others are not downloaded either."""
    size = 0
    for package in packages:
        length = get_file_size(package) or package.size
        if size + length <= BYTES:
            size += length
            yield package


def get_file_size(package: Kept) -> int:
    """Return the size of its file in the pool in bytes; 0 if there is none."""
    place = f"{POOL}/{package.file}"
    return os.path.getsize(place) if os.path.exists(place) else 0


def list_pool_files() -> dict[str, str]:
    """Return the pool's files that match a checkpoint. Others are deleted: an interrupted download has its final name,
    too."""
    named = {entry for checkpoint in read_all() for entry in checkpoint.get("files", {}).items()}
    good = {}
    for file in os.listdir(POOL):
        content = compute_digest(f"{POOL}/{file}")
        if (file, content) in named:
            good[file] = content
        else:
            os.unlink(f"{POOL}/{file}")
    return good


def withdraw_offers() -> None:
    kind = KINDS.get(family.read_family())
    if kind is not None:
        kind.withdraw()


def _prune() -> None:
    """Delete checkpoints beyond the newest, and those identical to a newer one; then files that none of them names."""
    kept: list[Checkpoint] = []
    for checkpoint in sorted(read_all(), key=lambda item: str(item.get("at")), reverse=True):
        alike = any(
            (checkpoint.get("spec"), checkpoint.get("packages")) == (each["spec"], each["packages"]) for each in kept
        )
        if alike or len(kept) == MOST:
            shutil.rmtree(f"{FOLDER}/{checkpoint['run']}")
        else:
            kept.append(checkpoint)
    named = {file for entry in kept for file in entry.get("files", ())}
    for file in os.listdir(POOL) if os.path.isdir(POOL) else ():
        if file not in named:
            os.unlink(f"{POOL}/{file}")


def read_all() -> Iterator[Checkpoint]:
    for run in os.listdir(FOLDER):
        with contextlib.suppress(OSError, ValueError):
            yield _read(run)


def _read(run: str) -> Checkpoint:
    with open(f"{FOLDER}/{run}/checkpoint.json", encoding="utf-8") as file:
        content: Checkpoint = json.load(file)
    if content["run"] != run:
        raise ValueError(f"{FOLDER}/{run} is another run's")
    return content


def make_name(run: object) -> str:
    if not isinstance(run, str) or not RUN.fullmatch(run):
        raise ValueError(f"{run!r} is not a name of a run")
    return run


def make_folder(path: str, mode: int) -> None:
    os.makedirs(path, exist_ok=True)
    os.chmod(path, mode)


def format_now() -> str:
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


@contextlib.contextmanager
def lock_alone() -> Iterator[None]:
    os.makedirs(lock.BASE, mode=0o755, exist_ok=True)
    with open(f"{lock.BASE}/.checkpoints.guard", "w", encoding="utf-8") as file:
        os.fchmod(file.fileno(), 0o600)  # for root alone, as the lock's
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def main() -> None:
    """The program."""
    os.umask(0o022)
    request = json.load(sys.stdin)
    try:
        with lock_alone():
            answer = {"keep": keep, "begin": begin, "end": end_request, "told": forget_target}[request["action"]](
                request
            )
    except (OSError, ValueError, KeyError, TypeError, Refused) as error:
        answer = {"problem": str(error) or type(error).__name__}
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
