"""Tables of rows that one test runs by itself: pytest takes longer to set up a test than most rows take."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from typing import Any

import pytest


def run_each(
    names: str | Sequence[str], rows: Iterable[Any], ids: Iterable[object] | Callable[[Any], object] | None = None
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Run the test once for each row, to the last one, and name those that fail: `pytest.mark.parametrize` as a single
    test. Each row has a `tmp_path` of its own. It is for tests that leave nothing else behind; the others, and rows
    with marks, are pytest's own."""
    words = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    table = [_read_row(words, row) for row in rows]
    assert table, "a table without rows tests nothing"
    labels = _label_rows(table, ids)

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        @wraps(test)
        def run(**others: Any) -> None:
            failed: list[Exception] = []
            skipped: list[BaseException] = []
            for (_, values), label in zip(table, labels, strict=True):
                try:
                    test(**dict(zip(words, values, strict=True)), **_give_folder(others, label))
                except pytest.skip.Exception as error:
                    skipped.append(error)
                except (Exception, pytest.fail.Exception) as error:
                    failed.append(_name_row(error, label))
            if len(failed) > 1:
                raise ExceptionGroup(f"{len(failed)} of {len(table)} rows", failed)
            if failed or len(skipped) == len(table):
                raise [*failed, *skipped][0]

        _take_away(run, words)
        return run

    return decorate


def _give_folder(others: dict[str, Any], label: str) -> dict[str, Any]:
    """Return the fixtures of a test, with a new folder for this row in place of `tmp_path`."""
    if "tmp_path" not in others:
        return others
    folder = others["tmp_path"] / label.partition(":")[0].replace(" ", "")
    folder.mkdir()
    return {**others, "tmp_path": folder}


def _read_row(words: Sequence[str], row: Any) -> tuple[str | None, Sequence[Any]]:
    """Return a row's own label, and its values."""
    if hasattr(row, "marks"):
        assert not row.marks, f"a row with marks is one for pytest.mark.parametrize: {row}"
        return row.id, row.values
    return None, (row,) if len(words) == 1 else row


def _label_rows(
    table: Sequence[tuple[str | None, Sequence[Any]]], ids: Iterable[object] | Callable[[Any], object] | None
) -> list[str]:
    if callable(ids):
        given: list[object] = ["-".join(str(ids(value)) for value in values) for _, values in table]
    else:
        given = list(ids) if ids is not None else [None] * len(table)
    return [
        f"row {number}: {own or label or ', '.join(repr(value) for value in values)[:300]}"
        for number, ((own, values), label) in enumerate(zip(table, given, strict=True))
    ]


def _name_row(error: BaseException, label: str) -> Exception:
    """Return the error with the row that it is of."""
    if not isinstance(error, Exception):  # pytest.fail's is none
        error = AssertionError(str(error)).with_traceback(error.__traceback__)
    error.add_note(label)
    return error


def _take_away(run: Callable[..., None], words: Sequence[str]) -> None:
    """Leave pytest the parameters that the rows do not have."""
    known = inspect.signature(run)
    assert set(words) <= set(known.parameters), f"the test takes no {sorted(set(words) - set(known.parameters))}"
    left = [one for name, one in known.parameters.items() if name not in words]
    run.__signature__ = known.replace(parameters=left)  # type: ignore[attr-defined]
    del run.__wrapped__  # type: ignore[attr-defined]
