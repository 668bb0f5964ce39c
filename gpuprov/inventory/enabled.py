"""The inventory plugins that ansible.cfg or the environment enables; a setting without a usable one is reported."""

from typing import Any, NamedTuple

import msgspec
from ansible import constants
from ansible.plugins.loader import inventory_loader
from jinja2.utils import import_string

from gpuprov.spec.problem import Problem

SETTING = "INVENTORY_ENABLED"


class Enabled(NamedTuple):
    """The names that are enabled, those of them that no plugin has, and where both are set; "" for Ansible's own
    list."""

    names: tuple[str, ...]
    unknown: tuple[str, ...]
    place: str

    @property
    def usable(self) -> bool:
        return len(self.unknown) < len(self.names)


def read_enabled() -> Enabled:
    """Return what is enabled. A name is unknown if Ansible finds no such plugin, and where it would raise an error."""
    value, origin = constants.config.get_config_value_and_origin(SETTING)
    names = tuple(str(name) for name in value)
    place = "" if origin == "default" else str(origin).removeprefix("env: ")
    return Enabled(names, tuple(name for name in names if place and _load(name) is None), place)


def load_plugins(only: str = "") -> list[Any]:
    """Return the enabled plugins that exist, in their order. `only`: the one of Ansible's own with this name, if it is
    among them; the others are not even imported."""
    enabled = read_enabled()
    names = [name for name in enabled.names if name not in enabled.unknown]
    own = {only, f"ansible.builtin.{only}", f"ansible.legacy.{only}"} if only else set()
    chosen = [name for name in names if name in own]
    return _load_all(chosen) or _load_all(names)


def _load_all(names: list[str]) -> list[Any]:
    return [plugin for name in names if (plugin := _load(name))]


def judge_enabled() -> Problem | None:
    """Return an error if no enabled plugin exists, a warning if some do not; None if all do."""
    enabled = read_enabled()
    if enabled.names and not enabled.unknown:
        return None
    unknown = ", ".join(f'"{name}"' for name in enabled.unknown) or "an empty list"
    message = f"{enabled.place} enables inventory plugins that do not exist: {unknown}"
    known = ", ".join(constants.config.get_configuration_definitions()[SETTING]["default"])
    fix = f"take it out, or name what exists: {known}"
    return Problem(message=message, fix=fix, severity="error" if not enabled.usable else "warning")


def with_enabled(problem: Problem) -> Problem:
    """Return the problem of a file that no plugin could read, with what enables plugins, if not Ansible's own list."""
    enabled = read_enabled()
    if problem.fix or not enabled.place:
        return problem
    names = ", ".join(f'"{name}"' for name in enabled.names)
    return msgspec.structs.replace(problem, fix=f"{enabled.place} enables these plugins alone: {names}")


def judge_extensions() -> Problem | None:
    """Return an error if a setting names an extension of Jinja2 that cannot be imported: each template needs it."""
    value, origin = constants.config.get_config_value_and_origin("DEFAULT_JINJA2_EXTENSIONS")
    for name in value or ():
        try:
            import_string(str(name))
        except Exception as error:  # whatever the module does
            place = str(origin).removeprefix("env: ")
            message = f'{place} names "{name}" as an extension of Jinja2, which cannot be imported: {error}'
            return Problem(message=message, fix="install it beside Ansible, or take it out")
    return None


def _load(name: str) -> Any:
    try:
        return inventory_loader.get(name) if name else None
    except Exception:  # an unknown collection, a file that is not Python: Ansible would end with a traceback
        return None
