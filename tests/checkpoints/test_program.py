"""The program as a host gets it: alone, without gpuprov beside it."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from gpuprov.checkpoints.program import program
from gpuprov.plan.host_lock import with_python

MOST = 128 << 10
"""Bytes that Linux takes in one argument: MAX_ARG_STRLEN, https://man7.org/linux/man-pages/man2/execve.2.html"""


@pytest.mark.parametrize("action", ["begin", "no-such-action"])
def test_it_has_all_that_it_imports(action: str) -> None:
    script = with_python(program(), {"action": action, "run": "../none"})
    done = subprocess.run(["sh"], input=script, capture_output=True, text=True, check=False)
    assert "problem" in json.loads(done.stdout or "{}"), done.stderr


def test_it_has_what_dnf_is_given_as_text() -> None:
    asks = "from gpuprov_onhost.packages import dnf; print(dnf.program())"
    text = program().replace("checkpoints.main()", asks)
    done = subprocess.run([sys.executable, "-IS", "-"], input=text, capture_output=True, text=True, check=False)
    assert "gpuprov-kept" in done.stdout, done.stderr


def test_it_fits_into_an_argument() -> None:
    assert len(program()) < MOST * 3 // 4
