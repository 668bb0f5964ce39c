"""A module of ours, run in this process as Ansible runs it on a host."""

from __future__ import annotations

import importlib
import json
from typing import Any
from unittest import mock

import ansible.module_utils
import pytest
from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.testing import patch_module_args

from gpuprov.host_code.fence import Owner
from tests.here import PLUGINS

ansible.module_utils.__path__.append(str(PLUGINS / "module_utils"))

KIM: Owner = {
    "controller": "elsewhere",
    "pid": 77,
    "pid_start": "1",
    "user": "kim",
    "host": "ops1",
    "since": "2026-11-21T08:00:00Z",
    "run": "0a1b2c3d",
}
"""The owner of a lock, who works on another machine."""


def on_host(name: str) -> Any:
    """A module of gpuprov/host_code as the Ansible modules know it; tests move its folders elsewhere."""
    return importlib.import_module(f"ansible.module_utils.gpuprov_host_code.{name}")


def module(name: str) -> Any:
    return importlib.import_module(f"plugins.modules.{name}")


def ran(
    capsys: pytest.CaptureFixture[str], name: str, /, *, check: bool = False, diff: bool = True, **arguments: Any
) -> dict[str, Any]:
    """What the module prints. Its warnings are noted here: where a test has loaded Ansible's controller, they go to its
    display."""
    warnings: list[str] = []
    reads = on_host("reads")
    notes = "/nowhere/written.json" if reads.NOTES.startswith("/var/") else reads.NOTES
    with (
        mock.patch.object(reads, "NOTES", notes),
        patch_module_args({**arguments, "_ansible_check_mode": check, "_ansible_diff": diff}),
        mock.patch.object(AnsibleModule, "warn", lambda _self, warning, **_more: warnings.append(warning)),
        pytest.raises(SystemExit),
    ):
        module(name).main()
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found | ({"warnings": warnings} if warnings else {})


def step(
    capsys: pytest.CaptureFixture[str], name: str, /, *, check: bool = False, diff: bool = True, **arguments: Any
) -> dict[str, Any]:
    """What gpuprov_step prints of this step."""
    return ran(capsys, "gpuprov_step", check=check, diff=diff, name=name, arguments=arguments)
