"""The runtime in running daemons, and in a user's own docker: what is told to whom, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from gpuprov.capabilities.container_toolkit import registration
from gpuprov.capabilities.container_toolkit.registration import DONE, NOTHING, InMemory, Told, enforce, register
from gpuprov.rules.cluster_engines import TEMPLATE
from gpuprov.rules.engine_output import Engine
from tests.capabilities.toolkit_host import BARE, CLOCK, DAEMON, FILLED, containerd, docker, k3s, microk8s

OLD: dict[str, Any] = {"Runtimes": {"runc": {}}}
NEEDS: dict[str, Any] = {**OLD, "ContainersRunning": 3, "LiveRestoreEnabled": False}


class Daemon:
    """One that is found so, time after time; the last stays."""

    def __init__(self, *states: str) -> None:
        self.states, self.told = list(states), []  # type: ignore[var-annotated]

    def read(self) -> str:
        return CLOCK + (self.states.pop(0) if len(self.states) > 1 else self.states[0])

    def tell(self, verb: str, unit: str) -> None:
        self.told.append(f"{verb} {unit}")

    def give_up(self, name: str) -> None:
        self.told.append(f"give up {name}")


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registration, "PAUSE", 0.0)


def test_a_daemon_that_has_it_is_left_alone() -> None:
    host = Daemon(docker())
    assert enforce(host, "docker", False) == Told(changed=False)
    assert host.told == []


@pytest.mark.parametrize(
    ("name", "states", "told"),
    [
        ("docker", [docker(info=OLD), docker()], ["reload docker.service"]),
        ("docker", [docker(info=OLD), docker(info=OLD), docker(answers=False), docker()], ["reload docker.service"]),
        ("docker", [docker(active="failed"), docker()], ["restart docker.service"]),
        ("containerd", [containerd(changed=9e9), containerd()], ["restart containerd.service"]),
        ("containerd", [containerd(active="inactive"), containerd()], ["restart containerd.service"]),
        ("k3s", [k3s(runtime=""), k3s(runtime=""), k3s()], ["restart k3s.service"]),
        ("rke2", [k3s("rke2", runtime=""), k3s("rke2")], ["restart rke2-agent.service"]),
        ("microk8s", [microk8s(written=BARE), microk8s()], ["restart snap.microk8s.daemon-containerd.service"]),
    ],
)
def test_docker_is_reloaded_and_others_are_restarted(name: str, states: list[str], told: list[str]) -> None:
    host = Daemon(*states)
    assert enforce(host, name, False) == Told(changed=True)
    assert host.told == told


def test_docker_is_not_restarted_while_that_stops_containers() -> None:
    host = Daemon(docker(info=NEEDS))
    found = enforce(host, "docker", False)
    assert "which would stop 3 running containers: docker info lists no runtime nvidia. Fix: stop them" in found.problem
    assert host.told == ["reload docker.service"]


@pytest.mark.parametrize(
    ("info", "may_stop"),
    [({**NEEDS, "ContainersRunning": 0}, False), ({**NEEDS, "LiveRestoreEnabled": True}, False), (NEEDS, True)],
)
def test_it_may_be_where_none_is_stopped_or_there_was_a_drain(info: dict[str, Any], may_stop: bool) -> None:
    host = Daemon(docker(info=info))
    found = enforce(host, "docker", False, may_stop=may_stop)
    assert (found.problem, found.restart) == ("", "docker info lists no runtime nvidia")
    assert host.told == ["reload docker.service"], "who calls drains first"
    again = Daemon(docker(info=info), docker())
    assert enforce(again, "docker", False, restart=True) == Told(changed=True)
    assert again.told == ["restart docker.service"]


def test_a_docker_that_does_not_say_how_many_run_is_not_restarted() -> None:
    assert "its running containers" in enforce(Daemon(docker(answers=False)), "docker", False).problem
    assert registration.would_stop(Engine(live="{")) == "its"


def test_a_daemon_that_does_not_live_with_it_gets_its_files_back() -> None:
    host = Daemon(containerd(changed=9e9), containerd(active="failed"))
    found = enforce(host, "containerd", False)
    assert (
        found.problem
        == "containerd.service is failed: it does not start. Fix: journalctl -u containerd.service, on the host"
    )
    assert host.told == ["restart containerd.service", "give up containerd"]


def test_a_daemon_that_lives_without_it_keeps_its_files() -> None:
    host = Daemon(containerd(changed=9e9))
    assert "changed after the daemon was started" in enforce(host, "containerd", False).problem
    assert host.told == ["restart containerd.service"]


def test_a_k3s_that_does_not_find_it_has_nothing_to_give_back() -> None:
    host = Daemon(k3s(runtime=""), k3s(runtime="", active="failed"))
    assert "k3s.service is failed: it does not start" in enforce(host, "k3s", False).problem
    assert host.told == ["restart k3s.service"]


class Snap:
    """MicroK8s' template: a `registration.Host`."""

    def __init__(self, text: str) -> None:
        self.first = self.text = text

    def read(self) -> str:
        return CLOCK + microk8s(self.text, BARE)

    def write(self, files: dict[str, str]) -> None:
        self.text = files[TEMPLATE]

    def back(self) -> None:
        self.text = self.first

    def restore(self) -> None:
        raise AssertionError("nvidia-ctk has no part in it")

    def configure(self, command: list[str]) -> tuple[int, str, dict[str, str]]:
        raise AssertionError(command)


