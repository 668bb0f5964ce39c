"""Which driver cuda_toolkit's role judges toolkits by: the one that is coming, not the one that it replaces."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
DRIVER = {"host_capabilities": ["nvidia_driver", "cuda_toolkit"], "nvidia_driver_version": "580"}
ROWS: list[tuple[dict[str, Any], str]] = [
    ({}, "570.211.01"),  # the driver is not gpuprov's
    ({**DRIVER, "nvidia_driver_version": "575.57.08"}, "575.57.08"),
    ({**DRIVER, "__nvidia_driver_decision": {"version": "580.95.05"}}, "580.95.05"),
    ({**DRIVER, "__nvidia_driver_later": True}, ""),  # known when its package source is there
    (DRIVER, "570.211.01"),  # applied alone: nvidia_driver resolves nothing
]


def test_the_driver_that_is_coming_wins(tmp_path: Path) -> None:
    read = {"ansible.builtin.include_vars": {"file": str(ROOT / "roles/cuda_toolkit/vars/main.yml")}}
    libraries = {"__cuda_toolkit_libraries": {"stdout": "/usr/lib/x86_64-linux-gnu/libcuda.so.570.211.01\n"}}
    show = {"ansible.builtin.debug": {"msg": "judged by <{{ __cuda_toolkit_driver }}>"}}
    plays = [
        {"hosts": "localhost", "gather_facts": False, "vars": {**libraries, **known}, "tasks": [read, show]}
        for known, _ in ROWS
    ]
    (tmp_path / "play.yml").write_text(json.dumps(plays))
    command = [str(Path(sys.executable).with_name("ansible-playbook")), "-i", "localhost,", "-c", "local", "play.yml"]
    environment = {**os.environ, "ANSIBLE_STDOUT_CALLBACK": "ansible.builtin.default", "ANSIBLE_NOCOLOR": "1"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    told = [line.split("<")[1].split(">")[0] for line in done.stdout.splitlines() if "judged by <" in line]
    assert told == [version for _, version in ROWS], done.stdout + done.stderr
