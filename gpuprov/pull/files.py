"""Files of a folder that a server gives to hosts: complete or absent."""

from pathlib import Path

from gpuprov.core.errors import GpuprovError
from gpuprov.host_code.pull import kept


def put(path: Path, data: bytes, mode: int = 0o644) -> None:
    """Replace the file in one step, unless it has this content already."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if not (path.is_file() and path.stat().st_size == len(data) and path.read_bytes() == data):
            kept.write_whole(str(path), data, mode)
    except OSError as error:
        raise GpuprovError(f"{path} cannot be written: {error.strerror}", "name another folder with --out") from error
