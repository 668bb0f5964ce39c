"""Brings NVIDIA's runtime into container engines: gpuprov's own Python decides here, and the module takes the steps on the host.

Runs on the controller, with the Python package gpuprov beside ansible-core: what an engine has in force is read there by the probe of
the checks, and judged by the same functions. A host on which nothing differs is read once, and nothing on it is changed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ansible.module_utils
from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

# Ansible finds module_utils of ours for modules alone.
ansible.module_utils.__path__.append(str(Path(__file__).parents[1] / "module_utils"))
from ansible.module_utils.gpuprov_onhost import missing

try:  # at the top: the strategy loads this file once, and its workers inherit what it imports
    from gpuprov.capabilities.container_toolkit import registration
    from gpuprov.probe.containers.container_engines import ENGINES
    from gpuprov.shared import ended, engine_output, engines

    MISSING = ""
except ImportError as error:
    MISSING = str(error)

BY_HAND = "or register the runtime by hand and take {} out of container_toolkit.{}"


class ActionModule(ActionBase):  # type: ignore[misc]
    """Registered in the files, or in force in the daemons."""

    _requires_connection = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        if MISSING:
            raise AnsibleActionFail(missing.package(MISSING, task_vars or {}))
        asked = {"users": [], "default": False, "drop_ins": True, "drained": False, **self._task.args}
        host = Host(self, task_vars or {})
        work = _registered if asked["state"] == "registered" else _in_force
        return {**result, "restart": [], **work(host, asked, checking=bool(self._task.check_mode))}


class Host:
    """The host of a task."""

    def __init__(self, action: ActionBase, known: dict[str, Any]) -> None:
        self._action, self._known, self.name = action, known, ""

    def step(self, name: str, **given: Any) -> dict[str, Any]:
        """Have the module take a step."""
        arguments = {"state": "registered", "names": [], "step": name, "given": given}
        answer = self._action._execute_module(
            module_name="gpuprov_engines", module_args=arguments, task_vars=self._known
        )
        if answer.get("failed") or answer.get("unreachable") or "answer" not in answer:
            raise AnsibleActionFail(ended.answer(answer) or "the host gave no answer")
        return dict(answer["answer"])

    def read(self) -> str:
        return str(self.step("read", script=ENGINES.script)["text"])

    @property
    def paths(self) -> list[str]:
        return registration.FILES[self.name]

    def of(self, name: str) -> Host:
        """This host, for the files of an engine."""
        self.name = name
        return self

    def restore(self) -> None:
        self.step("begin", engine=self.name, paths=self.paths)

    def write(self, files: dict[str, str]) -> None:
        self.step("write", texts=files)

    def configure(self, command: list[str]) -> tuple[int, str, dict[str, str]]:
        ran = self.step("run", argv=command, paths=self.paths)
        return ran["status"], ran["error"], ran["texts"]

    def back(self) -> None:
        self.step("back", engine=self.name, paths=self.paths, unless_changed=False)

    def tell(self, verb: str, name: str) -> None:
        self.step("tell", verb=verb, engine=name)

    def give_up(self, name: str) -> None:
        self.step("back", engine=name, paths=registration.FILES[name], unless_changed=True)
        self.tell("restart", name)

    def run_on_copy(self, command: list[str], text: str) -> tuple[int, str, str]:
        ran = self.step("run_on_copy", argv=command, text=text)
        return ran["status"], ran["error"], ran["text"]


def _registered(host: Host, asked: dict[str, Any], *, checking: bool) -> dict[str, Any]:
    """Files of root's engines, then those of users."""
    done = []
    for name, engine in _found(host, asked["names"]).items():
        lacking = engines.differences(name, engine, asked["default"])
        if lacking and checking:
            done.append(f"{name}: {'; '.join(lacking)}; nvidia-ctk would register the runtime")
        if not lacking or checking:
            continue
        host.of(name).step("keep", engine=name, paths=registration.FILES[name])
        told = registration.register(host, name, asked["default"], asked["drop_ins"])
        if told != registration.DONE:
            hint = "let no file sort behind 99-nvidia.toml in its folder, and keep what one plugin has in one file"
            raise AnsibleActionFail(f"{name}: {told}; it is as it was. Fix: {hint}; {BY_HAND.format(name, 'runtimes')}")
        host.step("settled", engine=name, paths=registration.FILES[name])
        done.append(f"{name}: the runtime is registered, which had: {'; '.join(lacking)}")
    done += [told for user in asked["users"] for told in _own(host, user, asked, checking=checking)]
    return {"changed": bool(done), "msg": "\n".join(done), "diff": {"prepared": "".join(f"{one}\n" for one in done)}}


def _own(host: Host, user: str, asked: dict[str, Any], *, checking: bool) -> list[str]:
    found = host.step("own", user=user)
    memory = registration.InMemory(found["text"], host.run_on_copy)
    lacking = engines.differences("docker", engine_output.parse(memory.read())["docker"], asked["default"])
    if not lacking or checking:
        return [f"{found['path']}: {'; '.join(lacking)}; nvidia-ctk would register the runtime"] if lacking else []
    told = registration.register(memory, "docker", asked["default"], asked["drop_ins"])
    if told != registration.DONE:
        way_out = BY_HAND.format(user, "rootless").removeprefix("or ")
        raise AnsibleActionFail(f"{found['path']}: {told}; it is as it was. Fix: repair it first, or {way_out}")
    host.step("write_own", user=user, text=memory.text)
    return [f"{found['path']}: the runtime is registered, which had: {'; '.join(lacking)}"]


def _in_force(host: Host, asked: dict[str, Any], *, checking: bool) -> dict[str, Any]:
    done, restart = [], []
    for name, engine in _found(host, asked["names"]).items():
        wrong = registration.lacks(name, engine, asked["default"])
        if wrong:
            done.append(f"{name}: {wrong}")
        if not wrong or checking:
            continue
        told = registration.enforce(
            host, name, asked["default"], may_stop=asked["drained"], restart=asked["state"] == "restarted"
        )
        if told.problem:
            raise AnsibleActionFail(told.problem)
        restart += [name] if told.restart else []
    shown = {"prepared": "".join(f"{one}\n" for one in done)}
    return {"changed": bool(done), "msg": "\n".join(done), "diff": shown, "restart": restart}


def _found(host: Host, names: list[str]) -> dict[str, Any]:
    """The engines of these names, read once."""
    there = engine_output.parse(host.read()) if names else {}
    if absent := [name for name in names if name not in there]:
        raise AnsibleActionFail(
            f"{absent[0]} is not on the host. Fix: install it, or take it out of container_toolkit.runtimes"
        )
    return {name: there[name] for name in names}
