"""What a layout says: names of profiles, entries, and which GPU each is about."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gpuprov.host_code.mig import fit as mig_fit
from gpuprov.host_code.mig import layout as mig_layout
from gpuprov.host_code.mig.layout import (
    Entry,
    Gpu,
    Instance,
    LayoutError,
    Target,
    normalize_layout,
    parse_profile,
    select_targets,
)
from tests.rows import run_each

H100 = Gpu(0, "0000:18:00.0", "GPU-aa", "H100-SXM5-80GB", "NVIDIA H100 80GB HBM3", "0x233010DE", "0x16C110DE", True)
A30 = Gpu(1, "0000:3B:00.0", "GPU-bb", "A30", "NVIDIA A30", "0x20B710DE", "0x153210DE", True)
L4 = Gpu(2, "0000:86:00.0", "GPU-cc", "L4", "NVIDIA L4", "0x27B810DE", "0x16EE10DE", False)
HOST = (H100, A30, L4)
SEVEN = {"1g.10gb": 7}


def entry(**given: Any) -> list[Entry]:
    return normalize_layout("enabled", [given])


def parted(*entries: dict[str, Any]) -> list[Entry]:
    return normalize_layout("enabled", [], list(entries))


@run_each(
    ("text", "compute", "slices", "gigabytes", "attributes", "instance"),
    [
        ("3g.40gb", None, 3, 40, (), "3g.40gb"),
        ("MIG 1g.10gb+me", None, 1, 10, ("me",), "1g.10gb+me"),
        ("1c.3g.40gb", 1, 3, 40, (), "3g.40gb"),
        ("3c.3g.40gb", None, 3, 40, (), "3g.40gb"),
        ("1g.24gb-me", None, 1, 24, ("-me",), "1g.24gb-me"),
        ("2g.48gb+me.all", None, 2, 48, ("me.all",), "2g.48gb+me.all"),
        ("1c.2g.48gb+me,gfx", 1, 2, 48, ("gfx", "me"), "2g.48gb+gfx,me"),
    ],
)
def test_names(
    text: str, compute: int | None, slices: int, gigabytes: int, attributes: tuple[str, ...], instance: str
) -> None:
    name = parse_profile(text)
    assert name == (compute, slices, gigabytes, attributes)
    assert name.gpu_instance == instance


@run_each(
    "text",
    [
        "",
        "3g",
        f"{'1' * 4301}g.5gb",
        "3g.40",
        "3g.40GB",
        "g.40gb",
        "1g.10gb+",
        "1g.10gb+me-gfx",
        "1g.10gb+1me",
        "1g.10gb+me.",
        " 3g.40gb",
    ],
)
def test_what_is_no_name(text: str) -> None:
    with pytest.raises(LayoutError, match=r"is not a MIG profile; (write [1-9g.cb0]+; )?a profile is written"):
        parse_profile(text)


@run_each("text", ["mig-1g.10gb", "nvidia.com/mig-1g.10gb", "1G.10GB", "1g10gb"])
def test_a_profile_by_another_name_is_answered_with_its_own(text: str) -> None:
    with pytest.raises(LayoutError, match=r"is not a MIG profile; write 1g\.10gb; "):
        parse_profile(text)


@run_each("text", ["0g.5gb", "0c.1g.5gb", "2c.1g.5gb"])
def test_impossible_sizes(text: str) -> None:
    with pytest.raises(LayoutError, match="has 1 to all slices of its GPU instance"):
        parse_profile(text)


def test_an_attribute_twice() -> None:
    with pytest.raises(LayoutError, match="names an attribute twice"):
        parse_profile("1g.5gb+me,me")


@run_each(
    ("counts", "found"),
    [
        ({"1g.10gb": 2, "3g.40gb": 1}, ["3g.40gb", "1g.10gb", "1g.10gb"]),
        ({"3g.40gb": 0, "1g.10gb": 1}, ["1g.10gb"]),
        ({"1c.3g.40gb": 6}, ["3g.40gb 1+1+1", "3g.40gb 1+1+1"]),
        ({"1c.3g.40gb": 4}, ["3g.40gb 1+1+1", "3g.40gb 1"]),
        ({"1c.3g.40gb": 2, "2c.3g.40gb": 2}, ["3g.40gb 2+1", "3g.40gb 2+1"]),
        ({"3g.40gb": 1, "1c.3g.40gb": 3}, ["3g.40gb", "3g.40gb 1+1+1"]),
        ({"2c.2g.20gb": 1, "2g.20gb": 1}, ["2g.20gb", "2g.20gb"]),
        ({"1c.7g.80gb": 1, "2c.7g.80gb": 1, "4c.7g.80gb": 1}, ["7g.80gb 4+2+1"]),
        ({"1c.2g.48gb": 1, "1c.2g.48gb+gfx": 1}, ["2g.48gb 1", "2g.48gb+gfx 1"]),
    ],
)
def test_compute_instances_share_gpu_instances(counts: dict[str, int], found: list[str]) -> None:
    instances = entry(instances=counts)[0].instances
    assert [(f"{i.profile} " + "+".join(map(str, i.compute))).strip() for i in instances] == found
    assert parted({"devices": "all", "mig-enabled": True, "mig-devices": counts})[0].instances == instances


def test_a_list_of_instances() -> None:
    items = [
        {"profile": "3g.40gb", "placement": 4, "compute": {"1c": 1, "2c": 1}},
        {"profile": "1g.10gb", "count": 2},
        {"profile": "2g.20gb", "compute": {"2c": 1}},
    ]
    assert entry(instances=items)[0].instances == (
        Instance("3g.40gb", 4, (2, 1)),
        Instance("1g.10gb"),
        Instance("1g.10gb"),
        Instance("2g.20gb"),
    )


def test_one_mode_for_all() -> None:
    assert normalize_layout("enabled", []) == [Entry("mode", None, True)]
    assert normalize_layout("disabled", []) == [Entry("mode", None, False)]
    assert entry(gpus=[0], mode="disabled") == [Entry("layout[0]", (0,), False)]


@run_each(
    ("layout", "text"),
    [
        ({"gpu": 0}, 'layout[0]: unknown key "gpu"; allowed: gpus, mode, instances'),
        (7, "layout[0] is 7; write a mapping of gpus, mode, instances"),
        ({"mode": "on"}, 'layout[0].mode is "on"; allowed: disabled, enabled'),
        ({"mode": "disabled", "instances": SEVEN}, "layout[0].instances: a GPU with mode: disabled has none"),
        ({"gpus": []}, "layout[0].gpus is []; allowed: all, or a list of indexes, PCI addresses, UUIDs and models"),
        ({"gpus": "A30"}, "layout[0].gpus is 'A30'; allowed: all, or a list"),
        ({"gpus": [True]}, "layout[0].gpus: True names no GPU"),
        ({"gpus": [-1]}, "layout[0].gpus: -1 names no GPU"),
        ({"gpus": [""]}, "layout[0].gpus: '' names no GPU"),
        ({"instances": "3g.40gb"}, "layout[0].instances: write {profile: count}, or a list"),
        ({"instances": {"3g": 1}}, 'layout[0].instances: "3g" is not a MIG profile'),
        ({"instances": {"3g.40gb": -1}}, "layout[0].instances: 3g.40gb is -1; allowed: whole numbers from 0 to 64"),
        ({"instances": {"3g.40gb": True}}, "layout[0].instances: 3g.40gb is True"),
        ({"instances": {"3g.40gb": 10**9}}, "layout[0].instances: 3g.40gb is 1000000000"),
        ({"instances": {"3g.40gb": 0}}, "layout[0].instances: all counts are 0"),
        ({"instances": [{}]}, "layout[0].instances[0]: profile is missing"),
        ({"instances": [{"profile": "1c.3g.40gb"}]}, "compute: profile: 3g.40gb, compute: {1c: 1}"),
        ({"instances": [{"profile": "3g.40gb", "placement": "4"}]}, "layout[0].instances[0].placement is '4'"),
        (
            {"instances": [{"profile": "3g.40gb", "placement": 4, "count": 2}]},
            "2 instances cannot all start at slice 4",
        ),
        ({"instances": [{"profile": "3g.40gb", "count": 0}]}, "count is 0; allowed: whole numbers from 1 to 64"),
        ({"instances": [{"profile": "3g.40gb", "compute": [1]}]}, "compute is [1]; write {1c: 2}"),
        ({"instances": [{"profile": "3g.40gb", "compute": {"c": 1}}]}, 'compute: "c" is not a size; write {1c: 2}'),
        ({"instances": [{"profile": "3g.40gb", "compute": {"1c": 0}}]}, "compute: all counts are 0"),
        (
            {"instances": [{"profile": "3g.40gb", "start": 4}]},
            'unknown key "start"; allowed: profile, placement, count',
        ),
    ],
)
def test_entries_that_cannot_be_read(layout: Any, text: str) -> None:
    with pytest.raises(LayoutError) as caught:
        normalize_layout("enabled", [layout])
    assert text in str(caught.value)
    assert "\n" not in str(caught.value)


def test_modes_that_contradict() -> None:
    with pytest.raises(LayoutError, match='mode is "on"; allowed: disabled, enabled'):
        normalize_layout("on", [])
    with pytest.raises(LayoutError, match="mode is disabled and layout has entries"):
        normalize_layout("disabled", [{"instances": SEVEN}])
    with pytest.raises(LayoutError, match="layout and a mig-parted file exclude each other"):
        normalize_layout("enabled", [{"instances": SEVEN}], [])


@run_each(
    ("gpus", "indexes"),
    [
        ("all", [0, 1]),
        ([0], [0]),
        (["0000:18:00.0"], [0]),
        (["3b:00.0"], [1]),
        (["00000000:3B:00.0"], [1]),
        (["GPU-AA"], [0]),
        (["a30", 0], [0, 1]),
        (["NVIDIA H100 80GB HBM3"], [0]),
    ],
)
def test_which_gpus_an_entry_names(gpus: Any, indexes: list[int]) -> None:
    assert list(select_targets(entry(gpus=gpus, instances=SEVEN), HOST)) == indexes


@run_each(
    ("gpus", "text"),
    [
        ([3], "layout[0].gpus: no GPU here is 3; there are: 0 0000:18:00.0 H100-SXM5-80GB, 1 0000:3B:00.0 A30, 2 "),
        (["0001:18:00.0"], "no GPU here is 0001:18:00.0"),
        (["GPU-dd"], "no GPU here is GPU-dd"),
        (["A100-SXM4-80GB"], "no GPU here is A100-SXM4-80GB"),
        ([2], "layout[0]: GPU 2 (L4) has no MIG"),
        (["L4"], "layout[0]: GPU 2 (L4) has no MIG"),
    ],
)
def test_gpus_that_are_not_here(gpus: Any, text: str) -> None:
    with pytest.raises(LayoutError) as caught:
        select_targets(entry(gpus=gpus, instances=SEVEN), HOST)
    assert text in str(caught.value)


def test_a_gpu_without_mig_may_be_named_to_have_none() -> None:
    assert select_targets(entry(gpus=[2], mode="disabled"), HOST) == {}


def test_later_entries_win() -> None:
    layout: list[dict[str, Any]] = [{"gpus": "all", "instances": {"1g.6gb": 4}}, {"gpus": [0], "mode": "disabled"}]
    assert select_targets(normalize_layout("enabled", layout), HOST) == {
        0: Target(False),
        1: Target(True, (Instance("1g.6gb"),) * 4),
    }


@run_each("module", [mig_layout, mig_fit])
def test_hosts_can_run_it(module: Any) -> None:
    text = Path(module.__file__).read_text(encoding="utf-8")
    ast.parse(text, feature_version=(3, 8))
    newer = ("removeprefix", "removesuffix", "strict=", "match ", "functools.cache")
    assert not [word for word in newer if word in text]
    code = f"import runpy, sys; runpy.run_path({module.__file__!r}); print(' '.join(sys.modules))"
    loaded = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True).stdout
    assert not {"gpuprov", "msgspec", "yaml"} & {name.split(".")[0] for name in loaded.split()}


@run_each(
    ("text", "ids"),
    [
        ("4294967295", (0xFFFFFFFF,)),
        ("4294967296", ()),
        ("0xFFFFFFFF:0", (0xFFFFFFFF, 0)),
        ("0x100000000", ()),
        ("0:4294967296", ()),
    ],
)
def test_ids_have_32_bits(text: str, ids: tuple[int, ...]) -> None:
    assert mig_layout.filter_ids(text) == ids
