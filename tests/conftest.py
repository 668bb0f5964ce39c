"""Fixtures and hooks shared by several test folders."""

from __future__ import annotations

import gc
import importlib
import os
import re
import sys
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

import gpuprov
from gpuprov.catalog import reader, symptoms
from gpuprov.catalog.drivers.data import read_drivers_file
from gpuprov.core import sanitize
from gpuprov.core.errors import GpuprovError
from tests.documents import READER

# Python starts hundreds of times in the tests; where this is set, as in many container images, each compiles gpuprov
# again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

IMAGES = re.compile(
    r"\b(?:lab\.(?:machine|simulated)\(|(?:first: First|moved: Moved|(?:newest|older): str|versions: tuple)\b)"
)
"""What makes a test of tests/e2e use the images that the lab makes of its hosts."""
UNASKED = re.compile(r"^pytestmark = \[?\s*pytest\.mark\.(?:e2e|install)\b", re.MULTILINE)
"""What makes all tests of a file such as only `-m` asks for."""
OFF_BY_DEFAULT = "not e2e and not install"
"""`-m` of pyproject.toml."""

yaml.safe_load, yaml.safe_load_all = (partial(load, Loader=READER) for load in (yaml.load, yaml.load_all))
"""Tests read documents with libyaml, where it is: the same ones in a tenth of the time."""
gc.set_threshold(50_000, 20, 100)
"""A quarter of the time for collection would be the garbage collector's, which finds next to nothing."""


class Lanes(LoadScopeScheduling):  # type: ignore[misc]
    """A scheduler that keeps the tests of a file together, and all tests that use the lab's images, which take minutes
    to make. Files begin in the order of the collection."""

    def __init__(self, config: pytest.Config, log: Any) -> None:
        super().__init__(config, log)
        config.option.loadscopereorder = False

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return "images" if _uses_images(file) else file


@cache
def _uses_images(file: str) -> bool:
    return file.startswith("tests/e2e/") and IMAGES.search(Path(file).read_text(encoding="utf-8")) is not None


def pytest_configure(config: pytest.Config) -> None:
    """End the run at a mistake in a file of the catalogue: it would make hundreds of tests fail with the same
    message."""
    if not hasattr(config, "workerinput"):
        try:
            load_catalogue()
        except GpuprovError as error:
            pytest.exit(str(error), returncode=pytest.ExitCode.USAGE_ERROR)


def load_catalogue() -> None:
    """Read every file of the catalogue."""
    for path in sorted(Path(reader.__file__).parent.rglob("*.py")):
        for name, kind in re.findall(r'\bload(?:\(|, )"(\w+)", (\w+)\)', path.read_text(encoding="utf-8")):
            parts = path.relative_to(Path(gpuprov.__file__).parents[1]).with_suffix("").parts
            reader.load(name, getattr(importlib.import_module(".".join(parts).removesuffix(".__init__")), kind))
    for name in symptoms.FILES:
        reader.load(name, symptoms.SymptomsFile)
    read_drivers_file()  # whose lists name groups of distributions


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out files whose tests would all be deselected, a fifth of all, so that nobody waits for their imports."""
    if config.getoption("markexpr") != OFF_BY_DEFAULT or not collection_path.name.startswith("test_"):
        return None
    named = any(
        str(collection_path) == str(config.invocation_params.dir / word.partition("::")[0]) for word in config.args
    )
    return None if named or not UNASKED.search(collection_path.read_text(encoding="utf-8")) else True


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the tests of the lab's images first, then those of other simulated hosts: the longest, which would else leave
    a worker alone at the end."""
    items.sort(key=lambda item: (not _uses_images(item.nodeid.partition("::")[0]), not item.get_closest_marker("e2e")))


def pytest_collection_finish() -> None:
    """Freeze imported and collected objects, which stay to the end, so that the garbage collector need not scan them
    repeatedly."""
    gc.collect()
    gc.freeze()


def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Forget the secrets of a file's inventories: each would be looked for in every text of the files after it."""
    if nextitem is None or nextitem.path != item.path:
        sanitize.reveal()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling | None:
    """Return our scheduler for `--dist loadscope`, instead of xdist's own."""
    return Lanes(config, log) if config.getvalue("dist") == "loadscope" else None
