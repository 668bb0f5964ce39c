"""GPUs are found by key, name and PCI id."""

from __future__ import annotations

import pytest

from gpuprov.catalog import Gpu, by_pci_id, find_gpu, nearest_gpu, profiles_for
from gpuprov.catalog.mig import class_of


def gpu(key: str) -> Gpu:
    found = find_gpu(key)
    assert found
    return found


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("H100-SXM5-80GB", "H100-SXM5-80GB"),
        ("h100-sxm5-80gb", "H100-SXM5-80GB"),
        ("NVIDIA H100 80GB HBM3", "H100-SXM5-80GB"),
        ("NVIDIA H100", "H100-SXM5-94GB"),
        ("NVIDIA  h200 ", "H200-SXM"),
        ("Tesla T4", "T4"),
        ("Tesla V100-SXM2-16GB", "V100-SXM2"),
        ("NVIDIA GH200 480GB", "GH200-96GB"),
        ("A16", "A16/A2"),
        ("A2", "A16/A2"),
        ("A16/A2", "A16/A2"),
        ("10de:2330", "H100-SXM5-80GB"),
        ("10DE:2330", "H100-SXM5-80GB"),
        ("0x233010DE", "H100-SXM5-80GB"),
        ("0x233010DE:0x16C110DE", "H100-SXM5-80GB"),
        ("2330", "H100-SXM5-80GB"),
        ("0x2330", "H100-SXM5-80GB"),
    ],
)
def test_find_gpu(text: str, key: str) -> None:
    assert gpu(text).key == key


@pytest.mark.parametrize("text", ["", "H100", "8086:2330", "1002:2330", "0x23301002", "ffff", "10de:"])
def test_find_gpu_finds_nothing(text: str) -> None:
    assert find_gpu(text) is None
    assert by_pci_id(text) is None


def test_nearest_gpu() -> None:
    assert nearest_gpu("H100")[0] == "H100-SXM5-80GB"
    assert nearest_gpu("H100-SXM5-80")[0] == "H100-SXM5-80GB"
    assert nearest_gpu("rtx6000")[0].startswith("RTX-PRO-6000")
    assert nearest_gpu("B20O")[0] == "B200"
    assert nearest_gpu("qqqqqqq") == []


def test_profiles_for() -> None:
    names = [profile.name for profile in profiles_for(gpu("A100-SXM4-40GB"))]
    assert names == ["1g.5gb", "1g.5gb+me", "1g.10gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb"]
    assert profiles_for(gpu("L40S")) == ()
    assert profiles_for(gpu("A100-SXM-64GB")) == ()
    group = class_of(gpu("H100-SXM5-80GB"))
    assert group
    half = group.find("MIG 3g.40gb")
    assert half
    assert (half.starts, half.size, half.max_count) == ((0, 4), 4, 2)
    assert group.placement_confidence() == "confirmed"
