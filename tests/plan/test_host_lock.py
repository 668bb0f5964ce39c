"""Which Python of a host takes its lock."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpuprov.host_code import lock
from gpuprov.plan.host_lock import command

NEWER = [file for folder in ("/usr/bin", "/usr/local/bin") for file in Path(folder).glob("python3.[0-9]*[0-9]")]


@pytest.mark.skipif(not NEWER, reason="needs a Python with its version in its name")
def test_an_old_python3_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on EL 8, whose python3 is 3.6: one that says so of itself, since no such Python can be had."""
    program, old = tmp_path / "program.py", tmp_path / "python3"
    program.write_text("import sys; print(sys.stdin.read(), sys.version_info >= (3, 8))", encoding="utf-8")
    monkeypatch.setattr(lock, "__file__", str(program))
    says = f"""#!/bin/sh
[ "$1" = -c ] && exec {sys.executable} -c 'import sys; sys.version_info = (3, 6, 8); exec(sys.argv[1])' "$2"
echo "from __future__ import annotations: SyntaxError"; exit 1
"""
    old.write_text(says, encoding="utf-8")
    old.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    words = ["sh", "-c", command("take", {"run": "1"}, "gpu1")]
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=environment)
    assert done.stdout == '{"action": "take", "owner": {"name": "gpu1", "run": "1"}} True\n', done.stderr
