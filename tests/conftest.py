"""What several test folders share."""

from __future__ import annotations

import pytest


@pytest.hookimpl(tryfirst=True)  # before xdist, which asks for the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """With `--dist loadgroup`, real hosts are used in two lanes: the lab of tests/e2e, one on a machine, and all others."""
    for item in items:
        if item.get_closest_marker("e2e"):
            folder, file = item.path.parent.name, item.path.stem
            item.add_marker(pytest.mark.xdist_group("lab" if folder == "e2e" else file))
