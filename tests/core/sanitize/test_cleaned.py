"""What becomes of each kind of hidden character, and what stays as it is."""

from __future__ import annotations

import json
import unicodedata
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml

from gpuprov.core import sanitize, terminal, unsafe_yaml
from gpuprov.core.sanitize import BOLD, cleaned, hanging, hides, in_markup, painted
from gpuprov.report import health
from gpuprov.report.text import COLOURS, render
from gpuprov.verify.evaluate import Result


def test_each_hidden_character_is_named() -> None:
    rows = {
        "\x1b]0;OWNED\x07\x1b[2J": "\\u001b]0;OWNED\\u0007\\u001b[2J",
        "a\rb\x00c\x7f": "a\\u000db\\u0000c\\u007f",
        "\x9b31m": "\\u009b31m",
        "user\u202etxt.exe": "user\\u202etxt.exe",
        "\u2066\u2069\u200f": "\\u2066\\u2069\\u200f",
        "ro\u200bot\ufeff": "ro\\u200bot\\ufeff",
        "\U000e0041": "\\udb40\\udc41",
        "\udce9": "\\udce9",
        "a\u2028b\x85": "a\\u2028b\\u0085",
    }
    for text, expected in rows.items():
        assert cleaned(text) == expected
        assert hides(text)
        assert not hides(cleaned(text))
    for text in ("", "plain\n\ttext", "naïve — 東京 \U0001f600 [red]x[/red] \\u001b", "e\u0301", "a\xa0b"):
        assert cleaned(text) == text
        assert not hides(text)


def test_orders_to_a_ci_that_keeps_the_log_are_none() -> None:
    rows = {
        "x ##vso[task.setvariable variable=BASH_ENV]y": "x \\u0023#vso[task.setvariable variable=BASH_ENV]y",
        "###[add-mask]x": "#\\u0023#[add-mask]x",
        "##teamcity[buildStatus status='SUCCESS']": "\\u0023#teamcity[buildStatus status='SUCCESS']",
        "a\n \xa0::stop-commands::b": "a\n \xa0\\u003a:stop-commands::b",
        "::error file=a,line=1::b": "\\u003a:error file=a,line=1::b",
    }
    for text, expected in rows.items():
        assert cleaned(text) == cleaned(expected) == expected
        assert json.loads(cleaned(json.dumps(text, ensure_ascii=False))) == text
        for one in (text, f"{text} {{{{ x }}}}"):
            assert yaml.safe_load(cleaned(unsafe_yaml.text([one])).replace(unsafe_yaml.TAG, "")) == [one]
    for text in ("::ffff:192.0.2.1: no answer", "a ::error::b", "rdma::x", "## [x]", "## heading", "::1", "a::b::c"):
        assert cleaned(text) == text


def test_a_line_stays_one_line() -> None:
    """What a host says in one begins no line of another host."""
    for width in (0, 25, 200):
        first, *rest = hanging("  gpu1: failed\ngpu2: unchanged, as wanted", width)
        assert "\n" not in first
        assert all(line.startswith("    ") for line in rest)
    assert hanging("", 0) == hanging("", 80) == [""]


def test_no_character_that_drives_a_terminal_is_left() -> None:
    everything = "".join(map(chr, range(0x110000)))
    seen = cleaned(everything)
    left = {unicodedata.category(one) for one in seen if one not in "\n\t"}
    assert not left & {"Cc", "Cs", "Zl", "Zp"}
    bidi = {unicodedata.bidirectional(one) for one in seen}
    assert not bidi & {"LRE", "RLE", "PDF", "LRO", "RLO", "LRI", "RLI", "FSI", "PDI", "BN"} - {"BN"}
    ElementTree.fromstring(f"<a>{in_markup(everything)}</a>")


def test_json_that_was_cleaned_reads_back_as_what_it_was() -> None:
    for text in ("\x1b[2J", "a\x9bb\u202ec", "\U000e0041", "tab\tand\nline", "back\\slash"):
        assert json.loads(cleaned(json.dumps(text, ensure_ascii=False))) == text
        assert json.loads(cleaned(json.dumps([text], ensure_ascii=False), "ascii")) == [text]


def test_what_the_encoding_cannot_hold_is_named() -> None:
    assert cleaned("é€\x1b", "latin-1") == "é\\u20ac\\u001b"
    assert cleaned("\U0001f600", "ascii") == "\\ud83d\\ude00"
    assert cleaned("é€", "utf-8") == "é€"


def test_own_colours_stay_and_no_other_sequence(monkeypatch: pytest.MonkeyPatch) -> None:
    assert painted("\x1b[31mFAIL\x1b[0m \x1b[8mhidden\x1b[2J") == "\x1b[31mFAIL\x1b[0m \\u001b[8mhidden\\u001b[2J"
    monkeypatch.setattr(terminal, "coloured", lambda _stream: True)
    for code in {BOLD, *COLOURS.values(), *health.COLOURS.values()}:
        text = terminal.paint("x", code, None)
        assert painted(text) == text


def test_nobody_else_writes_a_colour() -> None:
    """What `painted` does not know is shown as `\\u001b[2m`."""
    files = [
        file
        for file in Path(sanitize.__file__).parents[1].rglob("*.py")
        if r"\x1b[{" in file.read_text(encoding="utf-8")
    ]
    assert files == [Path(sanitize.__file__)]


@pytest.mark.parametrize("status", sorted(COLOURS))
def test_each_status_is_shown_in_its_colour(status: str, monkeypatch: pytest.MonkeyPatch) -> None:
    result = Result(host="gpu1", capability="mig", check="mig.mode", status=status, moment="now", found="nothing")  # type: ignore[arg-type]
    monkeypatch.setattr(terminal, "coloured", lambda _stream: True)
    text = painted(render([result], verbose=True, colour=True))
    assert f"\x1b[{COLOURS[status]}m" in text
    assert "u001b" not in text
