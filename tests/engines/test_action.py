"""The step engines of a play: what it has the host do, in which order, and what it says; the host is docker's file in
memory."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gpuprov.capabilities.container_toolkit import registration
from gpuprov.play import StepFailed, engines
from tests.capabilities.toolkit_host import CLOCK, docker, k3s

FILE = "/etc/docker/daemon.json"
SITE = {"log-driver": "journald"}


class Machine:
    """A host with docker, whose nvidia-ctk registers the runtime; `loses`: also that setting of the site's."""

    def __init__(self, config: dict[str, Any], loses: str = "") -> None:
        self.config, self.loses, self.own, self.steps = config, loses, json.dumps(config), []  # type: ignore[var-annotated]
        self.live: dict[str, Any] | None = None
        self.verbs: list[str] = []

    def take(self, step: str, given: dict[str, Any]) -> dict[str, Any]:
        self.steps.append(step)
        if step == "read":
            return {"text": CLOCK + docker(self.config, self.live)}
        if step in ("keep", "begin", "back"):
            self.config = dict(SITE)
        if step == "write":
            self.config = json.loads(given["texts"][FILE])
        if step == "own":
            return {"path": "/home/kim/.config/docker/daemon.json", "text": self.own}
        if step == "write_own":
            self.own = given["text"]
        if step == "tell":
            self.verbs.append(given["verb"])
            self.live = None
        made = json.dumps({key: value for key, value in {**self.config, "runtimes": {"nvidia": {
            "args": [], "path": "nvidia-container-runtime"}}}.items() if key != self.loses})  # fmt: skip
        return {"status": 0, "error": "", "texts": {FILE: made}, "text": made, "reloaded": True}

    def ask(self, *, checking: bool = False, **asked: Any) -> Any:
        """What the step answers."""
        self.check_mode = checking
        self.steps.clear()
        return engines.run(self, {"names": ["docker"]} | asked)  # type: ignore[arg-type]

    def step(self, name: str, *, step: str, given: dict[str, Any]) -> dict[str, Any]:
        assert name == "engines"
        return {"answer": self.take(step, given)}


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registration, "PAUSE", 0.0)


def test_what_is_lacking_is_said_in_check_mode_and_then_done_once() -> None:
    machine = Machine(dict(SITE))
    would = machine.ask(state="registered", checking=True)
    assert would["changed"]
    assert "docker: no runtime nvidia; nvidia-ctk would register the runtime" in would["diff"]["prepared"]
    assert machine.steps == ["read"]
    assert machine.ask(state="registered")["changed"]
    assert machine.steps == ["read", "keep", "read", "begin", "read", "run", "write", "read", "settled"]
    assert (machine.config["log-driver"], "nvidia" in machine.config["runtimes"]) == ("journald", True)
    again = machine.ask(state="registered")
    assert (again["changed"], machine.steps) == (False, ["read"])


def test_a_change_that_loses_something_is_undone_and_refused() -> None:
    machine = Machine(dict(SITE), loses="log-driver")
    with pytest.raises(
        StepFailed, match=r"docker: nvidia-ctk would lose log-driver = .journald.; it is as it was\. Fix: "
    ):
        machine.ask(state="registered")
    assert machine.steps[-1] == "back"
    assert machine.config == SITE


