"""The variables that a template reads. A template with a constant result for the same values is evaluated once for all
hosts that share them."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import Any

from jinja2 import Environment, TemplateSyntaxError, nodes
from jinja2.filters import FILTERS

from gpuprov.core.safe_parse import TreeView
from gpuprov.inventory.origin import is_template

# Variables of every host, or all variables of a host: what is read from them does not follow from the template.
_HOST = frozenset({"hostvars", "vars"})
# Functions with the same result each time; `lookup`, `query` and `now` are not among them.
_CALLS = frozenset({"range", "dict"})
# Filters of Jinja and of ansible.builtin with the same result each time: not random, shuffle, random_mac,
# password_hash.
_FILTERS = (FILTERS.keys() - {"random"}) | {
    *(
        "b64decode",
        "b64encode",
        "basename",
        "bool",
        "checksum",
        "combine",
        "dict2items",
        "difference",
        "dirname",
        "flatten",
    ),
    *("from_json", "from_yaml", "hash", "intersect", "items2dict", "mandatory", "product", "quote", "regex_escape"),
    *(
        "regex_findall",
        "regex_replace",
        "regex_search",
        "split",
        "splitext",
        "symmetric_difference",
        "ternary",
        "to_json",
    ),
    *("to_nice_json", "to_nice_yaml", "to_yaml", "union", "zip"),
}
_PARSER = Environment(extensions=["jinja2.ext.do", "jinja2.ext.loopcontrols"], autoescape=False)


@functools.lru_cache(maxsize=4096)
def list_names(template: str) -> frozenset[str] | None:
    """Return the variables that a template names; None if its result may not be kept (random, lookups, other hosts'
    variables)."""
    if template.startswith("#jinja2:"):
        return None
    try:
        tree = _PARSER.parse(template)
    except TemplateSyntaxError:
        return None
    called = {node.node.name for node in tree.find_all(nodes.Call) if isinstance(node.node, nodes.Name)}
    names = frozenset(node.name for node in tree.find_all(nodes.Name)) - _CALLS
    kept = called <= _CALLS and not names & _HOST and all(map(is_repeatable, tree.find_all(nodes.Filter)))
    return names if kept else None


def list_all_names(template: str, variables: TreeView) -> frozenset[str] | None:
    """Return the same as `list_names`, including the names in templates in those variables."""
    seen: set[str] = set()
    waiting = [str.__str__(template)]
    while waiting:
        names = list_names(waiting.pop())
        if names is None:
            return None
        for name in names - seen:
            seen.add(name)
            waiting += list_templates(variables.get(name))
    return frozenset(seen)


def list_templates(value: Any) -> Iterator[str]:
    """Yield the templates in a value, at any depth."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from list_templates(key)
            yield from list_templates(item)
    elif isinstance(value, list | tuple | set):
        for item in value:
            yield from list_templates(item)
    elif is_template(value):
        yield str.__str__(value)


def is_repeatable(node: nodes.Filter) -> bool:
    if node.name == "map" and node.args:
        first = node.args[0]
        return isinstance(first, nodes.Const) and first.value in _FILTERS
    return node.name in _FILTERS
