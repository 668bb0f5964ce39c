"""A host that two inventories call by two names is one host to roll-outs."""

from __future__ import annotations

import socket
import time
from pathlib import Path
from typing import Any

import pytest

from gpuprov.core.errors import GpuprovError
from gpuprov.fleet.policy.events import Started
from gpuprov.rollout import addresses
from gpuprov.rollout.addresses import reached
from gpuprov.rollout.kept import Kept
from gpuprov.rollout.store import Store
from gpuprov.spec.model import RawHost

NAMES = {"gpu1.example": "192.0.2.1", "alias.example": "192.0.2.1", "other.example": "192.0.2.2"}


def raw(name: str, **connection: object) -> RawHost:
    return RawHost(name=name, connection=connection)


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(host: str, *_: Any, **__: Any) -> list[Any]:
        if host == "slow.example":
            time.sleep(0.5)
        if host not in NAMES and not host.startswith(("192.", "2001:")):
            raise socket.gaierror(socket.EAI_NONAME, "unknown")
        return [(0, 0, 0, "", (NAMES.get(host, host), 0))]

    monkeypatch.setattr(socket, "getaddrinfo", answer)


@pytest.mark.usefixtures("names")
@pytest.mark.parametrize(
    ("other", "one_host"),
    [
        (raw("b", ansible_host="gpu1.example"), True),
        (raw("b", ansible_host="alias.example"), True),
        (raw("b", ansible_host="192.0.2.1"), True),
        (raw("alias.example"), True),
        (raw("b", ansible_host="alias.example", ansible_port=22), True),
        (raw("b", ansible_host="alias.example", ansible_port=2222), False),
        (raw("b", ansible_host="other.example"), False),
        (raw("b", ansible_host="unknown.example"), False),
        (raw("b", ansible_host="alias.example", ansible_ssh_common_args="-o ProxyJump=bastion"), False),
        (raw("b", ansible_host="alias.example", ansible_ssh_extra_args="-J bastion"), False),
    ],
)
def test_two_names_of_one_host_are_one_host(tmp_path: Path, other: RawHost, one_host: bool) -> None:
    store = Store(tmp_path)
    store.begin(kept("friday"), [*reached([raw("a", ansible_host="gpu1.example")])], FIRST)
    assert store.get("friday").hosts == 1
    if one_host:
        with pytest.raises(GpuprovError, match="the roll-out friday is open and has a too"):
            store.begin(kept("monday"), [*reached([other])], FIRST)
    else:
        store.begin(kept("monday"), [*reached([other])], FIRST)


@pytest.mark.usefixtures("names")
@pytest.mark.parametrize("first", [raw("a", ansible_host="gpu1.example"), raw("gpu1.example", ansible_port=22)])
def test_a_fleet_has_a_host_by_one_name(first: RawHost) -> None:
    """Its jobs and drains would work on it by both."""
    with pytest.raises(GpuprovError, match=f"b is the same machine as {first.name}, .* reached at 192.0.2.1 port 22"):
        [*reached([first, raw("b", ansible_host="alias.example")])]
    apart = [
        raw("b", ansible_host="alias.example", ansible_ssh_common_args="-J bastion"),
        raw("c", ansible_connection="local"),
    ]
    assert [name for name, _ in reached([first, *apart])].count("b") == 1


@pytest.mark.install
@pytest.mark.usefixtures("names")
def test_a_name_that_is_not_answered_is_known_by_its_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(addresses, "LIMIT", 0.1)
    assert [*reached([raw("slow", ansible_host="slow.example")])] == [("slow", "slow.example")]


FIRST = Started(at=1.0, by="alice")


def kept(name: str) -> Kept:
    return Kept(name, "digest", 1.0, "alice", True, 1)
