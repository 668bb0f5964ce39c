"""A fix whose value only the user knows stands in no block and no list: it cannot be typed."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import inspect as shape

from gpuprov.spec.fixes import Unknown, explain, fix_for
from gpuprov.spec.model import GpuSpec


@pytest.mark.parametrize("kind", [GpuSpec, tuple[str, ...]])
def test_a_number_that_was_a_word_makes_no_block_and_no_list(kind: Any) -> None:
    assert fix_for(1.5, shape.type_info(kind)) is None
    assert "write" not in explain(1.5, shape.type_info(kind))


def test_by_itself_it_is_told() -> None:
    fix = fix_for(1.5, shape.type_info(str))
    assert fix
    assert fix.value is Unknown
    assert fix.words == "quote it as it was written: YAML read a number"
