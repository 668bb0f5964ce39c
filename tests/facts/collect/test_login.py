"""-u and -K fill in what the inventory leaves open; it wins over both, as with Ansible."""

from __future__ import annotations

import pytest

from gpuprov.core.errors import GpuprovError
from gpuprov.facts.collect import settings
from gpuprov.facts.collect.command import build
from gpuprov.facts.collect.settings import Settings
from gpuprov.spec.model import RawHost


def host(name: str, **connection: object) -> RawHost:
    return RawHost(name=name, connection=connection)


def test_the_user_of_hosts_that_name_none() -> None:
    hosts, own = settings.as_user(
        [host("a"), host("b", ansible_user="root"), host("c", ansible_ssh_user="x")], "deploy"
    )
    assert [Settings(one).text("user") for one in hosts] == ["deploy", "root", "x"]
    assert own == ["b", "c"]
    assert "User=deploy" in build(Settings(hosts[0]), "true").argv


def test_a_user_that_no_host_takes_is_refused() -> None:
    with pytest.raises(GpuprovError, match="every host names its own user") as caught:
        settings.as_user([host("a", ansible_user="root")], "deploy")
    assert caught.value.fix == "to override them: -e ansible_user=deploy"


def test_the_password_of_hosts_that_become_another_user_and_have_none(monkeypatch: pytest.MonkeyPatch) -> None:
    hosts = [
        host("needs", ansible_become=True, ansible_user="ops"),
        host("has", ansible_become=True, ansible_user="ops", ansible_become_pass="its own"),
        host("root", ansible_become=True, ansible_user="root"),
        host("not"),
    ]
    assert settings.who_ask(hosts) == ["needs"]
    found = settings.with_password(hosts, "hunter2")
    assert [Settings(one).text("become_password") for one in found] == ["hunter2", "its own", "", ""]
    command = build(Settings(found[0]), "true")
    assert "hunter2" not in " ".join(command.argv)
    assert b"hunter2" in command.stdin
    monkeypatch.setenv("ANSIBLE_BECOME", "true")
    assert settings.who_ask([host("not")]) == ["not"], "as Ansible's configuration says"
