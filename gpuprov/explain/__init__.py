"""What a word means: a capability, a field, a check, an exit code, or a symptom that a user sees."""

from __future__ import annotations

import difflib
from typing import IO

import msgspec

from gpuprov.capabilities import BY_NAME
from gpuprov.capabilities.base import Check
from gpuprov.catalog.reader import Confidence
from gpuprov.catalog.symptoms import Beside, Symptom, addresses, decides, find_symptom, held_by
from gpuprov.errors import EXIT_CODES, GpuprovError
from gpuprov.explain import fields
from gpuprov.explain.messages import symptoms_in
from gpuprov.masking import masked
from gpuprov.reading import FILE, is_whole
from gpuprov.records import Record


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
        *(".".join(field.path) for name in BY_NAME for field in fields.fields(name)),
        *(c.id for c in all_checks()),
    ]
    near = difflib.get_close_matches(text, dict.fromkeys(known), n=3, cutoff=0.4) if len(text.split()) == 1 else []
    if near:
        hint = f"did you mean {', '.join(near)}?"
    elif " " in text:
        hint = "paste the whole message as it was printed, or pipe a log in: dmesg | gpuprov explain -"
    else:
        hint = f"capabilities: {', '.join(BY_NAME)}"
    raise GpuprovError(f'nothing is known of "{masked(text)[0]}"', hint)


def in_record(record: Record) -> list[Explanation]:
    """Every symptom that a record of a host holds, the most telling first. Raises GpuprovError where it holds none."""
    if record.fault:
        raise GpuprovError(f"{record.path} cannot be read: {record.fault}", "leave it out of the folder")
    return in_text(record.text, record.path)


def in_stream(stream: IO[bytes] | None) -> list[Explanation]:
    """The same for a log that is piped in, up to FILE bytes of it. Raises GpuprovError also where it is longer."""
    if stream is None:
        raise GpuprovError("standard input cannot be read: it is closed", "gpuprov explain - < LOG")
    try:
        data = stream.read(FILE + 1)
    except OSError as error:  # nohup leaves a standard input that cannot be read
        raise GpuprovError(f"standard input cannot be read: {error.strerror}", "gpuprov explain - < LOG") from error
    if len(data) > FILE:
        raise GpuprovError(
            f"standard input is too large; allowed: {FILE >> 20} MiB", "tail -n 100000 LOG | gpuprov explain -"
        )
    return in_text(data.decode("utf-8", "replace"), "standard input")


def in_text(text: str, where: str) -> list[Explanation]:
    """The same for a text; `where` it is from. What another of them decides comes last. Raises GpuprovError where it holds none."""
    found = symptoms_in(text)
    if not found:
        raise GpuprovError(f"{where} holds no message that gpuprov knows", 'gpuprov explain "MESSAGE" asks for one')
    beside = [Beside(one.symptom, one.line) for one in found]
    decided = {one.symptom.key: decides(one.symptom, beside) for one in found}
    return [
        _symptom(
            one.symptom,
            ("seen", f"{one.count} time{'s' if one.count != 1 else ''} in {where}: {one.line}"),
            decided=decided[one.symptom.key],
        )
        for one in sorted(found, key=lambda one: decided[one.symptom.key] is not None)
    ]


CERTAINTY: dict[Confidence, str] = {
    "confirmed": "",
    "inferred": "inferred: the sources show the message; that this is its cause is concluded from them, and they do not all say it",
    "unconfirmed": "unconfirmed: no source says that this is the cause",
}
"""What is said of a cause that nobody has written down as one."""


def all_checks() -> list[Check]:
    """Every check of every capability, in order."""
    return [check for capability in BY_NAME.values() for check in capability.checks]


def _capabilities(text: str) -> list[Explanation]:
    capability = BY_NAME.get(text)
    if capability is None:
        return []
    top = [field for field in fields.fields(text) if len(field.path) == 2]
    lines = [("does", capability.summary), *((f"field {field.path[1]}", field.does) for field in top)]
    lines += [(f"check {check.id}", check.description) for check in capability.checks]
    return [Explanation(kind="capability", name=text, lines=tuple(lines))]


def _fields(text: str) -> list[Explanation]:
    answers = []
    for field in fields.named(text):
        lines = (
            ("does", field.does),
            *((("about", field.about),) if field.about not in ("", field.does) else ()),
            ("allowed", field.allowed),
            ("default", field.default),
            ("proved by", field.proved_by),
        )
        answers.append(Explanation(kind="field", name=field.name, lines=lines))
    return answers


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
    if not is_whole(number) or int(number) not in EXIT_CODES:
        return []
    return [Explanation(kind="exit code", name=number, lines=(("means", EXIT_CODES[int(number)]),))]


def _symptoms(text: str) -> list[Explanation]:
    beside = held_by(text)
    answers = [(symptom, decides(symptom, beside)) for symptom in find_symptom(text)]
    return [
        _symptom(symptom, decided=decided) for symptom, decided in sorted(answers, key=lambda pair: pair[1] is not None)
    ]


def _symptom(symptom: Symptom, *seen: tuple[str, str], decided: Beside | None = None) -> Explanation:
    """`decided`: what stands beside it and says which cause it has, so that the other causes are not told."""
    lines = (
        *seen,
        *(_decided(decided) if decided else _causes(symptom)),
        ("certainty", CERTAINTY[symptom.confidence]),
        *(("source", address) for address in dict.fromkeys(addresses(symptom))),
    )
    named = tuple(line for line in lines if line[1])
    return Explanation(kind="symptom", name=" | ".join(symptom.signatures), lines=named)


def _decided(beside: Beside) -> tuple[tuple[str, str], ...]:
    return (("cause", f"{beside.symptom.cause} So it says beside it: {beside.line}"), ("cure", beside.symptom.cure))


def _causes(symptom: Symptom) -> tuple[tuple[str, str], ...]:
    return (
        ("cause", symptom.cause),
        ("check", symptom.check),
        ("cure", symptom.cure),
        ("NVIDIA says", symptom.action),
        *(
            line
            for other in symptom.others
            for line in (("or", other.cause), ("check", other.check), ("cure", other.cure))
        ),
    )
