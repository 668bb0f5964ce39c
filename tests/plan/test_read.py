"""How Ansible reaches a host that was read: by what was judged, unless the inventory says otherwise."""

from __future__ import annotations

import pytest

from gpuprov.plan.read import Reading, for_ansible
from gpuprov.probe.base import Facts, Output
from gpuprov.spec.model import HostSpec, RawHost


@pytest.fixture(autouse=True)
def _no_ansible_cfg(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    for name in ("ANSIBLE_PYTHON_INTERPRETER", "ANSIBLE_EXECUTABLE"):
        monkeypatch.delenv(name, raising=False)
    with open(f"{tmp_path}/ansible.cfg", "w", encoding="utf-8"):
        monkeypatch.setenv("ANSIBLE_CONFIG", f"{tmp_path}/ansible.cfg")


def handed(pythons: str, **connection: object) -> dict[str, object]:
    reading = Reading(Facts({"python": Output(pythons)} if pythons else {}), ())
    raw, _ = for_ansible((RawHost(name="gpu1", connection=connection), HostSpec(name="gpu1")), reading)
    return raw.connection


def test_the_python_that_was_judged_is_the_one_that_ansible_uses() -> None:
    own = "login python 3.11 /usr/bin/python3\n"
    found = {"ansible_python_interpreter": "/usr/bin/python3", "ansible_shell_executable": "sh"}
    assert handed(own) == found
    assert handed(own, ansible_python_interpreter="auto_silent", ansible_user="ops") == found | {"ansible_user": "ops"}
    given = {"ansible_python_interpreter": "/opt/python", "ansible_shell_executable": "/bin/bash"}
    assert handed(own, **given) == given
    assert handed("") == {"ansible_shell_executable": "sh"}
    assert handed("login python 3.12 /opt/{{ lookup('pipe', 'id') }}\n") == {"ansible_shell_executable": "sh"}


def test_ansible_cfg_has_its_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANSIBLE_PYTHON_INTERPRETER", "/opt/python")
    assert "ansible_python_interpreter" not in handed("login python 3.11 /usr/bin/python3\n")
