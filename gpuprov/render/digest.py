"""What a capability's role was applied with, as the receipt on the host remembers it: equal digests mean that applying again changes
nothing. It covers what can change the role's result, and no more; in three parts, so that `plan` says which is another.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

import msgspec

from gpuprov.capabilities import BY_NAME
from gpuprov.catalog.gpus import find_gpu
from gpuprov.render.reached import Reached, hash_of, of_roles
from gpuprov.spec.model import HostSpec

SCHEME = "2"
"""Of this way to make one. What an earlier gpuprov wrote (sha256 over everything) has none, and says nothing about the present."""
PROVENANCE = frozenset({"source", "sources", "confidence", "notes"})
"""What a fact of the catalogue has beside what it says."""
PCI_ID = re.compile(r"10de:[0-9a-f]{4}|0x[0-9A-F]{4}10DE")


class Digest(NamedTuple):
    """`asked`: variables. `tables`: of the catalogue. `role`: tasks, files and Python. Each is a word of 20 hexadecimal digits."""

    asked: str
    tables: str
    role: str

    def __str__(self) -> str:
        return ":".join((SCHEME, *self))


WORDS = Digest("what is asked for", "what gpuprov knows", "gpuprov's role")


def read(text: str) -> Digest | None:
    """A digest of a receipt; None for one of another scheme."""
    scheme, *parts = text.split(":")
    return Digest(*parts) if scheme == SCHEME and len(parts) == len(Digest._fields) else None


def difference(before: Digest, now: Digest) -> str:
    """What is another, in words; empty where nothing is."""
    changed = [word for word, one, other in zip(WORDS, before, now, strict=True) if one != other]
    return " and ".join([", ".join(changed[:-1]), changed[-1]] if changed[1:] else changed)


def of_host(spec: HostSpec, variables: Mapping[str, Any]) -> dict[str, Digest]:
    """By capability. `variables` are all of the host's."""
    made = {}
    for name, reach in of_roles(spec.capabilities).items():
        made[name] = Digest(
            hash_of(asked(name, spec, variables, reach)), _hash_of_tables(name, spec, reach), reach.text
        )
    return made


_tables: dict[tuple[str, int], tuple[Mapping[str, object], object, str]] = {}
"""What was hashed, and for whom: hosts of one merged spec share its capabilities."""
MOST_TABLES = 4096


def _hash_of_tables(name: str, spec: HostSpec, reach: Reached) -> str:
    """Once for all hosts that share a spec: the tables of a driver take tens of milliseconds."""
    key = (name, id(spec.capabilities))
    known = _tables.get(key)
    if known is None or known[0] is not spec.capabilities or known[1] != spec.gpu:
        if len(_tables) >= MOST_TABLES:
            _tables.clear()
        known = _tables[key] = (spec.capabilities, spec.gpu, hash_of(tables(name, spec, reach)))
    return known[2]


def asked(name: str, spec: HostSpec, variables: Mapping[str, Any], reach: Reached) -> dict[str, object]:
    """The role's own variables, and those of others that it names, or that what is worked out for it reads; which capabilities it has
    beside it, as far as it asks; what the site set for it."""
    own = {key: value for key, value in variables.items() if key.startswith(f"{name}_") or key in reach.words}
    asks = {"host_capabilities", "gpuprov_capabilities"} & reach.words
    beside = {other: other in spec.capabilities for other in BY_NAME if asks and other in reach.words and other != name}
    site = {key: value for key, value in spec.site.items() if key.startswith(f"{name}_")}
    own = {key: value for key, value in own.items() if key not in ("gpuprov_capabilities", "gpuprov_digests")}
    worked_out = BY_NAME[name].desired
    own |= {key: variables.get(key) for key in (worked_out.reads if worked_out else ())}
    return {"variables": own, "beside": beside, "site": site}


def tables(name: str, spec: HostSpec, reach: Reached) -> dict[str, object]:
    """The catalogue's tables that the role names; of those by PCI id the rows of the GPU that the spec names, if it names one. And
    what of the catalogue is decided by where something is worked out for the role."""
    known = catalog()
    model = find_gpu(spec.gpu.model) if spec.gpu else None
    mine = {entry.id for entry in model.pci_ids} if model else None
    named = {table: _rows(known[table], mine) for table in reach.tables if table in known}
    worked_out = BY_NAME[name].desired
    return {**named, "facts": _bare(msgspec.to_builtins(worked_out.facts(spec))) if worked_out else None}


def _bare(facts: object) -> object:
    """Without where it is known from: nothing is decided by that."""
    if isinstance(facts, dict):
        return {key: _bare(value) for key, value in facts.items() if key not in PROVENANCE}
    return [_bare(value) for value in facts] if isinstance(facts, list | tuple) else facts


def _rows(table: object, mine: set[str] | None) -> object:
    if mine is None or not isinstance(table, Mapping):
        return table
    if table and all(PCI_ID.fullmatch(str(key)) for key in table):
        return {key: value for key, value in table.items() if _plain(str(key)) in mine}
    return {key: _rows(value, mine) for key, value in table.items()}


def _plain(identifier: str) -> str:
    """`10de:2330`, also of `0x233010DE`, as NVML writes it."""
    return f"10de:{identifier[2:6].lower()}" if identifier.startswith("0x") else identifier


@cache
def catalog() -> dict[str, object]:
    """The tables that roles decide by, of all capabilities, by name."""
    found: dict[str, object] = {}
    for capability in BY_NAME.values():
        found |= capability.tables()
    return dict(sorted(found.items()))