def test_an_end_in_between_puts_the_files_back(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(dict(SITE))
    take = machine.take

    def broken(step: str, given: dict[str, Any]) -> dict[str, Any]:
        if step == "write":
            take(step, given)
            raise OSError("no space left")
        return take(step, given)

    monkeypatch.setattr(machine, "take", broken)
    with pytest.raises(OSError, match="no space left"):
        machine.ask(state="registered")
    assert machine.config == SITE


def test_a_users_own_docker() -> None:
    machine = Machine(dict(SITE))
    would = machine.ask(state="registered", names=[], users=["kim"], checking=True)
    assert would["msg"].startswith("/home/kim/.config/docker/daemon.json: no runtime nvidia")
    assert machine.steps == ["own"]
    assert machine.ask(state="registered", names=[], users=["kim"])["changed"]
    assert machine.steps == ["own", "run_on_copy", "write_own"]
    assert not machine.ask(state="registered", names=[], users=["kim"])["changed"]
    broken = Machine(dict(SITE), loses="log-driver")
    with pytest.raises(StepFailed, match=r"out of container_toolkit\.rootless"):
        broken.ask(state="registered", names=[], users=["kim"])
    assert broken.steps == ["own", "run_on_copy"]


def test_a_daemon_is_told_once_and_said_in_check_mode() -> None:
    machine = Machine(dict(SITE))
    machine.live = {"Runtimes": {"runc": {}}}
    assert machine.ask(state="in_force", checking=True)["changed"]
    assert machine.steps == ["read"]
    told = machine.ask(state="in_force")
    assert (told["changed"], told["restart"]) == (True, [])
    assert machine.steps == ["read", "read", "tell", "read"]
    assert machine.ask(state="in_force") == {"restart": [], "changed": False, "msg": "", "diff": {"prepared": ""}}


def test_a_daemon_that_takes_its_time_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(dict(SITE))
    old: dict[str, Any] = {"Runtimes": {"runc": {}}}
    machine.live = old
    take = machine.take

    def slow(step: str, given: dict[str, Any]) -> dict[str, Any]:
        """Its answers are the old ones until it was asked three times more."""
        answer = take(step, given)
        machine.live = old if step != "read" or machine.steps.count("read") < 4 else None
        return answer

    monkeypatch.setattr(machine, "take", slow)
    told = machine.ask(state="in_force")
    assert (told["changed"], told["restart"]) == (True, [])
    assert machine.steps == ["read", "read", "tell", "read", "read", "read"]


def test_a_restart_of_docker_is_asked_for_and_refused_where_it_stops_containers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine = Machine(dict(SITE))
    take = machine.take

    def stubborn(step: str, given: dict[str, Any]) -> dict[str, Any]:
        """Its daemon takes nothing by reload."""
        answer = take(step, given)
        if given.get("verb") == "reload":
            machine.live = {"Runtimes": {"runc": {}}, "ContainersRunning": held}
        return answer

    monkeypatch.setattr(machine, "take", stubborn)
    held = 0
    machine.live = {"Runtimes": {"runc": {}}, "ContainersRunning": held}
    assert machine.ask(state="in_force")["restart"] == ["docker"]
    assert machine.ask(state="restarted")["changed"]
    assert machine.steps == ["read", "read", "tell", "read"]
    assert machine.verbs == ["reload", "restart"]
    held = 2
    machine.live = {"Runtimes": {"runc": {}}, "ContainersRunning": held}
    with pytest.raises(StepFailed, match="would stop 2 running containers"):
        machine.ask(state="in_force")
    machine.live = {"Runtimes": {"runc": {}}, "ContainersRunning": held}
    assert machine.ask(state="in_force", drained=True)["restart"] == ["docker"]


def test_an_engine_that_is_gone_is_told() -> None:
    with pytest.raises(StepFailed, match=r"crio is not on the host\. Fix: install it"):
        Machine(dict(SITE)).ask(state="registered", names=["crio"])


class K3s(Machine):
    """A host with RKE2, which finds the runtime when it is started again."""

    def take(self, step: str, given: dict[str, Any]) -> dict[str, Any]:
        answer = super().take(step, given)
        if step == "tell":
            assert given == {"verb": "restart", "unit": "rke2-agent.service"}
        return {"text": CLOCK + k3s("rke2", runtime="/usr/bin/nvidia-container-runtime" if self.verbs else "")} | (
            answer if step != "read" else {}
        )


def test_rke2_is_restarted_by_its_unit_and_once() -> None:
    machine = K3s({})
    told = machine.ask(state="in_force", names=["rke2"])
    assert (told["changed"], machine.steps) == (True, ["read", "read", "tell", "read"])
    assert "rke2: /var/lib/rancher/rke2/agent/etc/containerd/config.toml, which it wrote" in told["msg"]
    assert not machine.ask(state="in_force", names=["rke2"])["changed"]
