"""What several test folders share."""

from __future__ import annotations

from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]


class Lanes(LoadScopeScheduling):  # type: ignore[misc]
    """Files are kept together, and all of tests/e2e, whose lab is one on a machine: other tests go on beside it."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return "lab" if file.startswith("tests/e2e/") else file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling | None:
    """With `--dist loadscope`, in place of xdist's own."""
    return Lanes(config, log) if config.getvalue("dist") == "loadscope" else None
