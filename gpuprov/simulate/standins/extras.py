"""Further packages that simulated hosts' repositories offer: tables `EXTRAS` in modules `extras_*.py` beside this one.

An entry gives one package in one version, for the deb and the rpm form alike; what differs stands in `deb` and `rpm`. Placeholders in
relations and paths: `{version}` is the full version in its form, `{libdir}` the folder of libraries. Files that are programs are
scripts which say that they are stand-ins.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from gpuprov.simulate.distributions import Distribution, Repository
from gpuprov.simulate.parts.base import File
from gpuprov.simulate.standins.model import Standin

Form = Literal["deb", "rpm"]
LIBDIR: dict[Form, str] = {"deb": "/usr/lib/x86_64-linux-gnu", "rpm": "/usr/lib64"}


@dataclass(frozen=True)
class Packaged:
    """What holds for one form: the full version, and relations as that form writes them; `{version}` is the full version."""

    version: str
    name: str = ""
    requires: tuple[str, ...] = ()
    provides: tuple[str, ...] = ()
    conflicts: tuple[str, ...] = ()
    scripts: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Extra:
    """One package. `files` by path, or a function of the form that gives them. `repository`: the one that offers it.

    `distributions`: keys of the simulated distributions whose repository has it (empty: all).
    """

    name: str
    summary: str
    deb: Packaged | None = None
    rpm: Packaged | None = None
    files: Mapping[str, File] | Callable[[Form], Mapping[str, File]] = field(default_factory=dict)
    repository: Repository = "nvidia"
    epoch: int = 0
    distributions: tuple[str, ...] = ()


def extras(distribution: Distribution, repository: Repository) -> list[Standin]:
    """Those that a repository of a distribution offers."""
    form: Form = "rpm" if distribution.rpms else "deb"
    made = []
    for extra in _all():
        told = extra.rpm if form == "rpm" else extra.deb
        if told is None or extra.repository != repository:
            continue
        if extra.distributions and distribution.key not in extra.distributions:
            continue
        made.append(_standin(extra, told, form, distribution))
    return made


def _all() -> tuple[Extra, ...]:
    """Every module of the package whose name begins with `extras_` has a table `EXTRAS`."""
    found = sorted(module.name for module in pkgutil.iter_modules([str(Path(__file__).parent)]))
    modules = [
        importlib.import_module(f"gpuprov.simulate.standins.{name}") for name in found if name.startswith("extras_")
    ]
    return tuple(extra for module in modules for extra in module.EXTRAS)


def _standin(extra: Extra, told: Packaged, form: Form, distribution: Distribution) -> Standin:
    version = told.version.replace("{tag}", distribution.tag)
    places = {"version": version, "libdir": LIBDIR[form]}
    files = extra.files(form) if callable(extra.files) else extra.files

    def filled(values: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(value.format(**places) for value in values)

    return Standin(
        name=told.name or extra.name, version=version, summary=extra.summary, epoch=extra.epoch,
        files={path.format(**places): file for path, file in files.items()}, requires=filled(told.requires),
        provides=filled(told.provides), conflicts=filled(told.conflicts), scripts=told.scripts,
    )  # fmt: skip
