"""The end of a process that had Temporal's SDK in it."""

from __future__ import annotations

import atexit
import os
import sys


def pytest_sessionfinish(exitstatus: int) -> None:
    """Threads of the SDK may abort Python as it ends: it ends at once, as gpuprov itself does, when all has been
    said."""

    def end() -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(int(exitstatus))

    if "temporalio" in sys.modules:
        atexit.register(end)
