"""`gpuprov mig fit` and `gpuprov mig layouts` as a user sees them: text, JSON, exit codes."""

from __future__ import annotations

import io
import json
import sys
from typing import Any

import pytest

from gpuprov.cli import cli
from gpuprov.core.errors import GpuprovError
from gpuprov.core.locales import is_plain
from gpuprov.hardware.mig.command import instances
from gpuprov.host_code.mig.layout import Instance


@pytest.fixture(autouse=True)
def _wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.delenv("LC_ALL", raising=False)
    monkeypatch.setattr("gpuprov.hardware.mig.command.is_plain", lambda: False)


def run(*arguments: str) -> int:
    code: int = cli.main(["mig", *arguments], standalone_mode=False)
    return code


def said(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    assert run(*arguments) == code
    out, err = capsys.readouterr()
    assert err == ""
    return out


def as_json(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(said(capsys, *arguments, "--json", code=code))
    return found


def test_the_picture(capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, "fit", "--gpu", "H100-SXM5-80GB", "1g.10gb=2", "2g.20gb=1", "3g.40gb=1") == (
        """3g.40gb, 2g.20gb, 2 x 1g.10gb on H100-SXM5-80GB: fits

 0         1         2         3         4         5         6         7
┌───────────────────┬─────────┬─────────┬───────────────────────────────────────┐
│ 2g.20gb           │ 1g.10gb │ 1g.10gb │ 3g.40gb                               │
└───────────────────┴─────────┴─────────┴───────────────────────────────────────┘

instance  memory slices  compute slices  memory     SMs
2g.20gb   0-1            2               19.62 GiB  32
1g.10gb   2              1               9.75 GiB   16
1g.10gb   3              1               9.75 GiB   16
3g.40gb   4-7            3               39.5 GiB   60

room for: nothing more
"""
    )


def test_compute_instances_and_what_is_unused(capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, "fit", "--gpu", "A100-SXM4-80GB", "3g.40gb@0", "1c.3g.40gb=3") == (
        """2 x 3g.40gb on A100-SXM4-80GB: fits

 0    1    2    3    4    5    6    7
┌───────────────────┬───────────────────┐
│ 3g.40gb           │ 3g.40gb           │
│                   │ 1c 1c 1c          │
└───────────────────┴───────────────────┘

instance  memory slices  compute slices                  SMs
3g.40gb   0-3            3                               42
3g.40gb   4-7            3 (1+1+1 in compute instances)  42

room for: nothing more
"""
    )
    text = said(capsys, "fit", "--gpu", "H200-SXM", "1g.18gb")
    assert "│ unused " in text
    assert "room for: 1g.18gb, 1g.18gb+me, 1g.35gb, 2g.35gb, 3g.71gb, 4g.71gb\n" in text
    assert text.endswith("note: placements of H200-SXM are inferred: taken from GPUs of its kind, not seen on one\n")


@pytest.mark.parametrize(
    ("columns", "first"),
    [
        (105, "│ 1g.10gb+me │ 1g.10gb    │"),
        (100, "│ 1g.10gb+me│ 1g.10gb   │"),
        (96, "│ 1g.10gb │ 1g.10gb │"),
        (81, "│ +me     │         │"),
        (80, "│ 1g.10gb│ 1g.10gb│"),
    ],
)
def test_the_picture_is_no_wider_than_the_terminal(
    columns: int, first: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    text = said(capsys, "fit", "--gpu", "A100-SXM4-80GB", "1g.10gb+me@0", "1g.10gb=6")
    assert first in text
    assert max(map(len, text.splitlines())) <= columns


def test_a_terminal_too_narrow_for_a_picture_gets_the_table(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    text = said(capsys, "fit", "--gpu", "A100-SXM4-80GB", "1g.10gb=7")
    assert "│" not in text
    assert "1g.10gb   6              1               14" in text
    assert "\n3g.40gb@0, 2g.20gb@4, 1g.20gb@6\n" in said(capsys, "layouts", "--gpu", "A100-SXM4-80GB")


def test_twelve_slices_in_ascii(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpuprov.hardware.mig.command.is_plain", lambda: True)
    text = said(capsys, "fit", "--gpu", "RTX-PRO-6000-SE", "1g.24gb+me.all", "2g.48gb-me")
    assert text.isascii()
    assert text.splitlines()[2:6] == [
        " 0     1     2     3     4     5     6     7     8     9     10    11",
        "+-----------------------------------+-----------------+-----------------+",
        "| 2g.48gb-me                        | 1g.24gb+me.all  | unused          |",
        "+-----------------------------------+-----------------+-----------------+",
    ]
    layouts = said(capsys, "layouts", "--gpu", "RTX-PRO-6000-SE")
    assert layouts.isascii()
    assert "|2g.48gb+me.all               |2g.48gb-me                   |\n" in layouts


@pytest.mark.parametrize(
    ("encoding", "locale", "plain"),
    [
        ("utf-8", "", False),
        ("UTF8", "de_DE.UTF-8", False),
        ("utf-8", "C", True),
        ("ascii", "", True),
        ("latin-1", "", True),
    ],
)
def test_which_terminals_are_plain(encoding: str, locale: str, plain: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding=encoding))
    monkeypatch.setenv("LC_ALL", locale)
    assert is_plain() is plain


def test_a_closed_output_is_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    assert is_plain()


def test_json_of_a_fit(capsys: pytest.CaptureFixture[str]) -> None:
    assert as_json(capsys, "fit", "--gpu", "A100-SXM4-80GB", "2c.3g.40gb", "1c.3g.40gb", "4g.40gb") == {
        "gpu": "A100-SXM4-80GB",
        "memory_slices": 8,
        "placements": "confirmed",
        "fits": True,
        "instances": [
            {"profile": "4g.40gb", "start": 0, "size": 4, "compute": [4]},
            {"profile": "3g.40gb", "start": 4, "size": 4, "compute": [2, 1]},
        ],
        "create": [0, 1],
    }


def test_what_does_not_fit(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ("fit", "--gpu", "A100-SXM4-80GB", "3g.40gb=2", "1g.10gb")
    assert said(capsys, *asked, code=2) == (
        """does not fit on A100-SXM4-80GB: 9 memory slices are needed (2 x 3g.40gb: 8, 1g.10gb: 1); the GPU has 8
fits instead:
  2 x 3g.40gb
  3g.40gb, 2g.20gb, 1g.10gb
all layouts: gpuprov mig layouts --gpu A100-SXM4-80GB
"""
    )
    assert as_json(capsys, *asked, code=2) == {
        "gpu": "A100-SXM4-80GB",
        "memory_slices": 8,
        "placements": "confirmed",
        "fits": False,
        "reason": "9 memory slices are needed (2 x 3g.40gb: 8, 1g.10gb: 1); the GPU has 8",
        "instead": [["3g.40gb", "3g.40gb"], ["3g.40gb", "2g.20gb", "1g.10gb"]],
    }
    text = said(capsys, "fit", "--gpu", "A100-SXM4-80GB", "3g.40gb@0", "4g.40gb", code=2)
    assert "\n  4g.40gb, 3g.40gb (where there is room)\n" in text


def test_a_driver_that_is_too_old(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ("fit", "--gpu", "A100-SXM4-80GB", "3g.40gb", "4g.40gb", "--driver")
    assert said(capsys, *asked, "470", code=2) == (
        "A100-SXM4-80GB: 3g beside 4g needs driver branch 510 or newer, and the driver is 470\n"
        "nvidia_driver.version: a branch from 510 on\n"
    )
    assert as_json(capsys, *asked, "470.82.01", code=2)["fits"] is False
    assert "fits" in said(capsys, *asked, "535")
    with pytest.raises(GpuprovError, match='"latest" is not a driver'):
        run(*asked, "latest")


def test_a_gpu_whose_placements_are_not_known(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ("fit", "--gpu", "RTX-PRO-5000", "1g.24gb=2")
    assert said(capsys, *asked, code=2) == (
        "RTX-PRO-5000: it is not known where its profiles start\non the host: nvidia-smi mig -lgipp\n"
    )
    assert as_json(capsys, *asked, code=2)["fits"] is None
    assert as_json(capsys, "fit", "--gpu", "RTX-PRO-5000", "1g.24gb=3", code=2)["fits"] is False
    with pytest.raises(GpuprovError, match="the placements of RTX-PRO-5000's profiles are unknown"):
        run("layouts", "--gpu", "RTX-PRO-5000")


def test_layouts(capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, "layouts", "--gpu", "A30") == (
        """A30: 8 layouts to which no instance can be added, on 4 memory slices

 0         1         2         3
│4g.24gb                                │
│2g.12gb            │2g.12gb            │
│2g.12gb            │2g.12gb+me         │
│2g.12gb            │1g.6gb   │1g.6gb   │
│2g.12gb            │1g.6gb   │1g.6gb+me│
│2g.12gb+me         │1g.6gb   │1g.6gb   │
│1g.6gb   │1g.6gb   │1g.6gb   │1g.6gb   │
│1g.6gb   │1g.6gb   │1g.6gb   │1g.6gb+me│
"""
    )
    assert "│1g.10gb   │·         │\n" in said(capsys, "layouts", "--gpu", "A100-SXM4-80GB")
    found = as_json(capsys, "layouts", "--gpu", "A30")
    assert (found["gpu"], found["memory_slices"], found["placements"]) == ("A30", 4, "confirmed")
    assert found["layouts"][1] == [
        {"profile": "2g.12gb", "start": 0, "size": 2},
        {"profile": "2g.12gb", "start": 2, "size": 2},
    ]
    assert "note: placements of H200-SXM are inferred" in said(capsys, "layouts", "--gpu", "H200-SXM")


def test_words() -> None:
    found = instances(["1g.10gb", "3g.40gb@4", "1g.10gb=2", "1c.3g.40gb@0=2", "1c.2g.20gb=2"])
    assert found == (
        Instance("2g.20gb", None, (1, 1)),
        *[Instance("1g.10gb")] * 3,
        Instance("3g.40gb", 4),
        Instance("3g.40gb", 0, (1, 1)),
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["3g.40gb=x"], '"3g.40gb=x" names no instances'),
        (["=2"], '"=2" names no instances'),
        (["3g.40gb=1=2"], '"3g.40gb=1=2" names no instances'),
        (["3g"], '"3g" is not a MIG profile; a profile is written 3g.40gb, '),
        (["1g.10gb=65"], "1g.10gb is 65; allowed: whole numbers from 0 to 64"),
        (["3g.40gb=0"], "all counts are 0"),
        (["1g.10gb=1000000000000"], "1g.10gb is 1000000000000; allowed: whole numbers from 0 to 64"),
        (["3g.40gb@4=2"], "2 instances cannot all start at slice 4"),
        (["3g@4"], '"3g" is not a MIG profile'),
    ],
)
def test_words_that_name_nothing(words: list[str], message: str) -> None:
    with pytest.raises(GpuprovError) as caught:
        instances(words)
    assert caught.value.message.startswith(message)
    assert caught.value.fix.startswith("write PROFILE, PROFILE=COUNT or PROFILE@SLICE")


def test_a_refusal_is_broken_between_words_on_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = said(capsys, "fit", "--gpu", "H100-SXM5-80GB", "9g.40gb", code=2)
    assert max(map(len, whole.splitlines())) > 80, "what is piped can be searched"
    monkeypatch.setattr("gpuprov.hardware.mig.command.terminal.room", lambda _stream: 80)
    lines = said(capsys, "fit", "--gpu", "H100-SXM5-80GB", "9g.40gb", code=2).splitlines()
    assert max(map(len, lines)) <= 80
    assert " ".join(" ".join(lines).split()) == " ".join(whole.split())
