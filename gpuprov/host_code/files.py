"""Text files and their desired state: written as a whole to a temporary file and renamed, or removed."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import shlex
import stat
import subprocess
import tempfile
from typing import Iterable, Mapping, NamedTuple, Sequence

from . import json_members, lines

# Placeholder in a unit's text for the Python that gpuprov's modules have on the host.
PYTHON = "@PYTHON@"

# Folder of gpuprov's programs on a host, and of the packages that its units let Python find.
ABOVE = "/usr/local/lib/gpuprov"

# Folder of the settings that gpuprov's programs read.
SETTINGS = "/etc/gpuprov"

# Seconds that a file system may take to write its pending data.
SETTLES = 300

MOUNTS = "/proc/self/mounts"
# Prefixes of the types of network file systems, or of those that may wait for others.
REMOTE = re.compile(r"nfs|cifs|smb|ceph|lustre|gpfs|beegfs|glusterfs|afs|9p|autofs|fuse")


class Wanted(NamedTuple):
    """A file of root's. `content` None: it should not exist."""

    path: str
    content: str | None
    mode: int = 0o644
    # All of it is gpuprov's, so that a link in its place is replaced; if only lines of a file are gpuprov's, a link may
    # be the site's.
    whole: bool = True


class Difference(NamedTuple):
    """The actual and the desired file; None for a file that does not exist."""

    path: str
    before: str | None
    after: str | None
    # Only that differs.
    mode: str = ""

    def shown(self) -> dict[str, str]:
        """Return the difference in Ansible's format."""
        names = {"before_header": self.path, "after_header": self.path}
        if self.mode:
            before, after = self.mode.split(" -> ")
            return {**names, "before": f"mode {before}\n", "after": f"mode {after}\n"}
        return {**names, "before": self.before or "", "after": self.after or ""}


class Refused(Exception):
    """A path that holds something other than a file of root's; its message says what, and the fix."""


def list_differences(desired: list[Wanted]) -> list[Difference]:
    """List the files that have to change, in the given order. Raises Refused."""
    pending = [compare_file(file) for file in desired]
    return [change for change in pending if change is not None]


def bring_about(desired: list[Wanted]) -> list[Difference]:
    """Write and remove the files that `list_differences` lists; return the changes. Missing folders are created with
    mode 0755."""
    changed = list_differences(desired)
    by_path = {item.path: item for item in desired}
    for folder in select_guarded_folders(item.path for item in desired if item.content is not None):
        if os.path.isdir(folder) and not os.path.islink(folder):
            os.chmod(folder, 0o755)
            os.chown(folder, 0, 0)
    for difference in changed:
        file = by_path[difference.path]
        if file.content is None:
            os.unlink(file.path)
            _remove_empty_folders(file.path)
        elif difference.mode:
            os.chmod(file.path, file.mode)
            os.chown(file.path, 0, 0)
        else:
            write(file.path, file.content, file.mode)
    return changed


def _remove_empty_folders(path: str) -> None:
    """Remove empty gpuprov folders above a path."""
    folder = os.path.dirname(path)
    with contextlib.suppress(OSError):  # one that is not empty
        while f"{folder}/".startswith((f"{ABOVE}/", f"{SETTINGS}/")):
            os.rmdir(folder)
            folder = os.path.dirname(folder)


def merge_lines(path: str, keys: Mapping[str, str], *, made: bool = False) -> Wanted:
    """Return the file with these keys, as lines KEY=VALUE or as members of a JSON document, and the rest unchanged.
    `made`: a missing file counts as empty."""
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        if not made:
            raise Refused(f"{path} does not exist. Fix: install what brings it") from None
        return Wanted(path, _replace_keys(path, "", keys), whole=False)
    text = ""
    if stat.S_ISREG(mode):
        with open(path, "rb") as file:
            text = file.read().decode("utf-8", "surrogateescape")
    return Wanted(path, _replace_keys(path, text, keys), lines.limit_mode(stat.S_IMODE(mode)), whole=False)


def _replace_keys(path: str, text: str, keys: Mapping[str, str]) -> str:
    if not path.endswith(json_members.SUFFIX):
        return lines.with_keys(text, keys)
    try:
        return json_members.with_keys(text, keys)
    except json_members.NotJson as error:
        raise Refused(f"{path}: {error}. Fix: correct it, or install the package that brings it again") from None


def write(path: str, content: str, mode: int = 0o644) -> None:
    """Replace a whole file: a reader sees the old one or the new one, even after a loss of power."""
    folder = os.path.dirname(path)
    make_folder(folder)
    try:
        handle, temporary = tempfile.mkstemp(prefix=".gpuprov-", dir=folder)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content.encode("utf-8", "surrogateescape"))
                os.fchmod(file.fileno(), mode)
                file.flush()
                os.fsync(file.fileno())
            os.rename(temporary, path)
        except BaseException:
            os.unlink(temporary)
            raise
    except OSError as error:  # which names the temporary file, or none
        raise OSError(error.errno, error.strerror, path) from error
    flush_to_disk(folder)


# What an administrator looks at, by the error: of root, EPERM is an attribute of chattr's.
CAUSES = {
    errno.EPERM: "lsattr -d {folder} {path}; chattr -i takes away what makes a file immutable",
    errno.EROFS: "findmnt -T {folder} shows the file system that is mounted read-only",
    errno.ENOSPC: "df -h {folder}; df -i {folder}; free space or inodes there",
}


