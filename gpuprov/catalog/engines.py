"""CDI file versions that releases of container engines read."""

from collections.abc import Iterable
from functools import partial
from typing import Literal

from gpuprov.catalog.reader import Fact, File, load
from gpuprov.rules.engines import number

Engine = Literal["docker", "containerd", "crio", "podman", "k3s", "rke2"]


class Reads(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The newest version of a CDI file that an engine reads, from a release on."""

    engine: Engine
    since: str
    cdi: str


class Known(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The newest examined release of an engine."""

    engine: Engine
    version: str


class Field(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The version of a CDI file that a field needs."""

    field: str
    cdi: str


class EnginesFile(File, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """data/engines.yaml"""

    reads: tuple[Reads, ...]
    known: tuple[Known, ...]
    fields: tuple[Field, ...]


# Engines whose release is that of another.
BUNDLED = {"microk8s": "containerd"}
read_engines_file = partial(load, "engines", EnginesFile)


def find_newest_cdi(engine: str, version: str) -> str:
    """Return the newest version of a CDI file that this release reads; "" if it reads none, or its version is
    unknown."""
    own = BUNDLED.get(engine, engine)
    rows = [row for row in read_engines_file().reads if row.engine == own and number(row.since) <= number(version)]
    return rows[-1].cdi if rows else ""


def find_first_reader(engine: str, cdi: str) -> str:
    """Return the first release of an engine that reads this version of a CDI file; "" if unknown."""
    rows, own = read_engines_file().reads, BUNDLED.get(engine, engine)
    return next((row.since for row in rows if row.engine == own and number(row.cdi) >= number(cdi)), "")


def find_newest_known(engine: str) -> str:
    """Return the newest examined release of an engine."""
    own = BUNDLED.get(engine, engine)
    return next(row.version for row in read_engines_file().known if row.engine == own)


def derive_needed_cdi(version: str, fields: Iterable[str]) -> str:
    """Return the version of a CDI file that its reader must know, by its declared version and its fields; "" if it
    declares none."""
    by_field = [row.cdi for row in read_engines_file().fields if row.field in set(fields)]
    return max([version, *by_field], key=number) if version else ""
