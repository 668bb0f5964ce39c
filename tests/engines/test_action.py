"""The action gpuprov_engines: what it has the host do, in which order, and what it says; the host is docker's file in memory."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from ansible.errors import AnsibleActionFail

from gpuprov.capabilities.container_toolkit import registration
from tests.capabilities.toolkit_host import CLOCK, docker

FILE = "/etc/docker/daemon.json"
SITE = {"log-driver": "journald"}


@pytest.fixture
def plugin() -> ModuleType:
    file = Path(__file__).parents[2] / "plugins" / "action" / "gpuprov_engines.py"
    found = importlib.util.spec_from_file_location("gpuprov_engines_action", file)
    assert found
    assert found.loader
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


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

    def ask(self, plugin: ModuleType, *, checking: bool = False, **asked: Any) -> dict[str, Any]:
        """What the action answers."""
        action = plugin.ActionModule.__new__(plugin.ActionModule)
        action._task = SimpleNamespace(args={"names": ["docker"], **asked}, check_mode=checking)

        def execute(module_name: str, module_args: dict[str, Any], task_vars: object) -> dict[str, Any]:
            assert (module_name, task_vars) == ("gpuprov_engines", {})
            return {"answer": self.take(module_args["step"], module_args["given"])}

        action._execute_module = execute
        self.steps.clear()
        answer: dict[str, Any] = action.run(None, {})
        return answer


@pytest.fixture(autouse=True)
def no_base(plugin: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugin.ActionBase, "run", lambda *_: {})
    monkeypatch.setattr(registration, "PAUSE", 0.0)


def test_what_is_lacking_is_said_in_check_mode_and_then_done_once(plugin: ModuleType) -> None:
    machine = Machine(dict(SITE))
    would = machine.ask(plugin, state="registered", checking=True)
    assert would["changed"]
    assert "docker: no runtime nvidia; nvidia-ctk would register the runtime" in would["diff"]["prepared"]
    assert machine.steps == ["read"]
    assert machine.ask(plugin, state="registered")["changed"]
    assert machine.steps == ["read", "keep", "read", "begin", "read", "run", "write", "read", "settled"]
    assert (machine.config["log-driver"], "nvidia" in machine.config["runtimes"]) == ("journald", True)
    again = machine.ask(plugin, state="registered")
    assert (again["changed"], machine.steps) == (False, ["read"])


def test_a_change_that_loses_something_is_undone_and_refused(plugin: ModuleType) -> None:
    machine = Machine(dict(SITE), loses="log-driver")
    with pytest.raises(
        AnsibleActionFail, match=r"docker: nvidia-ctk would lose log-driver = .journald.; it is as it was\. Fix: "
    ):
        machine.ask(plugin, state="registered")
    assert machine.steps[-1] == "back"
    assert machine.config == SITE


def test_an_end_in_between_puts_the_files_back(plugin: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(dict(SITE))
    take = machine.take

    def broken(step: str, given: dict[str, Any]) -> dict[str, Any]:
        if step == "write":
            take(step, given)
            raise OSError("no space left")
        return take(step, given)

    monkeypatch.setattr(machine, "take", broken)
    with pytest.raises(OSError, match="no space left"):
        machine.ask(plugin, state="registered")
    assert machine.config == SITE


def test_a_users_own_docker(plugin: ModuleType) -> None:
    machine = Machine(dict(SITE))
    would = machine.ask(plugin, state="registered", names=[], users=["kim"], checking=True)
    assert would["msg"].startswith("/home/kim/.config/docker/daemon.json: no runtime nvidia")
    assert machine.steps == ["own"]
    assert machine.ask(plugin, state="registered", names=[], users=["kim"])["changed"]
    assert machine.steps == ["own", "run_on_copy", "write_own"]
    assert not machine.ask(plugin, state="registered", names=[], users=["kim"])["changed"]
    broken = Machine(dict(SITE), loses="log-driver")
    with pytest.raises(AnsibleActionFail, match=r"out of container_toolkit\.rootless"):
        broken.ask(plugin, state="registered", names=[], users=["kim"])
    assert broken.steps == ["own", "run_on_copy"]


def test_a_daemon_is_told_once_and_said_in_check_mode(plugin: ModuleType) -> None:
    machine = Machine(dict(SITE))
    machine.live = {"Runtimes": {"runc": {}}}
    assert machine.ask(plugin, state="in_force", checking=True)["changed"]
    assert machine.steps == ["read"]
    told = machine.ask(plugin, state="in_force")
    assert (told["changed"], told["restart"]) == (True, [])
    assert machine.steps == ["read", "read", "tell", "read"]
    assert machine.ask(plugin, state="in_force") == {
        "restart": [],
        "changed": False,
        "msg": "",
        "diff": {"prepared": ""},
    }


def test_a_daemon_that_takes_its_time_is_asked_again(plugin: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
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
    told = machine.ask(plugin, state="in_force")
    assert (told["changed"], told["restart"]) == (True, [])
    assert machine.steps == ["read", "read", "tell", "read", "read", "read"]


def test_a_restart_of_docker_is_asked_for_and_refused_where_it_stops_containers(
    plugin: ModuleType, monkeypatch: pytest.MonkeyPatch
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
    assert machine.ask(plugin, state="in_force")["restart"] == ["docker"]
    assert machine.ask(plugin, state="restarted")["changed"]
    assert machine.steps == ["read", "read", "tell", "read"]
    assert machine.verbs == ["reload", "restart"]
    held = 2
    machine.live = {"Runtimes": {"runc": {}}, "ContainersRunning": held}
    with pytest.raises(AnsibleActionFail, match="would stop 2 running containers"):
        machine.ask(plugin, state="in_force")
    machine.live = {"Runtimes": {"runc": {}}, "ContainersRunning": held}
    assert machine.ask(plugin, state="in_force", drained=True)["restart"] == ["docker"]


def test_an_engine_that_is_gone_is_told(plugin: ModuleType) -> None:
    with pytest.raises(AnsibleActionFail, match=r"crio is not on the host\. Fix: install it"):
        Machine(dict(SITE)).ask(plugin, state="registered", names=["crio"])
