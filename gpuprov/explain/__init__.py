"""Explains a word: a capability, a field, a check, an exit code, or a symptom that a user sees."""

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from typing import IO

import msgspec

from gpuprov.capabilities import BY_NAME
from gpuprov.capabilities.base import Check
from gpuprov.catalog.lookup import find_symptom
from gpuprov.catalog.reader import Confidence
from gpuprov.catalog.signatures import Beside, find_decisive
from gpuprov.catalog.symptoms import Symptom, list_addresses
from gpuprov.catalog.terms import find_term, read_terms_file
from gpuprov.catalog.verdicts import in_health
from gpuprov.core.errors import EXIT_CODES, GpuprovError
from gpuprov.core.masking import masked
from gpuprov.core.safe_parse import Unreadable, archives, is_whole
from gpuprov.core.sanitize import cut_to
from gpuprov.explain import fields
from gpuprov.explain.hardware import explain_hardware, suggest
from gpuprov.explain.messages import Seen, symptoms_in
from gpuprov.explain.plain import choose_joined, join_broken, read_plain
from gpuprov.explain.versions import explain_version
from gpuprov.facts.captures import Record
from gpuprov.facts.captures.outputs import CUT

# Characters of an unknown text that are repeated.
LONGEST = 500


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """One answer: its kind, its name, and titled lines about it."""

    kind: str
    name: str
    lines: tuple[tuple[str, str], ...]


def explain(words: str, commands: Mapping[str, str] | None = None) -> list[Explanation]:
    """Return every meaning of `words`, the exact ones first. Raises GpuprovError with similar words if there is none.
    `commands`: gpuprov's own, with what they do."""
    text = read_plain(words).strip().removeprefix("gpuprov.")
    terms = _explain_terms(text)
    answers = [*_explain_capabilities(text), *terms, *_explain_fields(text), *_explain_checks(text), *_exit_codes(text)]
    hardware = (
        [] if terms else [Explanation(kind=row.kind, name=row.name, lines=row.lines) for row in explain_hardware(text)]
    )
    answers += hardware if terms or hardware else _explain_symptoms(text)
    answers = answers or [*_explain_commands(text, commands or {}), *_explain_versions(text), *_explain_keys(text)]
    if answers:
        return answers
    known = [
        *BY_NAME,
        *(".".join(field.path) for name in BY_NAME for field in fields.fields(name)),
        *(c.id for c in all_checks()),
    ]
    near = difflib.get_close_matches(text, dict.fromkeys(known), n=3, cutoff=0.55) if len(text.split()) == 1 else []
    if fix := suggest(text):
        pass
    elif near:
        fix = f"did you mean {', '.join(near)}?"
    elif " " in text:
        fix = "paste the whole message as it was printed, or pipe a log in: dmesg | gpuprov explain -"
    else:
        fix = f"capabilities: {', '.join(BY_NAME)}"
    raise GpuprovError(f'nothing is known of "{cut_to(masked(text)[0], LONGEST)}"', fix)


def in_records(records: Iterable[Record]) -> list[Explanation]:
    """Return the same of several: of those that have none, only if none of them has any. Raises GpuprovError as
    `in_record`."""
    answers: list[Explanation] = []
    silent: GpuprovError | None = None
    for record in records:
        try:
            answers += in_record(record)
        except GpuprovError as error:
            if record.fault:
                raise
            silent = silent or error
    if silent and not answers:
        raise silent
    return answers


def in_record(record: Record) -> list[Explanation]:
    """Return every symptom in a record of a host, the most specific first. Raises GpuprovError if it has none."""
    if record.fault:
        raise GpuprovError(f"{record.path} cannot be read: {record.fault}", "leave it out of the folder")
    return in_text(record.text, record.path)


def in_stream(stream: IO[bytes] | None, warn: Callable[[str], None] = lambda text: None) -> list[Explanation]:
    """Return the same for a log that is piped in, of any size, also a compressed one: it is read as it comes, and never
    kept. `warn` is called if it breaks off."""
    if stream is None:
        raise GpuprovError("standard input cannot be read: it is closed", "gpuprov explain - < LOG")
    try:
        unpacked, decoder = archives.unpack_stream(stream)
        seen = symptoms_in(unpacked)
        if decoder and decoder.cut:
            warn(f"standard input: the record is incomplete: {CUT}")
        return _answer(seen, "standard input")
    except Unreadable as error:
        raise GpuprovError(f"standard input cannot be read: {error}", "gpuprov explain - < LOG") from error
    except OSError as error:  # nohup leaves a standard input that cannot be read
        raise GpuprovError(f"standard input cannot be read: {error.strerror}", "gpuprov explain - < LOG") from error


def in_text(text: str | IO[bytes], where: str) -> list[Explanation]:
    """Return the same for a text; `where`: its source. Raises GpuprovError if it has none."""
    return _answer(symptoms_in(text), where)


def _answer(seen: list[Seen], where: str) -> list[Explanation]:
    if not seen:
        raise GpuprovError(f"{where} holds no message that gpuprov knows", 'gpuprov explain "MESSAGE" asks for one')
    return _list_answers(seen, where)


