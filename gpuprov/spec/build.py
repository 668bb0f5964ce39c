"""Plain values -> typed specs. Reports every problem, not only the first; a misspelled key gets a suggestion."""

import functools
import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from msgspec import inspect as shape

from gpuprov.core.sanitize import hides
from gpuprov.spec import declared
from gpuprov.spec.fixes import describe, explain
from gpuprov.spec.kinds import is_fitting, list_members, unwrap
from gpuprov.spec.model import Fragment
from gpuprov.spec.problem import Path, format_path
from gpuprov.spec.shown import show
from gpuprov.spec.unknown_keys import Finding, report_unknown_key

ONE_LINE = "allowed: text of one line, without control characters"


def convert(value: object, kind: Any, path: Path = ()) -> tuple[Any, list[Finding]]:
    """Return the typed value and no findings, or None and every finding. Never raises for bad input.

    `false` in place of a block inside a block turns off the setting of an outer group. A block that is present, even
    empty, counts as requested; contradictions are reported although there is a value.
    """
    known = describe_shape(kind)
    of_blocks = known.cls if isinstance(known, shape.StructType) and issubclass(known.cls, Fragment) else None
    wrong: list[Finding] = list(declared.find_undecided(value, of_blocks, path)) if of_blocks else []
    value = drop_switched_off(value, known)
    findings = list(find_several_lines(value, path))
    if of_blocks:
        value = declared.complete(value, of_blocks)
        wrong += declared.find_contradictions(value, of_blocks, path)
    if not findings:
        try:
            return msgspec.convert(value, kind), wrong
        except msgspec.ValidationError as error:
            named = [*_walk(value, known, path), *wrong]
            return None, named or [(path, f"{format_path(path)}: {error}", "")]
    reported = {finding[0] for finding in findings}
    return None, findings + [finding for finding in _walk(value, known, path) if finding[0] not in reported]


def list_mistakes(value: object, kind: Any) -> list[Finding]:
    """Return every reason why plain data are not of this type, apart from multi-line texts."""
    return _walk(value, describe_shape(kind), ())


@functools.cache
def describe_shape(kind: Any) -> shape.Type:
    """Return msgspec's description of a type, cached: computing it takes milliseconds, and there are as many specs as
    hosts."""
    return shape.type_info(kind)


def is_one_line(text: str) -> bool:
    """True if a text is one line, without invisible or misleading characters."""
    return not (hides(text) or "\n" in text or "\t" in text)


def find_several_lines(value: object, path: Path) -> Iterator[Finding]:
    """Yield findings for texts of several lines, keys included: texts go into files where a line is an entry, and to
    terminals.

    So `$` in a pattern is the end of the text here too, as in JSON Schema.
    """
    if isinstance(value, str):
        if not is_one_line(value):
            yield path, f"{format_path(path)} is {show(value)}", ONE_LINE
    elif isinstance(value, Mapping):
        for key, item in value.items():
            if isinstance(key, str) and not is_one_line(key):
                place = f"{format_path(path)}: " if path else ""
                yield (*path, key), f"{place}the key is {show(key)}", ONE_LINE
            else:
                yield from find_several_lines(item, (*path, str(key)))
    elif isinstance(value, list | tuple):
        for number, item in enumerate(value):
            yield from find_several_lines(item, (*path, number))


def drop_switched_off(value: object, kind: shape.Type) -> object:
    bare = unwrap(kind)
    if not (isinstance(bare, shape.StructType) and isinstance(value, Mapping)):
        return value
    fields = {item.encode_name: item for item in bare.fields}
    return {
        key: drop_switched_off(item, fields[key].type) if key in fields else item
        for key, item in value.items()
        if not (item is False and key in fields and can_be_switched_off(fields[key]))
    }


def can_be_switched_off(field: shape.Field) -> bool:
    """True if this is a block with good defaults, or none, when it is not mentioned."""
    blocks = [member for member in list_members(field.type) if not isinstance(member, shape.NoneType)]
    return not field.required and len(blocks) == 1 and isinstance(blocks[0], shape.StructType)


def _walk(value: object, kind: shape.Type, path: Path) -> list[Finding]:
    bare = unwrap(kind)
    if isinstance(bare, shape.UnionType):
        return _walk_union(value, kind, path)
    if isinstance(bare, shape.StructType):
        return _walk_struct(value, bare, path)
    if isinstance(bare, shape.DictType) and isinstance(value, Mapping):
        return _walk_mapping(value, bare, path, describe(kind))
    if isinstance(bare, shape.VarTupleType | shape.ListType) and isinstance(value, list | tuple):
        findings = [f for n, item in enumerate(value) for f in _walk(item, bare.item_type, (*path, n))]
        least, most = bare.min_length or 0, bare.max_length
        if least > 1 and not least <= len(value) <= (most or len(value)):
            findings.append((path, f"{format_path(path)} is {show(value)}", f"allowed: a list of {least}"))
        elif len(value) < least:
            findings.append(
                (path, f"{format_path(path)} is an empty list", "name at least one, or switch the block off: false")
            )
        return findings
    return [] if is_fitting(value, bare) else [report_refused(value, kind, path)]


def report_refused(value: object, kind: shape.Type, path: Path) -> Finding:
    return path, f"{format_path(path)} is {show(value)}", f"allowed: {describe_allowed(kind)}{explain(value, kind)}"


