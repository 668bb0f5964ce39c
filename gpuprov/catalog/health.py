"""Sources of the default thresholds of `health`."""

from functools import partial

from gpuprov.catalog.reader import Fact, File, load


class Default(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The default of a field of `health`."""

    key: str
    value: int | float | str | bool
    text: str


class Limit(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A threshold for which `health` has no field."""

    key: str
    value: float
    text: str


class Tool(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The command by which a person writes firmware of this kind; gpuprov never runs it."""

    key: str
    command: str


class HealthFile(File, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """data/health.yaml"""

    defaults: tuple[Default, ...]
    limits: tuple[Limit, ...]
    tools: tuple[Tool, ...]


read_health_file = partial(load, "health", HealthFile)


def get_limit(key: str) -> float:
    """Return the limit of this name."""
    return next(row.value for row in read_health_file().limits if row.key == key)


def get_tool(key: str) -> str:
    """Return the command that writes firmware of this kind."""
    return next(row.command for row in read_health_file().tools if row.key == key)
