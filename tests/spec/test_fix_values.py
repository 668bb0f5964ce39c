"""A fix whose value only the user knows stands in no block and no list: it cannot be typed."""

from __future__ import annotations

from typing import Any, Literal

import pytest
from msgspec import inspect as shape

from gpuprov.capabilities.nouveau import Nouveau
from gpuprov.capabilities.persistence.fragment import Persistence
from gpuprov.capabilities.rdma.fragment import FabricName
from gpuprov.spec.fixes import explain, fix_for
from gpuprov.spec.model import GpuSpec
from gpuprov.spec.text_fixes import Unknown
from tests.rows import run_each


@pytest.mark.parametrize("kind", [GpuSpec, tuple[str, ...]])
def test_a_number_that_was_a_word_makes_no_block_and_no_list(kind: Any) -> None:
    assert fix_for(1.5, shape.type_info(kind)) is None
    assert "write" not in explain(1.5, shape.type_info(kind))


def test_by_itself_it_is_told() -> None:
    fix = fix_for(1.5, shape.type_info(str))
    assert fix
    assert fix.value is Unknown
    assert fix.words == "quote it as it was written: YAML read a number"


@run_each(
    ("value", "kind", "fixed", "words"),
    [
        ("300W", int, 300, "write 300 (the unit is known)"),
        ("1410 MHz", int, 1410, "write 1410 (the unit is known)"),
        ("300", int, 300, "write 300 without quotes"),
        ("{}", Persistence, {}, "write {} without quotes"),
        ("0-3", tuple[int | str, ...], [0, 1, 2, 3], "write [0, 1, 2, 3]"),
        ("enabled", Persistence, {}, "write {} for the defaults"),
        (
            "H100-SXM5-80GB:8",
            GpuSpec,
            {"model": "H100-SXM5-80GB", "count": 8},
            "write {model: H100-SXM5-80GB, count: 8}",
        ),
        ("ib", FabricName, "infiniband", "write infiniband"),
        ("MLNX_OFED", Literal["auto", "doca-ofed"], "doca-ofed", "write doca-ofed"),
        ("pt", Literal["keep", "passthrough"], "passthrough", "write passthrough"),
        ("kubelet.service", Literal["k3s", "kubelet"], "kubelet", 'did you mean "kubelet"?'),
        (-1, int | Literal["unlimited"], "unlimited", "write unlimited"),
        ("1G", dict[Literal["2M", "1G"], int], Unknown, 'write it as a key: {"1G": ...}'),
    ],
)
def test_units_quotes_and_ranges_around_a_value(value: object, kind: Any, fixed: object, words: str) -> None:
    fix = fix_for(value, shape.type_info(kind))
    assert fix
    assert (fix.value, fix.words) == (fixed, words)


def test_a_size_is_no_number_with_a_unit() -> None:
    assert fix_for("64G", shape.type_info(int)) is None, "the field counts KiB"


def test_a_word_for_off_is_no_name_in_a_block() -> None:
    assert fix_for("disabled", shape.type_info(Nouveau)) is None
