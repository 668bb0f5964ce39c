"""Messages as people have pasted them in public: each is explained by the symptom that its thread came to."""

from __future__ import annotations

import re

import yaml

from gpuprov.capabilities import BY_NAME
from gpuprov.catalog.context import fold
from gpuprov.catalog.lookup import find_sxid
from gpuprov.catalog.signatures import find_held
from gpuprov.catalog.symptoms import list_addresses, list_symptoms, resolve_for_line
from gpuprov.explain import all_checks, explain, fields, in_text
from gpuprov.spec.build import convert
from tests.explain.corpus import lines

THREADS = [line for line in lines() if not line.held_out]
BY_KEY = {symptom.key: symptom for symptom in list_symptoms()}


def test_what_people_paste_in_public() -> None:
    wrong = []
    for line in THREADS:
        known = [resolve_for_line(BY_KEY[key], find_sxid(line.line), line.line) for key in line.answer if key in BY_KEY]
        names = {" | ".join(symptom.signatures) for symptom in known}
        log = f"2026-01-01 00:00:00 host program[1]: starting\n{line.line}\n2026-01-01 00:00:01 host program[1]: done\n"
        healthy = [held.is_harmless for held in find_held(fold(line.line))][:1] == [True]
        for answers in (explain(line.line), [] if healthy else in_text(log, "a log")):
            if answers and answers[0].name not in names:
                wrong.append((line.source, line.answer, answers[0].name))
    assert wrong == []


def test_causes_stand_in_the_order_of_likelihood_each_with_its_command_and_fix() -> None:
    lines = explain("slurmd: fatal: can't stat gres.conf file /dev/nvidia0")[0].lines
    told = [title for title, _ in lines]
    assert told[: told.index("source") + 1] == [
        "cause",
        "check",
        "fix",
        "or",
        "check",
        "fix",
        "or",
        "check",
        "fix",
        "source",
    ]
    for symptom in list_symptoms():
        read = any(one.startswith("http") for one in list_addresses(symptom))
        assert read or symptom.confidence != "confirmed", f"{symptom.key}: no source that can be read"
        for other in symptom.others:
            assert other.cause
            assert other.check
            assert other.fix, symptom.key


def test_fixes_name_blocks_and_fields_that_there_are() -> None:
    wrong = []
    checks = {check.id for check in all_checks()}
    for symptom in list_symptoms():
        for fix in (symptom.fix, *(other.fix for other in symptom.others)):
            for name, block in re.findall(r"\b([a-z_]+): (\{(?:[^{}]|\{[^{}]*\})*\})", fix):
                if name in BY_NAME and "..." not in block:
                    _, findings = convert(yaml.safe_load(block), BY_NAME[name].fragment, (name,))
                    wrong += [(symptom.key, one[1]) for one in findings]
            for words in re.findall(r"(?<![\w/.-])[a-z_]+(?:\.[a-z_]+)+(?![\w/.-])", fix):
                if (
                    words.split(".")[0] in BY_NAME
                    and not words.endswith(".conf")
                    and not fields.named(words)
                    and words not in checks
                ):
                    wrong.append((symptom.key, words))
    assert not wrong


def test_as_many_messages_are_known_beside_xids() -> None:
    assert sum(not symptom.xids for symptom in list_symptoms()) >= 150
    messages = [said for symptom in list_symptoms() if not symptom.xids for said in symptom.signatures]
    assert len(messages) >= 150
    assert len({number for symptom in list_symptoms() for number in symptom.xids}) >= 150