def _walk_union(value: object, kind: shape.Type, path: Path) -> list[Finding]:
    members = list_members(kind)
    if any(not _walk(value, member, path) for member in members):
        return []
    structured = (shape.StructType, shape.DictType, shape.VarTupleType, shape.ListType)
    containers = [m for m in members if isinstance(m, structured)]
    mappings = (shape.StructType, shape.DictType)
    alike = [m for m in containers if isinstance(unwrap(m), mappings) == isinstance(value, Mapping)]
    chosen = alike if len(alike) == 1 else containers
    if len(chosen) == 1 and isinstance(value, Mapping | list | tuple):
        return _walk(value, chosen[0], path)
    return [report_refused(value, kind, path)]


def _walk_mapping(value: Mapping[Any, object], kind: shape.DictType, path: Path, description: str) -> list[Finding]:
    findings: list[Finding] = []
    for key, item in value.items():
        if not isinstance(key, str):
            typed = (
                f'quote it: "{key}"'
                if is_fitting(str(key), unwrap(kind.key_type))
                else f"allowed: {describe_allowed(kind.key_type)}"
            )
            findings.append(((*path, str(key)), f"{format_path(path)}: the key {show(key)} is not text", typed))
            continue
        if isinstance(kind.key_type, shape.LiteralType) and key not in kind.key_type.values:
            findings.append(report_unknown_key(path, key, [str(choice) for choice in kind.key_type.values]))
        elif not is_fitting(key, unwrap(kind.key_type)):
            findings.append(
                (
                    (*path, key),
                    f"{format_path(path)}: the key is {show(key)}",
                    f"allowed: {describe_allowed(kind.key_type)}{suggest_key_form(key, kind.key_type)}",
                )
            )
        of_key = kind.value_type
        if unit := re.search(rf"(\w+) for {re.escape(key)}\b", description):  # the description says it by key
            of_key = shape.Metadata(kind.value_type, extra_json_schema={"description": unit[1]})
        findings += _walk(item, of_key, (*path, key))
    return findings


def suggest_key_form(key: str, kind: shape.Type) -> str:
    """Return another form of a key that a mapping takes: vm/swappiness, nccl_debug, a service without its end."""
    bare = unwrap(kind)
    unit = [] if is_fitting(f"{key}.conf", bare) else [f"{key}.service"]  # a unit, if no other end will do
    forms = (key.replace("/", "."), key.upper(), key.lower(), *unit)
    near = next((form for form in forms if is_fitting(form, bare)), "")
    return f'; did you mean "{near}"?' if near else ""


def _walk_struct(value: object, kind: shape.StructType, path: Path) -> list[Finding]:
    if not isinstance(value, Mapping):
        return [report_refused(value, kind, path)]
    fields = {item.encode_name: item for item in kind.fields}
    unknown = [key for key in value if key not in fields]
    findings = [report_unknown_key(path, key, list(fields), kind, value[key]) for key in unknown]
    for name, item in fields.items():
        if name in value:
            findings += _walk(value[name], item.type, (*path, name))
        elif item.required and not any(re.search(rf'("|write ){name}("|:)', fix) for *_, fix in findings):
            findings.append(
                (path, f"{format_path((*path, name))} is missing", f"allowed: {describe_allowed(item.type)}")
            )
    return findings


def describe_text(description: str, kind: shape.StrType) -> str:
    """Describe the texts that a field accepts, by the first sentence of its description: what is allowed comes first,
    what it means after it. Patterns are for programs: a field without a description is described by what fits."""
    words = description.partition(". ")[0].strip(" .")
    if words.startswith(("A ", "An ", "The ")):
        words = words[0].lower() + words[1:]
    if not kind.pattern:
        return words or "text"
    if is_fitting("/a/b", kind) and not is_fitting("a/b", kind) and "absolute" not in words:
        return f"an absolute path: {words}" if words else "an absolute path"
    if words:
        return words
    if is_fitting("a-b_c.d", kind) and not is_fitting("a/b", kind):
        return "letters, digits, and . _ - in between"
    return "text without spaces" if not is_fitting("a b", kind) else "text without spaces at its ends"


def describe_allowed(kind: shape.Type) -> str:
    """Describe the allowed values; a text's own description says more than its pattern."""
    bare = unwrap(kind)
    if isinstance(bare, shape.UnionType):
        words = [describe_allowed(member) for member in bare.types if not isinstance(member, shape.NoneType)]
        return " or ".join([", ".join(words[:-1]), words[-1]] if words[1:] else words)
    if isinstance(bare, shape.LiteralType):
        return ", ".join(str(choice) or '""' for choice in bare.values)
    if isinstance(bare, shape.StructType):
        needed = any(item.required for item in bare.fields)
        names = ", ".join(item.encode_name for item in bare.fields) or "no keys"
        return f"a block with {names}" + ("" if needed else " ({} for the defaults)")
    if isinstance(bare, shape.IntType):
        if bare.ge is not None and bare.le is not None:
            return f"a whole number from {bare.ge} to {bare.le}"
        return "a whole number" + (f" ({bare.ge} or more)" if bare.ge is not None else "")
    if isinstance(bare, shape.StrType):
        description = (kind.extra_json_schema or {}).get("description") if isinstance(kind, shape.Metadata) else None
        return describe_text(str(description or ""), bare)
    words_of: dict[type[shape.Type], str] = {
        shape.BoolType: "true, false",
        shape.DictType: "a mapping (key: value)",
        shape.VarTupleType: "a list",
        shape.ListType: "a list",
        shape.FloatType: "a number",
    }
    return words_of.get(type(bare), type(bare).__name__)
