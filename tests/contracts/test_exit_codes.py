"""Exit codes are decided in gpuprov/core/errors.py alone: commands say what came of each host, and the worst of it is
the code."""

from __future__ import annotations

import ast

from gpuprov.core.errors import CODES, EXIT_CODES, GpuprovError, Outcome, UnreachableError, choose_code
from tests.contracts.test_imports import FILES, PACKAGE, dotted, find_nodes, shown
from tests.rows import run_each

FUNCTIONS: tuple[type[ast.FunctionDef | ast.AsyncFunctionDef], ...] = (ast.FunctionDef, ast.AsyncFunctionDef)
OTHER_ROOMS = ("host_code", "simulate", "capabilities", "catalog", "facts", "hardware")
"""Programs that run on hosts, and rooms that return numbers of things."""
NUMBERS = {
    "cli/test.py": "pytest's exit codes in those of gpuprov",
    "plan/child.py": "that of a process of Ansible, which plan reads",
    "init/questions.py": "NVSwitches of a board",
    "init/slurm.py": "GPUs of a node",
}


def decided(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[int]:
    """Return the exit codes, other than 0, that a function returns or ends the process with as plain numbers."""
    returned = [node.value for node in ast.walk(function) if isinstance(node, ast.Return) and node.value]
    ended = [
        node.args[0]
        for node in ast.walk(function)
        if isinstance(node, ast.Call) and dotted(node.func) in ("sys.exit", "SystemExit") and node.args
    ]
    numbers = [leaf for value in (*returned, *ended) for leaf in leaves(value)]
    return [number for number in numbers if number in set(CODES.values()) - {0}]


def leaves(value: ast.expr) -> list[int]:
    if isinstance(value, ast.IfExp):
        return [*leaves(value.body), *leaves(value.orelse)]
    if isinstance(value, ast.BoolOp):
        return [leaf for part in value.values for leaf in leaves(part)]
    return [value.value] if isinstance(value, ast.Constant) and type(value.value) is int else []


def test_nothing_else_decides_an_exit_code() -> None:
    found = {
        shown(path): codes
        for path in FILES
        if path.relative_to(PACKAGE).parts[0] not in OTHER_ROOMS
        for kind in FUNCTIONS
        for node in find_nodes(path, kind)
        if node.returns is not None and ast.unparse(node.returns) in ("int", "Code", "None")
        if (codes := decided(node))
    }
    assert {path: codes for path, codes in found.items() if path not in NUMBERS} == {}


def test_each_code_has_a_meaning() -> None:
    assert set(CODES.values()) <= set(EXIT_CODES)
    assert [error.exit_code for error in (GpuprovError, UnreachableError)] == [2, 4]


@run_each(
    ("outcomes", "code"),
    [
        ((), 1),
        (("ok",), 0),
        (("nothing asked",), 1),
        (("ok", "nothing asked"), 0),
        (("ok", "not proven"), 1),
        (("ok", "differs"), 1),
        (("differs", "unusable"), 2),
        (("unusable", "locked"), 5),
        (("locked", "unreachable"), 4),
        (("unreachable", "failed"), 3),
        (("failed", "interrupted"), 130),
    ],
)
def test_the_worst_outcome_counts(outcomes: tuple[Outcome, ...], code: int) -> None:
    assert (choose_code(outcomes), choose_code(reversed(outcomes))) == (code, code)
