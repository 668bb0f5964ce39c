"""What `gpuprov catalog` prints."""

from __future__ import annotations

import json

import pytest

from gpuprov.catalog import drivers, listing, mig
from gpuprov.catalog.gpus import list_gpus
from gpuprov.core.errors import GpuprovError
from tests.rows import run_each

COLUMN = {
    "compute_capability": "cc",
    "memory_gb": "memory GB",
    "form_factor": "form",
    "nvlink": "nvlink",
    "chip": "chip",
    "nvswitch": "nvswitch",
    "fabric_manager": "fabric",
    "mig": "mig",
    "min_branch": "first",
    "last_branch": "last",
}
MARK = {"unconfirmed": "?", "inferred": "~"}


def text(name: str) -> list[dict[str, str]]:
    table = listing.build_table(name)
    return [dict(zip(table.header, row, strict=True)) for row in table.rows]


@run_each("name", listing.LISTINGS)
def test_rows_have_the_width_of_the_header_and_their_sources(name: str) -> None:
    table = listing.build_table(name)
    assert table.legend
    for row in table.rows:
        assert len(row) == len(table.header)
        assert all(isinstance(cell, str) for cell in row)
        assert row[table.header.index("sources")]


@run_each("name", listing.LISTINGS)
def test_json_rows_carry_confidence_and_source(name: str) -> None:
    rows = json.loads(json.dumps(listing.list_rows(name)))
    assert rows
    for row in rows:
        assert row["confidence"] in ("confirmed", "inferred", "unconfirmed")
        assert row["source"]


def test_unknown_listing() -> None:
    with pytest.raises(GpuprovError, match="gpu"):
        listing.build_table("gpu")


def test_every_value_of_a_gpu_that_is_not_confirmed_is_marked() -> None:
    marked = 0
    for gpu, row in zip(list_gpus(), text("gpus"), strict=True):
        for field, column in COLUMN.items():
            if getattr(gpu, field) is None:
                continue
            ending = MARK.get(gpu.sure(field), "")
            marked += bool(ending)
            assert row[column].endswith(ending), (gpu.key, field)
            assert ending or row[column][-1] not in "?~", (gpu.key, field)
        assert set(gpu.unsure) <= set(COLUMN)
    assert marked > 50


def test_every_value_of_a_branch_that_is_not_confirmed_is_marked() -> None:
    columns = {"type": "type", "eol": "end of life", "ended": "end of life", "cuda": "cuda"}
    for entry, row in zip(drivers.list_branches(), text("drivers"), strict=True):
        for field, confidence in entry.unsure.items():
            if field == "eol" and entry.ended:
                continue  # the month is unsure and not printed; that it is over is not
            assert row[columns[field]].endswith(MARK[confidence]), (entry.branch, field)


def test_every_placement_that_is_not_confirmed_is_marked() -> None:
    profiles = [profile for entry in mig.list_classes() for profile in entry.profiles]
    for profile, row in zip(profiles, text("mig"), strict=True):
        ending = MARK.get(profile.placement_confidence, "")
        assert row["placements"].endswith(ending)
        assert row["id"].endswith(ending)


def test_cuda_rows_name_the_floor_of_the_family() -> None:
    rows = {row["cuda"]: row for row in text("cuda")}
    assert rows["12.4.1"]["runs from"] == "525.60.13"
    assert rows["12.4.1"]["all features from"] == "550.54.15"
    assert rows["13.4?"]["all features from"] == "615?"
    assert rows["10.2"]["runs from"] == "440.33"


def test_a_word_that_is_a_gpu_or_a_model_names_its_own_rows() -> None:
    assert {key.partition("-")[0] for key in listing.select_of_gpu("gpus", "H100")} == {"H100"}, (
        "neither H200, H20 nor GH200"
    )
    assert listing.select_of_gpu("gpus", "Tesla T4") == {"T4"}
    assert listing.select_of_gpu("gpus", "10de:2c3a") == {"RTX-PRO-4500-SE"}
    assert listing.select_of_gpu("mig", "A100-SXM4-80GB") == {"80gb_a100"}
    assert listing.select_of_gpu("mig", "A100") == {"40gb_a100", "80gb_a100"}
    for table, word in (
        ("gpus", "Hopper"),
        ("gpus", ""),
        ("gpus", "580"),
        ("mig", "T4"),
        ("mig", "80gb"),
        ("cuda", "T4"),
    ):
        assert listing.select_of_gpu(table, word) == frozenset(), f"{word}: the text of the rows is searched"
