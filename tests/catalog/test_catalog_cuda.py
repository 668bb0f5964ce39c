"""Which driver runs which CUDA."""

from __future__ import annotations

import pytest

from gpuprov.catalog import check_support, cuda, find_max_cuda
from gpuprov.core.errors import GpuprovError
from tests.rows import run_each


@run_each(
    ("driver", "cuda", "runs", "full"),
    [
        ("580.65.06", "13.0", True, True),
        ("580.65.06", "12.4", True, True),
        ("580.65.06", "11.8", True, True),
        ("580.65.06", "13.2", True, False),
        ("535.261.03", "12.8", True, False),
        ("535.261.03", "13.0", False, False),
        ("535.261.03", "12.2.2", True, True),
        ("525.53", "12.0", False, False),
        ("525.60.13", "12.9.1", True, False),
        ("525", "12.0", None, None),
        ("580", "13.0", None, None),
        ("580", "12.6", True, True),
        ("570", "13", False, False),
        ("440.33", "10.2", True, True),
        ("418.39", "10.2", False, False),
        ("610.43.02", "13.3", True, True),
        ("615.71.09", "14.0", None, None),
        ("580.65.06", "12.77", True, None),
    ],
)
def test_supports(driver: str, cuda: str, runs: bool | None, full: bool | None) -> None:
    answer = check_support(driver, cuda)
    assert (answer.runs, answer.full) == (runs, full)
    assert answer.reason


def test_cuda_details() -> None:
    assert check_support("610.43.02", "13.3").confidence == "unconfirmed"
    assert find_max_cuda("580") == "13.0"
    assert find_max_cuda("535.261.03") == "12.2"
    assert find_max_cuda("620") is None
    assert find_max_cuda("999") is None
    with pytest.raises(GpuprovError, match="CUDA"):
        check_support("580.65.06", "twelve")


def test_floors_of_everything_that_is_known() -> None:
    floors = cuda.list_floors()
    assert (floors["12"], floors["12.8"], floors["12.8.1"], floors["13.0"]) == ("525.60.13",) * 3 + ("580.65.06",)
    assert all(floors.values())
    assert "12.7" not in floors
