"""One further package of a simulated host's repositories, in one version, for the deb and the rpm form alike.

Differences between the forms are in `deb` and `rpm`. Placeholders in relations and paths: `{version}` is the full
version in its form, `{libdir}` the folder of libraries. Files that are programs are scripts that print that they are
stand-ins.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from gpuprov.simulate.distributions import Repository
from gpuprov.simulate.parts.base import File

Form = Literal["deb", "rpm"]
LIBDIR: dict[Form, str] = {"deb": "/usr/lib/x86_64-linux-gnu", "rpm": "/usr/lib64"}


@dataclass(frozen=True)
class Packaged:
    """Data of one form: the full version, and relations in its syntax; `{version}` is the full version."""

    version: str
    name: str = ""
    requires: tuple[str, ...] = ()
    provides: tuple[str, ...] = ()
    conflicts: tuple[str, ...] = ()
    scripts: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Extra:
    """One package. `files` by path, or a function of the form that returns them."""

    name: str
    summary: str
    deb: Packaged | None = None
    rpm: Packaged | None = None
    files: Mapping[str, File] | Callable[[Form], Mapping[str, File]] = field(default_factory=dict)
    # The one that offers it.
    repository: Repository = "nvidia"
    epoch: int = 0
    # Keys of the simulated distributions whose repository has it (empty: all).
    distributions: tuple[str, ...] = ()
