"""A test that runs a table of rows by itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rows import run_each


def test_each_row_that_fails_is_named_and_those_after_it_run() -> None:
    ran = []

    @run_each("one, other", [(1, 1), (1, 2), pytest.param(3, 3, id="three"), pytest.param(3, 4, id="four")])
    def test(one: int, other: int) -> None:
        ran.append(other)
        assert one == other

    with pytest.raises(ExceptionGroup, match="2 of 4 rows") as raised:
        test()
    assert ran == [1, 2, 3, 4]
    assert [error.__notes__ for error in raised.value.exceptions] == [["row 1: 1, 2"], ["row 3: four"]]


def test_a_row_that_fails_alone_is_raised_as_it_is() -> None:
    @run_each("one", [(1,), (2,)], ids=lambda one: f"of {one[0]}")
    @run_each("other", [1, 2, 3])
    def test(one: tuple[int], other: int) -> None:
        if (one, other) == ((2,), 3):
            pytest.fail("this one")

    with pytest.raises(AssertionError, match="this one") as raised:
        test()
    assert raised.value.__notes__ == ["row 2: 3", "row 1: of 2"]


def test_it_is_skipped_where_every_row_is() -> None:
    ran = []

    @run_each("one", [1, 2])
    def test(one: int) -> None:
        if one not in ran:
            ran.append(one)
            pytest.skip("the first time")

    with pytest.raises(pytest.skip.Exception):
        test()
    test()
    assert ran == [1, 2]


def test_a_table_that_tests_nothing_is_refused() -> None:
    with pytest.raises(AssertionError, match="without rows"):
        run_each("one", [])
    with pytest.raises(AssertionError, match="takes no"):
        run_each("one", [1])(lambda other: None)
    with pytest.raises(AssertionError, match="a row with marks"):
        run_each("one", [pytest.param(1, marks=pytest.mark.slow)])


@run_each("name", ["first", "second"])
def test_each_row_has_a_folder_of_its_own(name: str, tmp_path: Path) -> None:
    assert list(tmp_path.iterdir()) == []
    (tmp_path / name).touch()
