"""What a word means: a capability, a field, a check, an exit code, or a symptom that a user sees."""

from __future__ import annotations

import difflib
from typing import Any

import msgspec
import yaml

from gpuprov import assets
from gpuprov.capabilities import BY_NAME, HOUSE
from gpuprov.capabilities.base import Capability, Check
from gpuprov.catalog.symptoms import find_symptom
from gpuprov.errors import EXIT_CODES, GpuprovError


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """One answer: what kind of thing it is, its name, and titled lines about it."""

    kind: str
    name: str
    lines: tuple[tuple[str, str], ...]


def explain(words: str) -> list[Explanation]:
    """Every meaning of `words`, the exact ones first. Raises GpuprovError with near words if there is none."""
    text = words.strip()
    found = [*_capabilities(text), *_fields(text), *_checks(text), *_exit_codes(text), *_symptoms(text)]
    if found:
        return found
    known = [
        *BY_NAME,
        *(f"{c.name}.{f}" for c in BY_NAME.values() for f in field_names(c)),
        *(c.id for c in all_checks()),
    ]
    near = difflib.get_close_matches(text, dict.fromkeys(known), n=3, cutoff=0.4)
    hint = f"did you mean {', '.join(near)}?" if near else f"capabilities: {', '.join(BY_NAME)}"
    raise GpuprovError(f'nothing is known of "{text}"', hint)


def all_checks() -> list[Check]:
    """Every check of every capability, in order."""
    return [check for capability in BY_NAME.values() for check in capability.checks]


def field_names(capability: Capability) -> list[str]:
    """The fields of a capability's block."""
    return [field.encode_name for field in msgspec.structs.fields(capability.fragment)]


def field_prose(capability: Capability) -> dict[str, str]:
    """What each field does, from the role's argument_specs, which is where prose lives."""
    if capability is HOUSE:
        return {
            "gpu": "Which GPUs the host has: model and count.",
            "reboot": "Whether apply may reboot.",
        }
    file = assets.root() / "roles" / capability.name / "meta" / "argument_specs.yml"
    options = yaml.safe_load(file.read_text(encoding="utf-8"))["argument_specs"]["main"]["options"]
    prose = {}
    for name, option in options.items():
        text = option["description"]
        prose[name.removeprefix(f"{capability.name}_")] = " ".join(text) if isinstance(text, list) else text
    return prose


def _capabilities(text: str) -> list[Explanation]:
    capability = BY_NAME.get(text)
    if capability is None:
        return []
    prose = field_prose(capability)
    lines = [
        ("does", capability.summary),
        *((f"field {name}", prose.get(name, "")) for name in field_names(capability)),
    ]
    lines += [(f"check {check.id}", check.description) for check in capability.checks]
    return [Explanation(kind="capability", name=text, lines=tuple(lines))]


def _fields(text: str) -> list[Explanation]:
    name, _, field = text.rpartition(".")
    answers = []
    for capability in [BY_NAME[name]] if name in BY_NAME else list(BY_NAME.values()) if not name else []:
        if field not in field_names(capability):
            continue
        info = next(f for f in msgspec.structs.fields(capability.fragment) if f.encode_name == field)
        lines: list[tuple[str, str]] = [("does", field_prose(capability).get(field, "")), ("default", _default(info))]
        proofs = [check.id for check in capability.checks if field in check.fields]
        lines.append(("proved by", ", ".join(proofs) or capability.unproved.get(field, "")))
        answers.append(Explanation(kind="field", name=f"{capability.name}.{field}", lines=tuple(lines)))
    return answers


def _default(info: Any) -> str:
    value = info.default_factory() if info.default is msgspec.NODEFAULT else info.default
    return msgspec.json.encode(value).decode()


def _checks(text: str) -> list[Explanation]:
    answers = []
    for check in all_checks():
        if check.id == text:
            lines = (
                ("asks", check.description),
                ("when", check.moment),
                ("proves", ", ".join(check.fields) or "-"),
                ("see it", check.evidence),
            )
            answers.append(Explanation(kind="check", name=check.id, lines=lines))
    return answers


def _exit_codes(text: str) -> list[Explanation]:
    number = text.lower().removeprefix("exit").removeprefix(" code").strip()
    if not number.isdigit() or int(number) not in EXIT_CODES:
        return []
    return [Explanation(kind="exit code", name=number, lines=(("means", EXIT_CODES[int(number)]),))]


def _symptoms(text: str) -> list[Explanation]:
    answers = []
    for symptom in find_symptom(text):
        lines = (
            ("cause", symptom.cause),
            ("check", symptom.check),
            ("cure", symptom.cure),
            ("source", ", ".join(symptom.source)),
        )
        answers.append(
            Explanation(
                kind="symptom", name=" | ".join(symptom.signatures), lines=tuple(line for line in lines if line[1])
            )
        )
    return answers
