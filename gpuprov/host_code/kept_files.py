"""A package that a checkpoint keeps, and its file; the requests to and answers of the program `checkpoints`."""

from __future__ import annotations

import os
import shutil
from typing import NamedTuple, TypedDict

from .fence import Owner, Taken


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


class Checkpoint(TypedDict, total=False):
    """The content of a checkpoint: the spec with exact versions, its digests, and the packages and their files that
    were held then."""

    schema: int
    gpuprov_version: str
    spec: object
    digests: object
    run: str
    at: str
    packages: dict[str, str]
    files: dict[str, str]


class Request(TypedDict, total=False):
    """A request: see `keep`, `begin`, `end_request` and `forget_target`."""

    action: str
    run: str
    owner: Owner
    checkpoint: Checkpoint
    broken: list[str]
    stale: str
    over: bool
    arrived: str


class Answer(TypedDict, total=False):
    """The answer to one."""

    problem: str
    kept: str
    left_out: list[str]
    locked: Taken
    offered: list[str]
    missing: list[str]
    unasked: str


class Target(TypedDict, total=False):
    """The checkpoint to which run `of` goes back, and `before`, an earlier target."""

    run: str
    of: str
    before: str
