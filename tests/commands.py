"""gpuprov's command line, in the process of the tests."""

from __future__ import annotations

import sys

import pytest

from gpuprov.__main__ import main


def run_main(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    """Run `gpuprov WORDS`; return its exit code."""
    with monkeypatch.context() as patched:
        patched.setattr(sys, "argv", ["gpuprov", *words])
        patched.setattr(sys, "excepthook", sys.excepthook)
        with pytest.raises(SystemExit) as ended:
            main()
    return int(ended.value.code or 0)
