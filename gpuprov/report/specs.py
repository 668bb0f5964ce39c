"""Output of the offline commands: check, explain, catalog, schema."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from gpuprov.core import terminal, unsafe_yaml
from gpuprov.core.errors import CODES, GpuprovError
from gpuprov.core.sanitize import wrapped
from gpuprov.report.files import write_atomic
from gpuprov.report.tables import fitted

if TYPE_CHECKING:
    from pathlib import Path

    from gpuprov.explain import Explanation
    from gpuprov.export import Exported
    from gpuprov.fleet.specs import Fleet
    from gpuprov.spec.problem import Problem

# Titles of an explanation's lines to copy; they are never wrapped.
COMMANDS = ("check", "see it")


CheckFormat = Literal["text", "json", "sarif", "github"]


def show_check(load: Callable[[], Fleet], *, form: CheckFormat, verbose: bool) -> int:
    """Load the fleet and print every problem, or that there is none. Returns the exit code."""
    from gpuprov.spec.problem import Problem, SpecError

    try:
        fleet = load()
    except SpecError as error:
        _print_problems(form, None, error.problems)
        if form in ("text", "github"):
            count = sum(problem.severity == "error" for problem in error.problems)
            terminal.progress(f"{count} problem{'s' if count != 1 else ''}; nothing was changed")
        return error.exit_code
    except GpuprovError as error:
        if form == "text":
            raise
        _print_problems(form, None, [Problem(message=error.message, fix=error.fix)])
        return error.exit_code
    broken = [raw.name for raw, spec in fleet.pairs if spec.defects]
    if form != "text":
        _print_problems(form, fleet, fleet.warnings)
        return CODES["unusable" if broken else "ok"]
    if verbose:
        for raw, spec in fleet.pairs:
            terminal.result(f"{raw.name}: {', '.join(spec.capabilities) or 'no capabilities'}")
    count = len(fleet.pairs) - len(broken)
    words = f"{count} host{'s' if count != 1 else ''} valid"
    if broken:
        words += f", {len(broken)} not judged ({', '.join(broken[:3])}{' ...' if broken[3:] else ''})"
    if fleet.unmanaged:
        named = ", ".join(fleet.unmanaged[:3]) + (" ..." if len(fleet.unmanaged) > 3 else "")
        words += f", {len(fleet.unmanaged)} without a gpuprov variable ({named})"
    terminal.result(words)
    return CODES["unusable" if broken else "ok"]


def _print_problems(form: CheckFormat, fleet: Fleet | None, problems: Sequence[Problem]) -> None:
    """Print problems in one of the formats. fleet: None if it is not valid."""
    from gpuprov.report import annotations, check

    if form == "json":
        terminal.result(check.as_json(fleet, problems))
    elif form == "sarif":
        terminal.result(annotations.as_sarif(problems))
    elif form == "github":
        for problem in problems:
            terminal.result(annotations.as_github(problem), order="::")
    else:
        for text in fold_alike(problems):
            terminal.result(text, wrap=True)


# Number of places with one message that are named on a terminal; the other formats have all.
ALIKE = 10


def fold_alike(problems: Sequence[Problem]) -> Iterator[str]:
    """Yield problems as text; of many places with the same message, the first ones and the number of the others."""
    places: dict[tuple[str, str], int] = {}
    for problem in problems:
        key = (problem.message, problem.fix)
        places[key] = places.get(key, 0) + 1
        if places[key] <= ALIKE:
            yield str(problem)
    for (message, _), count in places.items():
        if count > ALIKE:
            yield f"{message}: at {count - ALIKE:,} more places; --json has all"


# Number of messages of one symptom that its title names; --json has all.
FEW = 4


def show_explanations(explanations: Sequence[Explanation], *, as_json: bool, text: str = "") -> None:
    """Print each explanation as a titled block, wrapped to the terminal. Of several messages of one cause, those in
    `text` come first."""
    if as_json:
        terminal.result(_dump([msgspec.to_builtins(explanation) for explanation in explanations]))
        return
    for number, explanation in enumerate(explanations):
        terminal.result("\n".join(_format_explained(explanation, terminal.width(), text, blank=bool(number))))


def _format_explained(explanation: Explanation, width: int, given: str, *, blank: bool) -> Iterator[str]:
    """Yield title and text side by side; a title that would leave too little room stands above its text."""
    if blank:
        yield ""
    from gpuprov.catalog.context import XID, fold

    line = XID.sub(r"\1 \2", fold(given))
    names = explanation.name.split(" | ")
    first, *others = sorted(names, key=lambda name: not all(part in line for part in fold(name).split("*")))
    more = f" | and {len(others) - 2} more" if len(others) > FEW else ""
    shown = " | ".join([first, *(others[:2] if more else others)])
    yield from _wrap_text(f"{explanation.kind}: {shown}{more}", width, indent=4)
    longest = min(max((len(title) for title, _ in explanation.lines), default=0), max(width // 4, 12))
    indent = longest + 4
    for title, text in explanation.lines:
        beside = len(title) <= longest
        head = f"  {title.ljust(longest)}  " if beside else " " * indent
        if not beside:
            yield f"  {title}"
        if title in COMMANDS or (title == "source" and " " not in text):
            yield head + text
        else:
            yield from _wrap_text(head + text, width, indent) if text else [head.rstrip()]


def _wrap_text(text: str, width: int, indent: int) -> list[str]:
    return wrapped(text, max(width, 20), hang=" " * indent)


# The field of a table's entries in its first column.
KEYS = {"gpus": "key", "drivers": "branch", "cuda": "cuda", "mig": "name", "recipes": "key"}


def show_catalog(name: str, word: str | None, *, as_json: bool) -> int:
    """Print a table of the catalogue, narrowed to rows that contain `word`; if that is a GPU, or a model of them, to
    its rows."""
    from gpuprov.catalog import listing

    of_gpu = listing.select_of_gpu(name, word or "")
    if as_json:
        rows = [
            row
            for row in listing.list_rows(name)
            if _matches(word, of_gpu, row[KEYS.get(name, "name")], json.dumps(row))
        ]
        terminal.result(_dump(rows))
    else:
        table = listing.build_table(name)
        rows = [row for row in table.rows if _matches(word, of_gpu, row[0].rstrip("?~"), " ".join(row))]  # type: ignore[misc]
        if rows:
            lines, gone = fitted(table.header, rows, terminal.room(sys.stdout), table.spare)  # type: ignore[arg-type]
            terminal.result("\n".join(lines))
            if gone:
                message = (
                    f"no room for {', '.join(gone)}: gpuprov catalog {name} WORD shows a few rows whole, --json all"
                )
                terminal.progress("\n".join(wrapped(message, terminal.room(sys.stderr))))
            terminal.progress("\n".join(wrapped(table.legend, terminal.room(sys.stderr))))
    if not rows:
        raise GpuprovError(f'catalogue {name} has no row with "{word}"', suggest_row(name, word or ""))
    return 0


def suggest_row(name: str, word: str) -> str:
    """Return what to type in place of a word that no row of a table has."""
    from gpuprov.catalog.gpus import explain_unknown, find_gpu

    lists = f"gpuprov catalog {name} lists all"
    if name == "mig" and (gpu := find_gpu(word)) and not gpu.mig.capable:
        return f"{gpu.key} has no MIG; {lists}"
    fix = explain_unknown(word)[1] if name in ("gpus", "mig") else ""
    return f"{fix}; {lists}" if fix.startswith("did you mean") else lists


def show_export(exported: Exported, out: Path | None, *, as_json: bool, mig_parted: Path | None = None) -> int:
    """Print the exported inventory to standard output or a file; notes and unreachable hosts to standard error.

    If no host could be read, a file stays as it is, and JSON has no hosts. `mig_parted`: the file for the MIG layouts,
    which stays as it is if no host has one.
    """
    import yaml

    left_out: list[str] = []
    if as_json:
        text, left_out = unsafe_yaml.as_json(exported.inventory)
    else:
        text = unsafe_yaml.text(exported.inventory).rstrip()
    notes = (f"not exported: {name}: JSON cannot say that it is not a template; YAML can" for name in left_out)
    for line in (*exported.notes, *notes, *exported.unreachable):
        terminal.warning(line)
    if out is None and (as_json or exported.inventory["all"]["hosts"]):
        terminal.result(text)
    elif out is not None and exported.inventory["all"]["hosts"]:
        write_atomic(out, text + "\n")
    if mig_parted and exported.mig_parted:
        write_atomic(mig_parted, yaml.safe_dump(exported.mig_parted, sort_keys=False, width=120))
    return CODES["unreachable" if exported.unreachable else "ok"]


def schema_text() -> str:
    """Return the JSON Schema of the `gpuprov` variable."""
    from gpuprov.capabilities import CAPABILITIES, HOUSE
    from gpuprov.spec.schema import build_schema

    return _dump(build_schema(HOUSE.fragment, {c.name: (c.fragment, c.summary) for c in CAPABILITIES}))


def inventory_schema_text() -> str:
    """Return the JSON Schema of a whole inventory in YAML."""
    from gpuprov.capabilities import CAPABILITIES, HOUSE
    from gpuprov.catalog.gpus import list_gpus
    from gpuprov.spec.inventory_schema import build_inventory_schema
    from gpuprov.spec.schema import build_schema

    models = dict.fromkeys(name for gpu in list_gpus() for name in (gpu.key, *(alias.name for alias in gpu.aliases)))
    spec = build_schema(HOUSE.fragment, {c.name: (c.fragment, c.summary) for c in CAPABILITIES})
    return _dump(build_inventory_schema(spec, models))


def _matches(word: str | None, of_gpu: frozenset[str], key: str, text: str) -> bool:
    return key in of_gpu if of_gpu else _is_true_for(word, text)


def _is_true_for(word: str | None, text: str) -> bool:
    return word is None or word.casefold() in text.casefold()


def _dump(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)
