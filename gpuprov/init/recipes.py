"""A recipe of the catalogue, with hosts, -> a draft; and which recipes fit hosts that are known."""

from collections.abc import Mapping

from gpuprov.catalog.gpus import find_gpu
from gpuprov.catalog.instances import find_instance
from gpuprov.catalog.recipes import Recipe, find_recipe, fitting_recipes, lines_of, nearest_recipes, origin_of, spec_of
from gpuprov.core.errors import GpuprovError
from gpuprov.init.draft import Draft, Group, group_name
from gpuprov.init.questions import asking, hosts_and_login, may_reboot, source


def require_recipe(key: str) -> Recipe:
    """Return the recipe. Raises GpuprovError if there is none of this name."""
    recipe = find_recipe(key)
    if recipe is None:
        near = ", ".join(nearest_recipes(key))
        fix = f"did you mean {near}?" if near else "gpuprov catalog recipes lists all"
        raise GpuprovError(f'there is no recipe "{key}"', fix)
    return recipe


def draft(key: str, given: Mapping[str, str]) -> Draft:
    """Return the recipe for hosts that are asked for, or given with the options. Raises GpuprovError for an unknown
    recipe."""
    recipe = require_recipe(key)
    ask = asking(given)
    hosts = hosts_and_login(ask)
    spec = spec_of(recipe)
    origins: dict[tuple[str, ...], str] = {("gpu",): f"Source: {origin_of(recipe)}"}
    origins |= {line.at: f"Source: {origin_of(line)}" for line in lines_of(recipe)}
    about = [f"Recipe {recipe.key}: {recipe.title}.", *(f"Only you know {text}." for text in recipe.yours)]
    group = Group(name=group_name(spec, "gpu", hosts), spec=spec, hosts=hosts, about=about, origins=origins)
    return Draft(source=f"recipe {recipe.key} and {source(given)}", common={"reboot": may_reboot(ask)}, groups=[group])


def fitting(fleet_draft: Draft) -> dict[str, list[str]]:
    """Return the recipes that fit the hosts of each group, by the group's name."""
    fits: dict[str, list[str]] = {}
    for group in fleet_draft.groups:
        named = {**fleet_draft.common, **group.spec}.get("gpu", {})
        model = find_gpu(str(named.get("model", "")))
        if model and "recipe" not in group.spec:
            fitted = fitting_recipes(model.key, named.get("count"), find_instance(group.instance))
            fits |= {group.name: [recipe.key for recipe in fitted]} if fitted else {}
    return fits
