"""A draft as the text of an inventory: each line below a comment with its meaning, in the words of the model."""

from collections.abc import Iterator, Mapping
from functools import cache

from gpuprov.capabilities import BY_NAME
from gpuprov.core import unsafe_yaml
from gpuprov.core.safe_parse import TreeView
from gpuprov.core.sanitize import wrapped
from gpuprov.explain import fields
from gpuprov.init.draft import Draft, Group
from gpuprov.spec.inventory_schema import CONNECTION

WIDTH = 110
MOST_NOTES = 60
EMPTY: Mapping[tuple[str, ...], str] = {}


def written(draft: Draft) -> str:
    """Return the whole file."""
    lines = [*_format_comment(f"Written by gpuprov init from {draft.source}: a standard Ansible inventory.", 0)]
    lines += [
        "# The variable gpuprov says what hosts should be; inner groups and hosts win over outer ones. A block that "
        "is absent",
        "# is not managed, {} takes defaults, false turns off what an outer group turned on. gpuprov explain WORD "
        "has more.",
    ]
    if draft.notes:
        lines += ["#", "# Not taken over:"]
        lines += [line for note in _limit_notes(draft.notes) for line in _format_comment(f"* {note}", 0)]
    lines += ["all:"]
    if draft.common:
        lines += ["  vars:", "    gpuprov:", *_format_block(draft.common, (), 6)]
    lines += ["  children:", *(line for group in draft.groups for line in _format_group(group))]
    return "\n".join(lines) + "\n"


def _format_group(group: Group) -> Iterator[str]:
    for note in (*group.about, *_limit_notes(group.notes)):
        yield from _format_comment(note, 4)
    yield f"    {group.name}:"
    if group.spec:
        yield from ("      vars:", "        gpuprov:", *_format_block(group.spec, (), 10, group.origins))
    yield "      hosts:"
    explained: set[str] = set()
    for name, variables in group.shown().items():
        for variable in variables:
            if variable in CONNECTION and variable not in explained:
                yield from _format_comment(f"{variable}: {CONNECTION[variable][1]}", 8)
                explained.add(variable)
        yield from _format_text({name: variables}, 8)


def _limit_notes(notes: list[str]) -> list[str]:
    """Return each note once, and no more than a person reads."""
    different = list(dict.fromkeys(notes))
    more = len(different) - MOST_NOTES
    return different if more <= 0 else [*different[:MOST_NOTES], f"and {more} more of the kind"]


def _format_block(
    block: TreeView, path: tuple[str, ...], indent: int, origins: Mapping[tuple[str, ...], str] = EMPTY
) -> Iterator[str]:
    for key, value in block.items():
        yield from _format_comment(_explain_meaning((*path, key)), indent)
        yield from _format_comment(origins.get((*path, key), ""), indent)
        if isinstance(value, Mapping) and value:
            yield _format_text({key: {}}, indent)[0].removesuffix(" {}")
            yield from _format_block(value, (*path, key), indent + 2, origins)
        else:
            yield from _format_text({key: value}, indent)


def _format_text(value: TreeView, indent: int) -> list[str]:
    return [" " * indent + line for line in unsafe_yaml.text(value).splitlines()]


def _format_comment(text: str, indent: int) -> list[str]:
    """Return lines of a comment; nothing in the text ends one early."""
    plain = " ".join(text.split())
    deep = "  " if plain.startswith("* ") else ""
    space = " " * indent
    return wrapped(plain, WIDTH, f"{space}# ", f"{space}# {deep}")


def _explain_meaning(path: tuple[str, ...]) -> str:
    if len(path) == 1 and path[0] in BY_NAME:
        return BY_NAME[path[0]].summary
    return _meanings().get(path, "")


@cache
def _meanings() -> dict[tuple[str, ...], str]:
    """Return the purpose of each field, by its path below `gpuprov`; the house's own have no capability before them."""
    meanings = {field.path: field.does for name in BY_NAME for field in fields.fields(name)}
    return meanings | {path[1:]: does for path, does in meanings.items() if path[0] == "host"}
