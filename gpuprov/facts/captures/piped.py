"""Records on standard input."""

import shutil
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TextIO

from msgspec.structs import replace

from gpuprov.core.errors import GpuprovError
from gpuprov.facts.captures.model import Record
from gpuprov.facts.captures.reader import iterate

INPUT = "standard input"


def iterate_input(
    stream: TextIO | None, hosts: Collection[str] = (), note: Callable[[str], None] = lambda text: None
) -> Iterator[Record]:
    """Yield every record on standard input, which is kept in a file for as long, as `iterate` does those at a path.
    Raises GpuprovError also where it is closed, or a terminal."""
    if stream is None or stream.isatty():
        raise GpuprovError(f"{INPUT} is a terminal, or closed", "pipe a record in, or name its file")
    with TemporaryDirectory() as folder:
        place = Path(folder) / "standard-input"
        try:
            with place.open("wb") as file:
                shutil.copyfileobj(stream.buffer, file)
        except OSError as error:
            raise GpuprovError(f"{INPUT} cannot be read: {error.strerror}", "name a file") from error
        try:
            for record in iterate(place, hosts, note):
                yield replace(record, path=record.path.replace(str(place), INPUT))
        except GpuprovError as error:
            raise GpuprovError(error.message.replace(str(place), INPUT), error.fix) from error
