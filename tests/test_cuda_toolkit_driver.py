"""Which driver cuda_toolkit's role judges toolkits by: the one that is coming, not the one that it replaces."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.here import ROLES, play

pytestmark = pytest.mark.install

DRIVER = {"host_capabilities": ["nvidia_driver", "cuda_toolkit"], "nvidia_driver_version": "580"}
ROWS: list[tuple[dict[str, Any], str]] = [
    ({}, "570.211.01"),  # the driver is not gpuprov's
    ({**DRIVER, "nvidia_driver_version": "575.57.08"}, "575.57.08"),
    ({**DRIVER, "__nvidia_driver_decision": {"version": "580.95.05"}}, "580.95.05"),
    ({**DRIVER, "__nvidia_driver_later": True}, ""),  # known when its package source is there
    (DRIVER, "570.211.01"),  # applied alone: nvidia_driver resolves nothing
]


def test_the_driver_that_is_coming_wins(tmp_path: Path) -> None:
    read = {"ansible.builtin.include_vars": {"file": str(ROLES / "cuda_toolkit/vars/main.yml")}}
    libraries: dict[str, Any] = {
        "__cuda_toolkit_libraries": {"stdout": "/usr/lib/x86_64-linux-gnu/libcuda.so.570.211.01\n"}
    }
    show = {"ansible.builtin.debug": {"msg": "judged by <{{ __cuda_toolkit_driver }}>"}}
    plays: list[dict[str, Any]] = [{"vars": {**libraries, **known}, "tasks": [read, show]} for known, _ in ROWS]
    done = play(tmp_path, *plays)
    told = [line.split("<")[1].split(">")[0] for line in done.stdout.splitlines() if "judged by <" in line]
    assert told == [version for _, version in ROWS], done.stdout + done.stderr
