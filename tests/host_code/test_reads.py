"""Which of the files that a unit has read have another content now, on the host and in what a probe prints."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from gpuprov.facts.probes.base import Output
from gpuprov.facts.probes.host.contents import READS, explain_age
from tests.host_code.modules import on_host
from tests.rows import run_each

reads = on_host("reads")
STARTED, UNIT, FILE = 1000.0, "nvidia-dcgm.service", "/etc/x.conf"


@run_each(
    ("changed", "digest", "note", "newer"),
    [
        (STARTED + 1, "a", None, True),
        (STARTED - 1, "a", None, False),
        (STARTED, "a", None, False),
        (STARTED + 1, "a", ("a", STARTED - 1), False),
        (STARTED + 1, "a", ("a", STARTED + 0.5), True),
        (STARTED + 1, "b", ("a", STARTED - 1), True),
        (STARTED + 1, "", ("a", STARTED - 1), True),
    ],
    ids=["changed", "before", "then", "touched", "written back", "edited", "no file any more"],
)
def test_what_counts_as_another_content(
    changed: float, digest: str, note: tuple[str, float] | None, newer: bool
) -> None:
    notes = {FILE: {"sum": note[0], "since": note[1]}} if note else {}
    known = reads.parse_notes(json.dumps(notes))
    assert reads.select_newer([reads.Found(FILE, changed, digest)], STARTED, known) == [FILE] * newer
    lines = [f"start|{UNIT}|{STARTED}", f"changed|{UNIT}|{changed}|{digest}|{FILE}"]
    printed = "\n".join(["@reads", *lines, *(f"note|{line}" for line in json.dumps(notes, indent=0).splitlines()), ""])
    assert READS.parse(Output(printed)) == ({UNIT: (FILE,)} if newer else {})


@run_each("text", ["", "{", "[]", '{"/etc/x.conf": 1}', '{"/etc/x.conf": {"sum": "a"}}'])
def test_damaged_notes_say_nothing(text: str) -> None:
    assert reads.parse_notes(text) == {}


def test_a_program_that_runs_from_its_file_is_the_same_whatever_its_time(tmp_path: Path) -> None:
    program, link = tmp_path / "daemon", tmp_path / "name"
    program.write_text("x")
    link.symlink_to(program)
    assert reads.list_newer([str(link)], 0) == [str(link), str(program)]
    assert reads.list_newer([str(program)], 0, [str(program)]) == []
    assert reads.list_newer([str(program)], 0, [f"{program} (deleted)"]) == [str(program)]
    assert reads.list_newer([f"{tmp_path}/none"], 0) == []
    assert reads.find_program(os.getpid()) == os.path.realpath(f"/proc/{os.getpid()}/exe")
    assert reads.find_program(0) == ""


def test_notes_are_kept_where_a_receipt_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, gone = tmp_path / "x.conf", tmp_path / "gone"
    monkeypatch.setattr(reads, "NOTES", str(tmp_path / "none" / "written.json"))
    file.write_text("a")
    reads.note_written([str(file)])
    assert not (tmp_path / "none").exists()
    monkeypatch.setattr(reads, "NOTES", str(tmp_path / "written.json"))
    gone.write_text("b")
    reads.note_written([str(file), str(gone)])
    gone.unlink()
    reads.note_written([str(gone)])
    (known,) = reads.parse_notes((tmp_path / "written.json").read_text()).items()
    assert known == (str(file), (reads.files.compute_digest(str(file)), file.lstat().st_ctime))


def test_in_words() -> None:
    newer = {UNIT: ("/etc/x/a", "/etc/x/b")}
    assert (explain_age(UNIT, newer), explain_age("other.service", newer)) == ("older than /etc/x/{a,b}", "")