def _list_answers(seen: list[Seen], where: str = "") -> list[Explanation]:
    """Return the answers to a text's symptoms; those that another of them decides come last. `where`: with the count,
    and the line."""
    beside = [Beside(sighting.symptom, sighting.line) for sighting in seen]
    decided = [(sighting, find_decisive(sighting.symptom, beside)) for sighting in seen]
    return [
        _symptom(
            sighting.symptom,
            *(
                [("seen", f"{sighting.count} time{'s' if sighting.count != 1 else ''} in {where}: {sighting.line}")]
                if where
                else []
            ),
            decided=by,
            health=in_health(sighting.verdict, decided=sighting.ended, past=sighting.past) if sighting.verdict else "",
            past=bool(sighting.past),
            certainty=BY_PART if sighting.by_part else "",
        )
        for sighting, by in sorted(decided, key=lambda pair: pair[1] is not None)
    ]


# Caveat for a cause that no source documents.
CERTAINTY: dict[Confidence, str] = {
    "confirmed": "",
    "inferred": "inferred: the sources show the message; that this is its cause is concluded from them, and they do "
    "not all say it",
    "unconfirmed": "unconfirmed: no source says that this is the cause",
}


# Caveat for a message that no row has.
BY_PART = "by the part of the program that printed it: gpuprov does not know this message, but what this part fails of"


def all_checks() -> list[Check]:
    """Return every check of every capability, in order."""
    return [check for capability in BY_NAME.values() for check in capability.checks]


def _explain_capabilities(text: str) -> list[Explanation]:
    capability = BY_NAME.get(text.casefold().replace("-", "_"))
    if capability is None:
        return []
    top = [field for field in fields.fields(capability.name) if len(field.path) == 2]
    lines = [("does", capability.summary), *((f"field {field.path[1]}", field.does) for field in top)]
    lines += [(f"check {check.id}", check.description) for check in capability.checks]
    return [Explanation(kind="capability", name=capability.name, lines=tuple(lines))]


def _explain_fields(text: str) -> list[Explanation]:
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


def _explain_checks(text: str) -> list[Explanation]:
    answers, name = [], text.casefold()
    capability = BY_NAME.get(name.partition(".")[0])
    for check in capability.checks if capability else ():
        if check.id == name:
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


def _explain_commands(text: str, commands: Mapping[str, str]) -> list[Explanation]:
    name = text.casefold().removeprefix("gpuprov ").partition(" -")[0].strip()
    if name not in commands:
        return []
    lines = (("does", commands[name]), ("see", f"gpuprov {name} --help"))
    return [Explanation(kind="command", name=f"gpuprov {name}", lines=lines)]


def _explain_versions(text: str) -> list[Explanation]:
    return [Explanation(kind=row.kind, name=row.name, lines=row.lines) for row in explain_version(text)]


def _explain_keys(text: str) -> list[Explanation]:
    """Return the field whose keys are such names: NCCL's variables, or what follows a field in a path."""
    if re.fullmatch(r"NCCL_[A-Z0-9_]+", text):
        return _explain_fields("rdma.nccl.settings")
    outer = text.rpartition(".")[0]
    return [row for row in _explain_fields(outer) if "mapping" in dict(row.lines)["allowed"]] if "." in outer else []


def _explain_terms(text: str) -> list[Explanation]:
    term = find_term(text)
    if term is None:
        return []
    sources = read_terms_file().sources
    lines = (("means", term.means), ("see", term.see), *(("source", sources[key].url) for key in term.source))
    return [Explanation(kind="term", name=term.key, lines=lines)]


def _explain_symptoms(text: str) -> list[Explanation]:
    """Return the symptoms in a message that a terminal broke into these lines, in a log of these lines, or else of a
    line with these words; then other messages that contain the words."""
    whole = symptoms_in(choose_joined(join_broken(text)))
    keys = {sighting.symptom.key for sighting in whole}
    seen = whole + [sighting for sighting in symptoms_in(text) if sighting.symptom.key not in keys]
    seen = seen or (symptoms_in(" ".join(text.split())) if "\n" in text else [])
    shown = {sighting.symptom.key for sighting in seen}
    return _list_answers(seen) + [_symptom(symptom) for symptom in find_symptom(text) if symptom.key not in shown]


def _symptom(
    symptom: Symptom,
    *seen: tuple[str, str],
    decided: Beside | None = None,
    health: str = "",
    past: bool = False,
    certainty: str = "",
) -> Explanation:
    """Explain a symptom. `decided`: a neighbouring message that shows the actual cause, so that the other causes are
    left out; `health`: what health makes of its line; `past`: something ended it, so that nothing is to be done;
    `certainty`: a caveat in the place of the symptom's own."""
    causes = _list_decided(decided) if decided else _list_causes(symptom)
    lines = (
        *seen,
        *(line for line in causes if not past or line[0] in ("cause", "or")),
        ("health", health),
        ("certainty", certainty or CERTAINTY[symptom.confidence]),
        *(("source", address) for address in dict.fromkeys(list_addresses(symptom))),
    )
    named = tuple(line for line in lines if line[1])
    return Explanation(kind="symptom", name=" | ".join(symptom.signatures), lines=named)


def _list_decided(beside: Beside) -> tuple[tuple[str, str], ...]:
    return (("cause", f"{beside.symptom.cause} So it says beside it: {beside.line}"), ("fix", beside.symptom.fix))


def _list_causes(symptom: Symptom) -> tuple[tuple[str, str], ...]:
    return (
        ("cause", symptom.cause),
        ("check", symptom.check),
        ("fix", symptom.fix),
        ("NVIDIA says", symptom.action),
        *(
            line
            for other in symptom.others
            for line in (("or", other.cause), ("check", other.check), ("fix", other.fix))
        ),
    )
