"""What a role reads, found by following its own text: its files, the tasks that it includes of other roles, and gpuprov's Python
that it names as modules that Ansible takes to hosts, or as what its capability works out for it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from gpuprov import assets
from gpuprov.capabilities import BY_NAME
from gpuprov.render import code
from gpuprov.render.carried import role_files
from gpuprov.render.checkout import STAGES

ROLE = re.compile(
    r"(?:include|import)_role:\s*(?:&\w+\s*)?(?:\{\s*|\n\s+)name:\s*[\"']?(\w+)[\"']?\s*,?\s*tasks_from:\s*[\"']?([\w/]+)"
)
TASKS = re.compile(
    r"(?:include|import)_tasks:[ \t]*(?:\{\s*|\n\s+)?(?:file:[ \t]*)?[\"']?((?:\{\{.*?\}\}|[^\"'\s{},])+)"
)
TEMPLATE = re.compile(r"\{\{.*?\}\}")
TABLE = re.compile(r"\bgpuprov_catalog\.(\w+)")
ACTS = re.compile(rf"\bacts/({'|'.join(STAGES)})\.yml")
JUDGE = "gpuprov_judge"
BY_HAND = "tasks/main.yml"
"""Of a role: for playbooks of a site's own. The acts call its stages."""


class Reach(NamedTuple):
    """`texts` by where they stand; `words`: every word in them; `tables`: the catalogue's that they name."""

    texts: dict[str, str]
    words: frozenset[str]
    tables: tuple[str, ...]


@cache
def of_role(name: str) -> Reach:
    """What decides what a role brings about on a host, beside the values of its variables."""
    texts = {
        f"roles/{name}/{path}": _read(file)
        for path, file in role_files(name).items()
        if path.split("/")[0] != "meta" and path != BY_HAND
    }
    for role, entry in _included("\n".join(texts.values())):
        texts |= of_entry(role, entry)
    words = frozenset(re.findall(r"\w+", "\n".join(texts.values())))
    tables = sorted({table for text in texts.values() for table in TABLE.findall(text)})
    taken = _modules(words)
    texts |= {f"plugins/{file.name}": _read(file) for file in taken}
    named = [*_worked_out(name, words), *(one for file in taken for one in code.imported_by(file))]
    texts |= {f"{place.module}:{place.symbol}": text for place, text in code.rests_on(named).items()}
    return Reach(dict(sorted((texts | _acts()).items())), words, tuple(tables))


@cache
def of_entry(role: str, entry: str) -> dict[str, str]:
    """What tasks of a role that another includes read of their own role: no more of it than they name."""
    folder = assets.root() / "roles" / role
    texts: dict[str, str] = {}
    waiting = [folder / "tasks" / f"{entry}.yml"]
    while waiting:
        file = waiting.pop()
        if (place := f"roles/{role}/{file.relative_to(folder)}") in texts:
            continue
        texts[place] = text = _read(file)
        waiting += [one for value in TASKS.findall(text) for one in _files(value, file, folder / "tasks")]
        for other, inner in _included(text):
            texts |= of_entry(other, inner) if (other, inner) != (role, entry) else {}
    settings = {
        key: value for kind in ("defaults", "vars") for key, value in _settings(folder / kind / "main.yml").items()
    }
    for key, value in _named(settings, "\n".join(texts.values())):
        texts[f"roles/{role}: {key}"] = value
    every = "\n".join(texts.values())
    for path, file in role_files(role).items():
        if path.startswith("files/") and file.name in every:
            texts[f"roles/{role}/{path}"] = _read(file)
    return texts


def _included(text: str) -> set[tuple[str, str]]:
    return set(ROLE.findall(text))


def _files(value: str, file: Path, tasks: Path) -> Iterator[Path]:
    """The files that an include may mean: one, or all that fit where a part of the name is worked out."""
    pattern = TEMPLATE.sub("*", value)
    for folder in dict.fromkeys((tasks, file.parent)):
        if found := sorted(folder.glob(pattern)):
            yield from found
            return


def _settings(file: Path) -> dict[str, str]:
    loaded: dict[str, Any] = yaml.load(_read(file), Loader=yaml.CSafeLoader) or {} if file.is_file() else {}
    return {key: str(value) for key, value in loaded.items()}


def _named(settings: dict[str, str], text: str) -> Iterator[tuple[str, str]]:
    """The settings that a text names, and those that these name."""
    words: set[str] = set(re.findall(r"\w+", text))
    taken: set[str] = set()
    while fresh := {key for key in settings if key in words} - taken:
        taken |= fresh
        words |= {word for key in fresh for word in re.findall(r"\w+", settings[key])}
    return ((key, settings[key]) for key in sorted(taken))


def _acts() -> dict[str, str]:
    """The plays of site.yml in which capabilities act: in which order, under which conditions."""
    return _acts_in(_read(assets.root() / "playbooks" / "site.yml"))


@cache
def _acts_in(site: str) -> dict[str, str]:
    plays = yaml.load(site, Loader=yaml.CSafeLoader)
    return {f"site.yml {number}": text for number, play in enumerate(plays) if ACTS.search(text := str(play))}


def _worked_out(name: str, words: Iterable[str]) -> Iterator[code.Name]:
    """What a capability works out for its role, which gets it as `gpuprov_judged.desired`."""
    desired = BY_NAME[name].desired
    if desired is not None and "gpuprov_judged" in words:
        yield code.Name(desired.make.__module__, desired.make.__qualname__.partition(".")[0])


def _modules(words: Iterable[str]) -> list[Path]:
    """Programs of gpuprov that Ansible takes to a host, or runs beside it, as the tasks name them. Not the judge, which names all that
    gpuprov knows: what it works out for a role counts by itself."""
    return [file for file in _programs(assets.root() / "plugins") if file.stem in words and file.stem != JUDGE]


@cache
def _programs(plugins: Path) -> tuple[Path, ...]:
    return tuple(file for kind in ("modules", "action") for file in sorted((plugins / kind).glob("*.py")))


def _read(file: Path) -> str:
    return file.read_text(encoding="utf-8", errors="surrogateescape")
