"""Each recipe of the catalogue is a spec that check accepts, with a driver that every distribution it names can
have."""

from __future__ import annotations

import re
from datetime import date
from typing import Any

import pytest

from gpuprov.catalog import distributions, drivers
from gpuprov.catalog.drivers.sets import find_packages
from gpuprov.catalog.gpus import find_gpu
from gpuprov.catalog.instances import find_instance
from gpuprov.catalog.reader import load
from gpuprov.catalog.recipes import Recipe, RecipesFile, find_recipe, lines_of, origin_of, recipes, spec_of
from gpuprov.fleet.specs import judge
from gpuprov.rules import resolve
from gpuprov.spec.model import RawHost
from tests.rows import run_each

ALL = [pytest.param(recipe, id=recipe.key) for recipe in recipes()]
SITE = "topology_check: allow, on such machines", "this warning is not for it"
"""Ends of the warnings of check that are about machines which may or may not be those of the recipe."""


def warned(recipe: Recipe, **changes: Any) -> list[str]:
    fleet = judge([RawHost(name="gpu01", values={**spec_of(recipe), **changes})])
    return [str(one) for one in fleet.warnings]


def test_there_are_recipes_for_boards_racks_clouds_and_cards() -> None:
    assert len({recipe.key for recipe in recipes()}) == len(recipes()) >= 12
    models = {(recipe.model, recipe.fabric) for recipe in recipes()}
    boards = ("A100-SXM4-80GB", "H100-SXM5-80GB", "H200-SXM", "B200", "B300")
    assert {(model, fabric) for model in boards for fabric in ("infiniband", "roce")} <= models
    assert {("GB200", "efa"), ("GB200", "infiniband"), ("GB300", "infiniband"), ("H20", "erdma")} <= models
    assert {("H100-SXM5-80GB", "efa"), ("B200", "efa"), ("L40S", ""), ("RTX-PRO-6000-SE", "")} <= models


@run_each("recipe", ALL)
def test_check_accepts_it_and_finds_no_difference_from_itself(recipe: Recipe) -> None:
    assert [line for line in warned(recipe) if not line.endswith(SITE)] == []


@run_each("recipe", ALL)
def test_every_line_counts(recipe: Recipe) -> None:
    """A spec that names the recipe and has nothing else is warned of each line."""
    said = judge([RawHost(name="gpu01", values={"recipe": recipe.key, "nouveau": False, "dcgm": {}})]).warnings
    missing = {one.path for one in said if f"recipe {recipe.key} has" in one.message}
    assert missing == {line.at for line in lines_of(recipe)} - {("dcgm",)}


@run_each("recipe", ALL)
def test_its_hardware_exists(recipe: Recipe) -> None:
    model = find_gpu(recipe.model)
    assert model
    assert model.key == recipe.model
    for name in recipe.instances:
        row = find_instance(name)
        assert row, name
        assert (row.model, row.count, row.fabric) == (recipe.model, recipe.count, recipe.fabric)


@run_each("recipe", ALL)
def test_its_driver_exists_for_each_distribution(recipe: Recipe) -> None:
    wanted, model = spec_of(recipe)["nvidia_driver"], find_gpu(recipe.model)
    assert model
    assert drivers.explain_refusal(model, wanted["version"], wanted["kernel_modules"]) is None
    known = {entry.key: entry for entry in distributions.list_managed()}
    for key in recipe.distributions:
        found = find_packages(known[key].id, known[key].version_id, wanted.get("source", "auto"))
        assert found, key
        assert resolve.fitting(found.sets[wanted["kernel_modules"]], wanted["version"]), key


@run_each("recipe", ALL)
def test_every_line_says_who_published_it_and_when_that_was_read(recipe: Recipe) -> None:
    for fact in (recipe, *lines_of(recipe)):
        for part in origin_of(fact).split("; "):
            assert re.fullmatch(r"\S.*, read \d{4}-\d{2}-\d{2}", part)


def test_dates_of_reading_are_dates() -> None:
    for key, source in load("recipes", RecipesFile).sources.items():
        assert date.fromisoformat(source.read) >= date(2026, 1, 1), key
        assert source.url.startswith("https://") or not source.url, key


def test_a_recipe_is_found_by_its_key_alone() -> None:
    assert find_recipe("aws-p5") in recipes()
    assert find_recipe("AWS") is None
