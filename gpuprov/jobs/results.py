"""The folder of results: a file for each host, complete or absent, even if the process or the machine dies."""

import os
import stat
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from urllib.parse import quote, unquote

import msgspec

from gpuprov.core import safe_parse
from gpuprov.core.errors import GpuprovError
from gpuprov.core.sanitize import cleaned
from gpuprov.jobs.model import HostResult

# Maximum size of one result in bytes. A host with every check failing has some 60 KiB.
LARGEST = 4 << 20
END = ".json"
# Characters of a file name before its suffix; a file system takes 255 bytes.
LONGEST = 200


def file_name(host: str) -> str:
    """Return the file name of a host's result. Whatever the host's name, it is a plain name in the folder, and unique
    to the host."""
    plain = quote(host, safe="@+")
    if len(plain) > LONGEST:
        plain = (
            f"{plain[: LONGEST - 65].rpartition('%')[0] or plain[: LONGEST - 65]}~{sha256(host.encode()).hexdigest()}"
        )
    return f"%2E{plain[1:]}{END}" if plain.startswith(".") else f"{plain}{END}"


def host_of(name: str) -> str:
    """Return the host that a file is named after, as far as its name shows it."""
    return unquote(name.removesuffix(END))


class Results:
    """A folder of this user, created if missing. Raises GpuprovError if it cannot be used."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise self._refused(error) from error
        about = os.fstat(self._handle)
        if about.st_uid not in (0, os.geteuid()) or about.st_mode & stat.S_IWOTH:
            os.close(self._handle)
            message = (
                f"{folder} belongs to another user, or everybody may write in it: its files say which hosts are done"
            )
            raise GpuprovError(message, "name a folder of your own with --results")

    def close(self) -> None:
        os.close(self._handle)

    def read(self, host: str) -> HostResult | None:
        """Return the host's result; None if there is none, or one that cannot be trusted."""
        try:
            data = contents(file_name(host), self._handle)
            result = safe_parse.parse_typed_json(data, HostResult, largest=LARGEST)
        except (OSError, safe_parse.Unreadable):
            return None
        return result if result.host == host else None

    def write(self, result: HostResult) -> None:
        """Replace the host's result in one step, and sync it to disk."""
        name = file_name(result.host)
        temporary = f".{name}.{os.getpid()}"
        data = cleaned(msgspec.json.encode(result).decode()).encode() + b"\n"
        try:
            with suppress(FileNotFoundError):
                os.unlink(temporary, dir_fd=self._handle)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            with os.fdopen(os.open(temporary, flags, 0o600, dir_fd=self._handle), "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, name, src_dir_fd=self._handle, dst_dir_fd=self._handle)
            os.fsync(self._handle)
        except OSError as error:
            with suppress(OSError):
                os.unlink(temporary, dir_fd=self._handle)
            raise self._refused(error) from error

    def _refused(self, error: OSError) -> GpuprovError:
        fix = "name a folder that you may write to, with space, with --results"
        return GpuprovError(f"{self.folder} cannot take results: {error.strerror}", fix)


def contents(name: str, folder: int) -> bytes:
    """Return the bytes of a result in an open folder. Follows no link, and never blocks. Raises OSError, or
    Unreadable."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with open(os.open(name, flags, dir_fd=folder), "rb", buffering=0) as file:
        about = os.fstat(file.fileno())
        if not stat.S_ISREG(about.st_mode):
            raise safe_parse.Unreadable("this is not a file", "a file")
        if about.st_size > LARGEST:
            raise safe_parse.Unreadable(f"it has {about.st_size >> 20} MiB", f"{LARGEST >> 20} MiB")
        return file.read(LARGEST + 1)
