"""bugs.yaml is whole and true, and docs/explanation/historic-bugs.md is what it says now."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from gpuprov.capabilities import BY_NAME
from gpuprov.explain import all_checks
from gpuprov.simulate.faults import find
from tests.historic import page
from tests.historic.listed import Bug, listed
from tests.rows import run_each

ROOT = Path(__file__).parents[2]
COVERED = [pytest.param(bug, id=bug.id) for bug in listed().bugs if bug.state == "covered"]
CHECKS = {check.id for check in all_checks()}


@cache
def functions(file: str) -> dict[str, str]:
    """The source of each test function of a file of ours."""
    text = (ROOT / file).read_text(encoding="utf-8")
    found = (node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef))
    lines = text.splitlines()
    return {node.name: "\n".join(lines[node.lineno - 1 : node.end_lineno]) for node in found}


def test_every_bug_is_listed_once() -> None:
    assert [bug.id for bug in listed().bugs] == [*(str(number) for number in range(1, 46)), "+"]


def test_an_entry_says_where_and_what() -> None:
    for bug in listed().bugs:
        assert bug.what, bug.id
        assert bug.where, bug.id
        for thread in bug.where:
            assert re.fullmatch(r"[\w.-]+/[\w.-]+(#\d+)?", thread), (bug.id, thread)
        assert len(set(bug.where)) == len(bug.where), bug.id


@run_each("bug", COVERED)
def test_a_covered_bug_has_checks_fixes_and_tests_that_exist(bug: Bug) -> None:
    assert bug.caught
    assert bug.tests
    assert {entry.check for entry in bug.caught} <= CHECKS
    assert all(entry.fix for entry in bug.caught)
    sources = []
    for place in bug.tests:
        file, _, name = place.partition("::")
        assert name in functions(file), f"there is no test {place}"
        sources.append(functions(file)[name])
    fast = "\n".join(source for source in sources if f'"{bug.id}"' in source)
    assert fast, f"no test of bug {bug.id} plants it on facts"
    for entry in bug.caught:
        assert f'"{entry.check}"' in fast, f"no test plants bug {bug.id} for {entry.check}"


def test_what_is_still_to_come_is_named() -> None:
    for bug in listed().bugs:
        if bug.state == "later":
            assert bug.needs, f"bug {bug.id} comes later: it names the capability it needs"
            assert bug.caught == () == bug.tests, bug.id
        if bug.state == "not ours":
            assert bug.why, bug.id
        if bug.needs:
            assert bug.needs in listed().later, f"needs: {bug.needs}; allowed: {', '.join(listed().later)}"
            assert bug.needs not in BY_NAME, f"gpuprov has {bug.needs} now: cover bug {bug.id}, and take `needs` out"


def test_a_fault_of_simulated_hosts_is_caught_by_a_check_of_the_bug() -> None:
    for bug in listed().bugs:
        for name in bug.faults:
            fault = find(name)
            if bug.state == "covered":
                assert fault.caught_by in {entry.check for entry in bug.caught}, (bug.id, fault)


def test_every_test_of_this_folder_is_of_a_listed_bug() -> None:
    known = {place for bug in listed().bugs for place in bug.tests}
    for file in sorted(Path(__file__).parent.glob("test_*.py")):
        if file.name not in ("test_list.py", "test_reboot.py", "test_unattended.py"):
            named = f"tests/historic/{file.name}"
            for name in functions(named):
                if name.startswith("test_"):
                    assert f"{named}::{name}" in known, f"{named}::{name} is in no entry of bugs.yaml"


def test_what_is_still_to_come_is_waited_for() -> None:
    assert {bug.needs for bug in listed().bugs} - {""} == set(listed().later)


def test_the_page_is_up_to_date() -> None:
    stale = f"{page.PAGE.name} is stale: python -m tests.historic.page"
    assert page.PAGE.read_text(encoding="utf-8") == page.text(), stale
