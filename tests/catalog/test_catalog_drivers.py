"""Driver versions, end of life, kernel modules, refusals."""

from __future__ import annotations

from datetime import date

import pytest

from gpuprov.catalog import (
    Flavour,
    Gpu,
    Version,
    choose_kernel_modules,
    derive_branch,
    end_of_life,
    explain_refusal,
    find_gpu,
)
from gpuprov.core.errors import GpuprovError
from tests.rows import run_each


def gpu(key: str) -> Gpu:
    found = find_gpu(key)
    assert found
    return found


def test_versions_are_ordered_as_numbers() -> None:
    texts = ["450.80.02", "535", "535.98", "535.104.05", "535.261.03", "575.64", "575.64.03", "580.65.06", "1000.1"]
    assert sorted(sorted(texts), key=Version.parse) == texts
    assert Version.parse("3:535.261.03-1") == Version.parse("535.261.03")
    assert Version.parse("535.216.03-2~bpo12+1") == Version.parse("535.216.03")
    assert derive_branch("535.261.03") == derive_branch("535") == "535"
    with pytest.raises(GpuprovError, match="latest"):
        derive_branch("latest")
    with pytest.raises(GpuprovError, match="is not a driver version"):
        Version.parse("5" * 4301)  # more digits than int() takes


@run_each(
    ("key", "branch", "flavour"),
    [
        ("V100-SXM2", "535", "proprietary"),
        ("V100-SXM2", "580", "proprietary"),
        ("T4", "470", "proprietary"),
        ("T4", "535", "proprietary"),
        ("T4", "580", "open"),
        ("H100-SXM5-80GB", "535.261.03", "proprietary"),
        ("H100-SXM5-80GB", "560", "open"),
        ("H100-SXM5-80GB", "580", "open"),
        ("B200", "570", "open"),
        ("GH200-96GB", "550", "open"),
        ("RTX-PRO-6000-SE", "580", "open"),
    ],
)
def test_kernel_modules_for(key: str, branch: str, flavour: Flavour) -> None:
    assert choose_kernel_modules(gpu(key), branch) == flavour


@run_each(
    ("key", "branch", "flavour", "because"),
    [
        ("V100-SXM2", "535", "open", "GSP"),
        ("V100-SXM2", "590", "proprietary", "580 is the last"),
        ("V100-PCIE", "595.45.04", "open", "580 is the last"),
        ("T4", "510", "open", "515 is the first"),
        ("T4", "620", "proprietary", "open only since 620"),
        ("A100-SXM4-80GB", "440", "proprietary", "450"),
        ("H100-SXM5-80GB", "470", "proprietary", "525 or newer (inferred)"),
        ("H200-SXM", "535.261.03", "proprietary", "550 or newer (inferred)"),
        ("B200", "550", "open", "570 or newer"),
        ("B200", "580", "proprietary", "open kernel modules only"),
        ("GH200-96GB", "550", "proprietary", "open kernel modules only"),
        ("B300", "570", "open", "580 or newer"),
    ],
)
def test_refusal(key: str, branch: str, flavour: Flavour, because: str) -> None:
    reason = explain_refusal(gpu(key), branch, flavour)
    assert reason
    assert because in reason


@run_each(
    ("key", "branch", "flavour"),
    [
        ("V100-SXM2", "580", "proprietary"),
        ("T4", "595", "open"),
        ("T4", "470", "proprietary"),
        ("A100-SXM4-80GB", "535", "open"),
        ("H100-SXM5-80GB", "535.261.03", "open"),
        ("H100-SXM5-80GB", "580", "proprietary"),
        ("B200", "570.133.20", "open"),
        ("GB300", "595", "open"),
    ],
)
def test_no_refusal(key: str, branch: str, flavour: Flavour) -> None:
    assert explain_refusal(gpu(key), branch, flavour) is None


def test_what_is_chosen_is_never_refused_for_its_flavour() -> None:
    for key in ("V100-SXM2", "T4", "A100-SXM4-80GB", "H100-SXM5-80GB", "B200"):
        model = gpu(key)
        for branch in ("580",):
            assert explain_refusal(model, branch, choose_kernel_modules(model, branch)) is None


def test_end_of_life() -> None:
    assert end_of_life("535", date(2026, 6, 30)).ended is False
    assert end_of_life("535", date(2026, 7, 1)).ended is True
    assert end_of_life("580.65.06", date(2026, 11, 21)) == (
        False,
        "2028-06",
        "support of branch 580 ends 2028-06 (documents of August 2025 said 2028-08)",
        "confirmed",
    )
    assert end_of_life("470").ended is True
    assert end_of_life("590").confidence == "inferred"
    assert end_of_life("615").ended is None
    assert end_of_life("999").ended is None
