"""`gpuprov check --json`: one document. docs/reference/check.schema.json is made from these types."""

from collections.abc import Sequence
from typing import Annotated, Literal

import msgspec

from gpuprov import __version__
from gpuprov.core.errors import CODES, Code
from gpuprov.core.fill import fill
from gpuprov.core.safe_parse import Tree, format_document
from gpuprov.fleet.specs import Fleet
from gpuprov.spec.problem import Problem, format_path

FORMAT = 1


class Host(msgspec.Struct, kw_only=True):
    """A host with its spec, by capability, including defaults and other capabilities' requirements of the kernel."""

    host: str
    groups: tuple[str, ...]
    spec: dict[str, Tree]


class Row(msgspec.Struct, kw_only=True):
    """A finding. `place`: file, line and column, if known. `path`: the field. `hosts`: all that it concerns."""

    severity: Literal["error", "warning"]
    place: str
    path: str
    hosts: tuple[str, ...]
    message: str
    fix: str


class Check(msgspec.Struct, kw_only=True):
    """The document. `unmanaged`: hosts without a spec. If there are errors, it has no hosts."""

    gpuprov_check: Annotated[int, msgspec.Meta(description="Version of this format")] = FORMAT
    gpuprov: str = __version__
    valid: bool
    exit_code: Code
    hosts: tuple[Host, ...] = ()
    unmanaged: tuple[str, ...] = ()
    problems: tuple[Row, ...] = ()


def as_json(fleet: Fleet | None, problems: Sequence[Problem]) -> str:
    """Return the document as text. fleet: None if it is not valid."""
    pairs = fleet.pairs if fleet else ()
    valid = bool(fleet) and not any(spec.defects for _, spec in pairs)
    made = Check(
        valid=valid,
        exit_code=CODES["ok" if valid else "unusable"],
        hosts=tuple(
            Host(host=raw.name, groups=raw.groups, spec=_make_spec_tree(spec.capabilities)) for raw, spec in pairs
        ),
        unmanaged=fleet.unmanaged if fleet else (),
        problems=tuple(map(_make_row, problems)),
    )
    return format_document(made)


def _make_spec_tree(capabilities: Tree) -> dict[str, Tree]:
    return {name: msgspec.to_builtins(fragment) for name, fragment in capabilities.items()}


def _make_row(problem: Problem) -> Row:
    return fill(Row, problem, place=str(problem.origin or ""), path=format_path(problem.path))
