"""The judge's script on a host: read whole, whatever its size and the size of what it prints."""

from __future__ import annotations

import base64
import zlib

import pytest

from tests.host_code.modules import ran

PIPE = 300_000
"""Bytes that no pipe holds: 64 KiB on Linux, pipe(7)."""


def test_a_script_and_an_output_larger_than_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    """The shell runs a script while it reads it: one who writes all of it before reading an answer waits for ever."""
    script = f"head -c {PIPE} /dev/zero | tr '\\0' x\n" + "# padding\n" * (PIPE // 10) + "echo end\n"
    answer = ran(capsys, "gpuprov_judge", capabilities=[], moment="now", script=script)
    printed = zlib.decompress(base64.b64decode(answer["printed"]))
    assert printed.startswith(b"x" * PIPE)
    assert printed.rstrip().endswith(b"end")