def test_a_template_keeps_its_variables_and_comments() -> None:
    host = Snap(BARE)
    assert register(host, "microk8s", False) == DONE
    assert host.text == FILLED
    assert register(Snap(FILLED), "microk8s", False) == NOTHING
    assert register(host, "microk8s", True) == DONE
    assert host.text == FILLED.replace("${RUNTIME}", "nvidia")
    assert register(host, "microk8s", False) == DONE
    assert host.text == FILLED
    broken = Snap("a = [\n")
    assert "is not valid TOML" in register(broken, "microk8s", False)
    assert broken.text == broken.first


def ctk(lost: Sequence[str] = (), status: int = 0) -> Any:
    """What nvidia-ctk makes of a docker configuration."""

    def run(command: list[str], text: str) -> tuple[int, str, str]:
        assert not [word for word in command if "config" in word and word != "configure"], "the caller says where"
        found = {key: value for key, value in json.loads(text or "{}").items() if key not in lost}
        found |= {"default-runtime": "nvidia"} if "--set-as-default" in command else {}
        found.setdefault("runtimes", {})["nvidia"] = {"args": [], "path": "nvidia-container-runtime"}
        return status, "it broke", json.dumps(found)

    return run


def test_a_users_own_file_is_written_whole_or_not_at_all() -> None:
    memory = InMemory('{"data-root": "/scratch"}\n', ctk())
    assert register(memory, "docker", False) == DONE
    assert json.loads(memory.text) == {"data-root": "/scratch", "runtimes": DAEMON["runtimes"]}
    assert register(InMemory(memory.text, ctk()), "docker", False) == NOTHING
    empty = InMemory("", ctk())
    assert register(empty, "docker", True) == DONE
    assert json.loads(empty.text)["default-runtime"] == "nvidia"
    for run, told in ((ctk(lost=["data-root"]), "would lose data-root"), (ctk(status=1), "nvidia-ctk: it broke")):
        refused = InMemory('{"data-root": "/scratch"}', run)
        assert told in register(refused, "docker", False)
        assert refused.text == '{"data-root": "/scratch"}'


def test_a_users_default_that_is_not_wanted_goes() -> None:
    memory = InMemory('{"default-runtime": "nvidia", "features": {"buildkit": true}}', ctk())
    assert register(memory, "docker", False) == DONE
    found = json.loads(memory.text)
    assert (found["default-runtime"], found["features"]) == ("runc", {"buildkit": True})
