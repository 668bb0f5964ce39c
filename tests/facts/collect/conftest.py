from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.facts.collect.sshd import SSHD, Sshd


@pytest.fixture(scope="session")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    """Three real ssh servers on loopback."""
    if SSHD is None or os.geteuid() != 0:
        pytest.skip("needs sshd and root")
    servers = Sshd(tmp_path_factory.mktemp("sshd"), 3)
    yield servers
    servers.stop()


@pytest.fixture(autouse=True)
def plain_ansible(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    """No ansible.cfg and no ANSIBLE_ variable of whoever runs the tests."""
    for name in [name for name in os.environ if name.startswith("ANSIBLE_")]:
        monkeypatch.delenv(name)
    empty = f"{tmp_path}/ansible.cfg"
    with open(empty, "w", encoding="utf-8"):
        monkeypatch.setenv("ANSIBLE_CONFIG", empty)
