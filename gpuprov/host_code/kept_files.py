"""A package that a checkpoint keeps, and its file."""

from __future__ import annotations

import os
import shutil
from typing import NamedTuple


class Kept(NamedTuple):
    """A package at an exact version, its file name, and its size in bytes; 0 if unknown."""

    name: str
    version: str
    file: str
    size: int = 0


def make_file_name(name: str, version: str, architecture: str, end: str) -> str:
    """Return the name of a package's file."""
    return f"{name}_{version.replace(':', '%3a')}_{architecture}.{end}"


def is_of(file: str, name: str, version: str) -> bool:
    """Return whether a file is this package's."""
    return file.startswith(f"{name}_{version.replace(':', '%3a')}_")


def copy_file(source: str, place: str) -> None:
    """Copy a file; the copy is complete or absent."""
    shutil.copyfile(source, f"{place}.part")
    os.replace(f"{place}.part", place)
