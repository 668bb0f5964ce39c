"""Files that a report is written to beside the terminal."""

from pathlib import Path
from typing import NamedTuple


class ReportFiles(NamedTuple):
    """The requested files; None: not requested."""

    junit: Path | None = None
    html: Path | None = None
    prometheus: Path | None = None


NONE = ReportFiles()
