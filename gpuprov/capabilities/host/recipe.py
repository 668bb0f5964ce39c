"""Differences of a spec from the recipe that it names: a warning for each line, with the recipe's value and who
published it."""

from collections.abc import Iterable, Mapping

import msgspec

from gpuprov.catalog import recipes as catalogue
from gpuprov.catalog.drivers import derive_branch
from gpuprov.catalog.gpus import find_gpu
from gpuprov.spec.model import HostSpec
from gpuprov.spec.problem import Problem, format_path
from gpuprov.spec.shown import show

DRIVER = ("nvidia_driver", "version")
MISSING = object()


def problems(host: HostSpec) -> Iterable[Problem]:
    """Yield an error for an unknown recipe, else a warning for each line that the spec leaves out or has another value
    for."""
    if not host.recipe:
        return
    match = catalogue.find_recipe(host.recipe)
    if match is None:
        near = ", ".join(f'"{key}"' for key in catalogue.nearest_recipes(host.recipe))
        fix = f"did you mean {near}?" if near else "gpuprov catalog recipes lists all"
        yield Problem(path=("recipe",), message=f"recipe {show(host.recipe)} is not in the catalogue", fix=fix)
        return
    model = find_gpu(host.gpu.model) if host.gpu else None
    if host.gpu and model and (model.key, host.gpu.count or match.count) != (match.model, match.count):
        message = (
            f"gpu is {host.gpu.count or 'any number'} x {model.key}, and recipe {match.key} is for "
            f"{match.count} x {match.model}"
        )
        near = ", ".join(recipe.key for recipe in catalogue.fitting_recipes(model.key, host.gpu.count))
        fix = f"recipes for these GPUs: {near}" if near else "no recipe is for these GPUs: leave recipe out"
        yield Problem(path=("gpu",), message=message, fix=fix, severity="warning")
    for line in catalogue.lines_of(match):
        value = _get_value_at(host, line.at)
        if not _matches_recipe(value, line):
            actual = "is not in the spec" if value is MISSING else f"is {_format_value(value)}"
            expected = "has it" if line.value == {} else f"has {_format_value(line.value)}"
            message = f"{format_path(line.at)} {actual}, and recipe {match.key} {expected}"
            fix = f"source: {catalogue.origin_of(line)}"
            yield Problem(path=line.at, message=message, fix=fix, severity="warning")


def _get_value_at(host: HostSpec, path: tuple[str, ...]) -> object:
    """Return the plain value of the spec at a path, with defaults; MISSING where its block, or its key of a mapping, is
    absent."""
    value: object = host.capabilities.get(path[0], MISSING)
    value = value if value is MISSING else msgspec.to_builtins(value)
    for name in path[1:]:
        value = value.get(name, MISSING) if isinstance(value, Mapping) else MISSING
    return value


def _matches_recipe(value: object, line: catalogue.Line) -> bool:
    """Return whether the spec's value is the line's; a block with other fields than the defaults is there, and so is a
    version of the branch."""
    if value is MISSING or line.value == {}:
        return value is not MISSING
    if line.at == DRIVER and isinstance(value, str) and value != "any":
        return line.value in (value, derive_branch(value))
    return msgspec.json.encode(value) == msgspec.json.encode(line.value)


def _format_value(value: object) -> str:
    return show(value) if isinstance(value, str) else msgspec.json.encode(value).decode()
