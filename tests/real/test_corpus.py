"""What gpuprov reads of real hosts' outputs is what is true of those hosts."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gpuprov.catalog.lookup import find_symptom
from gpuprov.facts.probes.base import ProbeFailed
from tests.real.commands import COMMANDS
from tests.real.corpus import captures, command_of, differences, parsers, probes, with_summary
from tests.real.scripts import PLACES, SCRIPTS

LIMITS = Path(__file__).parents[2] / "docs" / "explanation" / "limits.md"


def test_every_capture_says_where_it_is_from_and_what_is_true() -> None:
    for capture in captures():
        about = capture.about
        sources = (about.source,) if isinstance(about.source, str) else about.source
        assert all(source.startswith(("https://", "public ", "read on ")) for source in sources), capture.name
        assert about.facts, capture.name
        assert capture.files, capture.name
        assert set(about.commands) | set(about.status) <= set(capture.files), capture.name
        for file in capture.files:
            assert command_of(file) in COMMANDS or command_of(file) in PLACES, (
                f"{capture.name}: the table has no command {command_of(file)}"
            )


@pytest.mark.parametrize("scripts", [False, pytest.param(True, marks=pytest.mark.install)])
def test_what_the_parsers_say_is_true(scripts: bool) -> None:
    wrong = []
    for capture in captures():
        for file, reading, output in capture.readings():
            if file.startswith("script of ") != scripts:
                continue
            try:
                found = reading.facts(output)
            except ProbeFailed as error:
                found = {"refused": str(error)}
            where = f"{capture.name}/{file} ({reading.parser})"
            wrong += [f"{where}: {one}" for one in differences(capture.about.facts, found)]
            if not capture.about.facts.keys() & found.keys():
                wrong.append(f"{where}: nothing is compared; it says {found}")
    assert not wrong, "\n" + "\n".join(wrong)


def test_a_capture_of_pieces_alone_is_read_by_a_script() -> None:
    unread = [
        one.name
        for one in captures()
        if not any(command_of(file) in COMMANDS for file in one.files) and not list(one.readings())
    ]
    assert not unread, f"no script reads {unread}: see `needs` and `tells` of scripts.py"


def test_explain_answers_every_message() -> None:
    wrong = []
    for capture in captures():
        said = "".join(output.text for output in capture.files.values())
        for message, key in capture.about.messages.items():
            found = [symptom.key for symptom in find_symptom(message)]
            if found[:1] != [key]:
                wrong.append(f"{capture.name}: {message!r} is {key}, explain answers {found or 'nothing'}")
            if not set(re.findall(r"\w{4,}", message)) <= set(re.findall(r"\w{4,}", said)):
                wrong.append(f"{capture.name}: no output has {message!r}")
    assert not wrong, "\n" + "\n".join(wrong)


def test_a_wrong_reading_is_found() -> None:
    assert differences({"gpus": 8}, {"gpus": 7}) == ["gpus: true 8, read 7"]
    assert differences({"modules": {"nvidia": 1, "nouveau": None}}, {"modules": {"nvidia": 1, "nouveau": 0}})
    assert differences({"fabric": [["Completed", "Success"]]}, {"fabric": (("Completed", "Success"),)}) == []
    assert differences({"runtime": {"path": "a"}}, {"runtime": {"path": "b"}})


def test_the_table_has_no_command_without_a_capture_and_names_parsers_that_are_there() -> None:
    used = {command_of(file) for capture in captures() for file in capture.files}
    assert set(COMMANDS) <= used
    assert set(PLACES) <= used, f"no capture has {sorted(set(PLACES) - used)}"
    assert used <= set(COMMANDS) | set(PLACES)
    named = {reading.parser for readings in COMMANDS.values() if isinstance(readings, tuple) for reading in readings}
    named |= {script.parser for script in SCRIPTS}
    assert named <= parsers() | {"catalog: drivers", "catalog: gpus"}


def test_what_is_not_counted_reads_files_of_gpuprov_alone() -> None:
    own = [probe for probe in probes().values() if probe.own]
    assert own
    for probe in own:
        paths = re.findall(r"(?<![\w.$}])/(?:boot|dev|etc|lib|opt|proc|run|sys|usr|var)/[^\s;*'\"]+", probe.script)
        assert paths, probe.name
        assert [path for path in paths if "gpuprov" not in path and path != "/dev/null"] == [], probe.name
        programs = re.findall(
            r"\b(?:apt\S*|dkms|docker|dpkg\S*|journalctl|modinfo|nvidia-\S+|podman|rpm|systemctl) ", probe.script
        )
        assert not programs, probe.name


def test_limits_name_the_parsers_that_real_outputs_have_hardly_tried() -> None:
    text = LIMITS.read_text(encoding="utf-8")
    assert text == with_summary(text), "docs/explanation/limits.md is stale: python docs/generate.py"
    assert with_summary(text.replace("`house.receipt`, ", "")) == text
