"""Readers have limits: what nests too deep, stands for too much or has too many digits is refused, fast and by name."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gpuprov.core import safe_parse
from gpuprov.core.safe_parse import Unreadable, format_document


def bomb(levels: int, width: int = 9) -> str:
    """A few hundred bytes that stand for `width` to the power of `levels` values."""
    lines = [f"a0: &a0 [{', '.join('x' * width)}]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * width)}]" for n in range(1, levels)]
    return "\n".join(lines)


REFUSED: tuple[tuple[Callable[[str], Any], str, str, int], ...] = (
    (safe_parse.parse_yaml, "[" * 200_000, "too deep", 1),
    (safe_parse.parse_yaml, "{a: " * 200_000, "too deep", 1),
    (safe_parse.parse_yaml, "- " * 50_000 + "x", "too deep", 1),
    (
        safe_parse.parse_yaml,
        "a: [" + "[" * 60 + "]" * 60 + "]\nb: &b [" + "[" * 60 + "]" * 60 + "]\nc: [" + "[" * 50 + "*b",
        "too deep",
        3,
    ),
    (safe_parse.parse_yaml, bomb(9), "aliases stand for too much", 7),
    (safe_parse.parse_yaml, bomb(40), "aliases stand for too much", 7),
    (safe_parse.parse_yaml, "a: &a {<<: [" + "*a, " * 3 + "]}", "refers to itself", 1),
    (safe_parse.parse_yaml, "x: 1\na: &a {children: {b: *a}}", "*a refers to itself", 2),
    (safe_parse.parse_yaml, "a: " + "9" * 4300, "a number of 4300 characters", 1),
    (safe_parse.parse_yaml, "a: 0x" + "f" * 50_000, "a number of 50002 characters", 1),
    (safe_parse.parse_yaml, "a: 1" + ":59" * 5000, "a number of 15001 characters", 1),
    (safe_parse.parse_yaml, "2001-99-99", "not YAML: month must be in 1..12", 0),
    (safe_parse.parse_yaml, "!!timestamp x", "not YAML", 0),
    (safe_parse.parse_yaml, "!!int x", "not YAML", 0),
    (safe_parse.parse_yaml, "!!python/object/apply:os.system [true]", "not YAML", 0),
    (safe_parse.parse_yaml, "{[a]: b}", "not YAML", 0),
    (safe_parse.parse_yaml, "\x00", "not YAML", 0),
    (safe_parse.parse_json, "[" * 100_000, "too deep", 1),
    (safe_parse.parse_json, "[" * 101 + "]" * 101, "too deep", 1),
    (safe_parse.parse_json, '{"a": ' * 5000 + "1" + "}" * 5000, "too deep", 1),
    (safe_parse.parse_json, '{"a":\n' + "9" * 5000 + "}", "a number of 5000 characters", 2),
    (safe_parse.parse_json, "[9999999999999999999]", "has too many digits", 0),
    (safe_parse.parse_json, "[1e999]", "not a number", 0),
    (safe_parse.parse_json, "[NaN]", "NaN is not JSON", 0),
    (safe_parse.parse_json, "", "not JSON", 0),
    (safe_parse.parse_json, '["\\ud800', "not JSON", 0),
    (safe_parse.parse_toml, "a = " + "[" * 50_000, "too deep", 1),
    (safe_parse.parse_toml, "a" + ".a" * 20_000 + " = 1", "too deep", 1),
    (safe_parse.parse_toml, "x = 1\n[a" + ' . "a"' * 200 + "]", "too deep", 2),
    (safe_parse.parse_toml, "a = " + "9" * 50, "too many digits", 0),
    (safe_parse.parse_toml, "a = ", "not TOML", 0),
    (safe_parse.parse_toml, "a = 2001-99-99", "not TOML", 0),
    (safe_parse.parse_numbers, "0-9999999999", "means too many numbers", 0),
    (safe_parse.parse_numbers, ",".join(["0-60000"] * 2), "means too many numbers", 0),
    (safe_parse.parse_numbers, "0-" + "9" * 5000, "too many digits", 0),
    (safe_parse.parse_numbers, "0-3x", "is not a range", 0),
    (safe_parse.check_unicode, '{"a": "\\ud800"}', r"\ud800 is not a character", 1),
)


def test_what_is_too_much_is_refused_in_a_moment() -> None:
    for read, text, message, line in REFUSED:
        started = time.process_time()
        with pytest.raises(Unreadable) as caught:
            read(text)
        assert message in str(caught.value), (text[:60], str(caught.value))
        assert caught.value.line == line, (text[:60], caught.value.line)
        assert time.process_time() - started < 1, text[:60]


def test_what_is_too_large_is_refused_unread() -> None:
    for read in (safe_parse.parse_yaml, safe_parse.parse_json, safe_parse.parse_toml):
        with pytest.raises(Unreadable, match=r"^too large; allowed: "):
            read(" " * (safe_parse.HOST_TEXT + 1))


def test_what_people_and_programs_write_is_read() -> None:
    assert safe_parse.parse_yaml("a: &a {b: 1}\nc: [*a, *a]\nd: {<<: *a, e: 2}") == {
        "a": {"b": 1},
        "c": [{"b": 1}, {"b": 1}],
        "d": {"b": 1, "e": 2},
    }
    assert safe_parse.parse_yaml("[" * 100 + "]" * 100)
    assert safe_parse.parse_yaml(f"sha512: {'0123456789abcdef' * 8}") == {"sha512": "0123456789abcdef" * 8}
    assert safe_parse.parse_yaml(f"text: '{'9' * 5000}'")["text"] == "9" * 5000
    assert safe_parse.parse_yaml(b"a: \xe9") == {"a": "�"}
    assert safe_parse.parse_json('{"a": [1, -2, 0.5, "[[[", "\\ud83d\\ude00"]}') == {
        "a": [1, -2, 0.5, "[[[", "\U0001f600"]
    }
    assert safe_parse.parse_json("[" * 100 + "]" * 100)
    assert safe_parse.parse_yaml("# " + "-" * 200 + "\na: '" + "[" * 200 + "'  # " + "[" * 200)["a"] == "[" * 200
    assert safe_parse.parse_toml('[a."b.c"]\nd = [1, 2]\n') == {"a": {"b.c": {"d": [1, 2]}}}
    assert safe_parse.parse_numbers("0-1, 128-129,7,") == {0, 1, 7, 128, 129}
    assert (
        safe_parse.parse_numbers("")
        == safe_parse.parse_numbers("3-1")
        == safe_parse.parse_numbers("all")
        == frozenset()
    )
    safe_parse.check_unicode('{"a": "\\ud83d\\ude00 \\\\ud800"}')


def test_digits_of_other_scripts_are_no_numbers() -> None:
    for text in ("²", "٣", "１", "", "-", "--1", "+1", "1_0", " 1", "1 ", "9" * 19, "0x10", "1.0", "\ud800"):
        assert safe_parse.parse_whole(text) is None, text
        assert safe_parse.parse_signed(text) is None, text
    assert (safe_parse.parse_whole("0012"), safe_parse.parse_whole("-1"), safe_parse.parse_signed("-12")) == (
        12,
        None,
        -12,
    )
    for text in ("nan", "inf", "-inf", "1e999", "1_0", "٣", "", "9" * 200):
        assert safe_parse.parse_number(text) is None, text
    assert (safe_parse.parse_number("12.5"), safe_parse.parse_number("-3e2")) == (12.5, -300.0)


def test_only_files_are_opened(tmp_path: Path) -> None:
    pipe, loop, good = tmp_path / "pipe", tmp_path / "loop", tmp_path / "good"
    os.mkfifo(pipe)
    loop.symlink_to(loop)
    good.write_text("x" * 10)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket"))
        for path, what in (
            (pipe, "a pipe"),
            (loop, safe_parse.LOOP),
            (tmp_path / "socket", "a socket"),
            (Path("/dev/zero"), "a device"),
        ):
            with pytest.raises(Unreadable, match=f"^this is {what}; allowed: a file$"):
                safe_parse.read_contents(str(path))
            with pytest.raises(Unreadable, match=f"^this is {what}"):
                safe_parse.judge_file(str(path))
    assert safe_parse.read_contents(str(good)) == b"x" * 10
    with pytest.raises(Unreadable, match=r"^too large"):
        safe_parse.read_contents(str(good), 9)
    with pytest.raises(Unreadable, match=r"^too large"):
        safe_parse.judge_file(str(good), 9)
    with pytest.raises(FileNotFoundError):
        safe_parse.read_contents(str(tmp_path / "none"))
    assert safe_parse.explain_refusal(str(tmp_path)) == safe_parse.explain_refusal(str(tmp_path / "none")) == ""


def test_lines_have_a_length() -> None:
    safe_parse.judge_lines(b"a\n" * 100_000)
    with pytest.raises(Unreadable) as caught:
        safe_parse.judge_lines(b"a\n" + b"-" * 70_000)
    assert (caught.value.line, caught.value.message) == (2, "a line that is too long")


def test_texts_become_well_formed() -> None:
    assert safe_parse.make_well_formed("é\udce9\ud83d\ude00x") == "é�\U0001f600x"
    event = {"a\udce9": ["\ud800", {"b": 1, "c": None}], "ok": "é"}
    assert safe_parse.make_all_well_formed(event) == {"a�": ["�", {"b": 1, "c": None}], "ok": "é"}


def test_versions_that_nobody_wrote_have_an_order_too() -> None:
    from gpuprov.rules.package_lists import rpm_order

    odd = ["cat: no such file", "²:1-1", "9" * 5000 + ":1-1", ":", "1:2-3", "2-3"]
    assert sorted(odd, key=rpm_order)[-1] == "1:2-3"


def test_a_document_holds_what_is_no_unicode() -> None:
    class Row(msgspec.Struct):
        names: tuple[str, ...]
        more: dict[str, list[str]]

    row = Row(names=("caf\udce9", "ok"), more={"\udce9": ["x", "\ud800"]})
    assert json.loads(format_document(row)) == {"names": ["caf\ufffd", "ok"], "more": {"\ufffd": ["x", "\ufffd"]}}
    assert format_document({"a": 1}, indent=1) == '{\n "a": 1\n}'


def test_every_document_is_made_there() -> None:
    """Another encoder would end with a traceback where a host or a file has a byte that is not UTF-8."""
    root = Path(safe_parse.__file__).parents[2]
    files = [file for file in root.rglob("*.py") if "json.format(" in file.read_text(encoding="utf-8")]
    assert [str(file.relative_to(root)) for file in files] == ["core/safe_parse/texts.py"]