def explain(error: OSError) -> str:
    """Return what failed, and what to look at."""
    if not error.filename:
        return f"{error}. Fix: see the file system of the host"
    path = os.fsdecode(error.filename)
    cause = CAUSES.get(error.errno or 0, "see the file system of the host")
    folder = shlex.quote(os.path.dirname(path) or ".")
    return f"{path}: {error.strerror}. Fix: {cause.format(folder=folder, path=shlex.quote(path))}"


def read(path: str) -> str:
    """Return the text of a file; "" if there is none."""
    with contextlib.suppress(FileNotFoundError), open(path, encoding="utf-8", errors="replace") as file:
        return file.read()
    return ""


def peek(path: str) -> str:
    """Return the text of a file; "" if it cannot be read."""
    with contextlib.suppress(OSError):
        return read(path)
    return ""


def compute_digest(path: str) -> str:
    """Return the SHA-256 of a file; "" if it cannot be read."""
    checksum = hashlib.sha256()
    try:
        with open(path, "rb") as file:
            for block in iter(lambda: file.read(1 << 20), b""):
                checksum.update(block)
    except OSError:
        return ""
    return checksum.hexdigest()


def remove(path: str) -> None:
    """Remove a file, if it exists."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def compare_file(desired: Wanted) -> Difference | None:
    try:
        state = os.lstat(desired.path)
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENOTDIR):
            raise
        return None if desired.content is None else Difference(desired.path, None, desired.content)
    if desired.whole and stat.S_ISLNK(state.st_mode):
        return Difference(desired.path, f"a link to {os.readlink(desired.path)}\n", desired.content)
    if not stat.S_ISREG(state.st_mode):
        kind = (
            "a symbolic link"
            if stat.S_ISLNK(state.st_mode)
            else "a folder"
            if stat.S_ISDIR(state.st_mode)
            else "not a file"
        )
        raise Refused(f"{desired.path} is {kind}, where gpuprov keeps a file. Fix: move it away")
    with open(desired.path, "rb") as file:
        before = file.read().decode("utf-8", "surrogateescape")
    if desired.content is None or before != desired.content:
        return Difference(desired.path, before, desired.content)
    mode = stat.S_IMODE(state.st_mode)
    if mode != desired.mode or (state.st_uid, state.st_gid) != (0, 0):
        old = f"{mode:04o}" + (
            "" if state.st_uid == state.st_gid == 0 else f" of {int(state.st_uid)}:{int(state.st_gid)}"
        )
        return Difference(desired.path, before, desired.content, f"{old} -> {desired.mode:04o}")
    return None


def select_own_folders(paths: Iterable[str]) -> set[str]:
    """Return the folders of gpuprov's own programs among these paths: they contain nothing else."""
    return {folder for path in paths if (folder := os.path.dirname(path)).startswith(f"{ABOVE}/")}


def select_guarded_folders(paths: Iterable[str]) -> set[str]:
    """Return the folders that root alone may write if these files are what they seem: with those of programs, the two
    above them and above settings, in which others could be put in the place of what is there."""
    files = list(paths)
    above = {top for top in (ABOVE, SETTINGS) if any(path.startswith(f"{top}/") for path in files)}
    return select_own_folders(files) | above


def list_foreign_files(desired: Sequence[Wanted]) -> list[Wanted]:
    """List files to remove: foreign files beside those of these programs, which Python would load instead."""
    known = {file.path for file in desired}
    programs = [file.path for file in desired if file.content is not None]
    places = [place for folder in select_own_folders(programs) for place, _, _ in os.walk(folder)]
    paths = [os.path.join(place, name) for place in places for name in sorted(os.listdir(place))]
    return [
        Wanted(path, None) for path in paths if path not in known and (os.path.islink(path) or not os.path.isdir(path))
    ]


def make_folder(folder: str) -> None:
    """Create a folder like os.makedirs, but with mode 0755 whatever the umask."""
    if os.path.isdir(folder):
        return
    make_folder(os.path.dirname(folder))
    os.mkdir(folder)
    os.chmod(folder, 0o755)


def settle(paths: Sequence[str]) -> None:
    """Flush the file systems that hold these paths: files from other programs stay unflushed for half a minute
    otherwise. Skips network file systems below the root, such as /opt on clusters: they may not answer, and access may
    never end."""
    devices: dict[int, str] = {}
    for path in paths:
        if is_remote(path):
            continue
        with contextlib.suppress(OSError):
            devices.setdefault(os.stat(path).st_dev, path)
    for path in devices.values():
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            subprocess.run(["sync", "--file-system", path], check=False, capture_output=True, timeout=SETTLES)


def is_remote(path: str) -> bool:
    place, kind = "/", ""
    for line in read(MOUNTS).splitlines():
        _, mounted, what, *_ = line.split(" ")
        if len(mounted) >= len(place) and f"{path}/".startswith(f"{mounted.rstrip('/')}/"):
            place, kind = mounted, what
    return place != "/" and REMOTE.match(kind) is not None


def flush_to_disk(path: str) -> None:
    """Flush a file, or a folder's list of files, so that it survives a loss of power."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
