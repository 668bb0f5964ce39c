"""The end of a command: its files, then its result on the terminal, as text or as the one document."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from gpuprov import console
from gpuprov.errors import GpuprovError
from gpuprov.report.document import Document, as_json
from gpuprov.report.files import write_atomic

Files = Iterable[tuple[Path | None, Callable[[], str]]]
"""Requested files, and what makes their texts; None: not requested."""


def deliver(
    document: Callable[[], Document | Iterable[str]], text: Callable[[], str] | None, files: Files = ()
) -> None:
    """Write the files, print the text, or the document if `text` is None. Texts have colours only of parts that were cleaned.

    A file that cannot be written is reported after the result.
    """
    refused: list[GpuprovError] = []
    for path, render in files:
        try:
            if path is not None:
                write_atomic(path, render())
        except GpuprovError as error:
            refused.append(error)
    if text is not None:
        console.result(text().rstrip(), in_colour=True)
    else:
        made = document()
        for part in [as_json(made)] if isinstance(made, Document) else made:
            console.result(part)
    if refused:
        raise GpuprovError("; ".join(error.message for error in refused), refused[0].hint)
