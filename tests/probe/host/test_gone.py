"""What the command of a unit is made of, and is not there: the snippet itself, with a systemctl that shows such a command."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from gpuprov.onhost.files import ABOVE
from gpuprov.probe.host.boot_unit import GONE


def gone(tmp_path: Path, command: str) -> list[str]:
    shown = (
        f"{{ path={command.split(maxsplit=1)[0]} ; argv[]={command} ; ignore_errors=no ; start_time=[n/a] ; pid=0 }}"
        if command
        else ""
    )
    program = tmp_path / "systemctl"
    program.write_text(f"#!/bin/sh\necho '{shown}'\n")
    program.chmod(0o755)
    script = f"u=gpuprov-roce.service\n{GONE.replace(ABOVE, f'{tmp_path}/lib')}true"
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    return subprocess.run(
        ["sh", "-c", script], env=environment, capture_output=True, text=True, check=True
    ).stdout.split()


@pytest.mark.parametrize(
    ("command", "lost"),
    [
        ("", []),
        ("/bin/sh -B -m rdma.roce apply 60", []),
        ("/opt/python3.9 -B -m rdma.roce apply 60", ["gone|/opt/python3.9"]),
        ("/bin/sh -B -m rdma.soft apply 60", ["gone|{}/lib/rdma/soft.py"]),
        ("/bin/sh -B -m mig boot --wait 120", ["gone|{}/lib/mig/__main__.py"]),
        ("/bin/sh {}/lib/rdma/roce.py apply 60", []),
        ("/bin/sh {}/lib/rdma/roce.sh apply 60", ["gone|{}/lib/rdma/roce.sh"]),
    ],
)
def test_python_and_its_module(tmp_path: Path, command: str, lost: list[str]) -> None:
    module = tmp_path / "lib/rdma/roce.py"
    module.parent.mkdir(parents=True)
    module.touch()
    assert gone(tmp_path, command.format(tmp_path)) == [line.format(tmp_path) for line in lost]
