"""Recipes: specs by hardware, each line of which somebody who makes, sells or runs that hardware has published."""

from difflib import get_close_matches
from functools import partial
from typing import Any

from gpuprov.catalog.instances import Fabric, InstanceTypes
from gpuprov.catalog.reader import Fact, File, load
from gpuprov.core.safe_parse import Tree


class Line(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The value at a path below `gpuprov`; {} is a block with its defaults."""

    at: tuple[str, ...]
    value: Any


class Recipe(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A spec for hosts with `count` GPUs of `model` on `fabric`, or of these instance types of a cloud.

    `distributions`: keys of distributions.yaml. `parts`: lines shared with other recipes, before its own `lines`; of
    two lines with one path the later one counts. `yours`: what only the site knows, in words. `source`: of the
    hardware.
    """

    key: str
    title: str
    model: str
    count: int
    fabric: Fabric = ""
    instances: tuple[str, ...] = ()
    distributions: tuple[str, ...]
    parts: tuple[str, ...]
    lines: tuple[Line, ...] = ()
    yours: tuple[str, ...] = ()


class RecipesFile(File, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """data/recipes.yaml"""

    parts: dict[str, tuple[Line, ...]]
    recipes: tuple[Recipe, ...]


_file = partial(load, "recipes", RecipesFile)


def recipes() -> tuple[Recipe, ...]:
    """All recipes, in the order of the file."""
    return _file().recipes


def find_recipe(key: str) -> Recipe | None:
    """Return the recipe with this key."""
    return next((recipe for recipe in recipes() if recipe.key == key), None)


def nearest_recipes(text: str) -> list[str]:
    """Return keys that resemble the text, best first; may be empty."""
    return get_close_matches(text, [recipe.key for recipe in recipes()], n=3, cutoff=0.5)


def fitting_recipes(model: str, count: int | None, instance: InstanceTypes | None = None) -> list[Recipe]:
    """Return recipes for hosts with these GPUs; those of its instance types alone if the host is of a cloud that has
    any."""
    fitting = [recipe for recipe in recipes() if recipe.model == model and count in (None, recipe.count)]
    of_type = [recipe for recipe in fitting if instance and set(recipe.instances) & set(instance.types)]
    return of_type or [recipe for recipe in fitting if not (instance and recipe.instances)]


def lines_of(recipe: Recipe) -> tuple[Line, ...]:
    """Return all lines of a recipe, each path once."""
    shared = [line for part in recipe.parts for line in _file().parts[part]]
    return tuple({line.at: line for line in (*shared, *recipe.lines)}.values())


def spec_of(recipe: Recipe) -> Tree:
    """Return the recipe as the value of `gpuprov`."""
    spec: Tree = {"recipe": recipe.key, "gpu": {"model": recipe.model, "count": recipe.count}}
    for line in lines_of(recipe):
        block = spec
        for name in line.at[:-1]:
            block = block.setdefault(name, {})
        block[line.at[-1]] = line.value
    return spec


def origin_of(fact: Fact) -> str:
    """Return where the value of a line, or the hardware of a recipe, was published, and when that was read."""
    sources = [_file().sources[key] for key in fact.source]
    return "; ".join(f"{source.url or source.description}, read {source.read}" for source in sources)
