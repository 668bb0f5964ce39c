"""Configure NVIDIA's runtime in container engines, by the host's own nvidia-ctk; undo and refuse changes that lose a
site's setting.

The probe of the checks reads an engine's effective settings, and the same functions judge them here; the host does
single steps. A host without differences is read once, and nothing on it is changed. Check mode reports what an engine
lacks.

state: registered has the runtime in the engines' files; in_force has the daemons apply it, docker by reload, the others
by restart;
    restarted also restarts docker, if it needs that.
names: docker, containerd, crio, k3s, rke2 or microk8s; k3s and rke2 register it by themselves, when they are restarted.
users: Users whose own docker gets the runtime, too (registered).
default: True if it is the runtime of every container.
drop_ins: True if this release of nvidia-ctk writes files beside the main one.
drained: True if a restart of docker may stop containers, since a drain command is given.

Returns:
restart: Engines that apply it only at a restart, which has not been done yet.
"""

from __future__ import annotations

from typing import Any, TypedDict

from gpuprov.capabilities.container_toolkit import registration
from gpuprov.core import ended
from gpuprov.core.safe_parse import Tree
from gpuprov.facts.probes.containers.container_engines import ENGINES
from gpuprov.play.host import Host, Result, StepFailed
from gpuprov.rules import engine_output, engines

BY_HAND = "or register the runtime by hand and take {} out of container_toolkit.{}"


class Arguments(TypedDict, total=False):
    """Those of the task."""

    state: str
    names: list[str]
    users: list[str]
    default: bool
    drop_ins: bool
    drained: bool


def run(host: Host, arguments: Arguments) -> Result:
    """Register the runtime in files, or have the daemons take it. Raises StepFailed."""
    given: Arguments = {"users": [], "default": False, "drop_ins": True, "drained": False, **arguments}
    work = _register if given["state"] == "registered" else _put_in_force
    return {"restart": [], **work(_Engines(host), given, checking=host.check_mode)}


class _Engines:
    """The engines of a host: a `registration.Host`."""

    def __init__(self, host: Host) -> None:
        self._host, self.name = host, ""

    def step(self, name: str, **given: Any) -> Tree:
        answer = self._host.step("engines", step=name, given=given)
        if answer.get("failed") or answer.get("unreachable") or "answer" not in answer:
            raise StepFailed(ended.answer(answer) or "the host gave no answer")
        return dict(answer["answer"])

    def read(self) -> str:
        return str(self.step("read", script=ENGINES.script)["text"])

    @property
    def paths(self) -> list[str]:
        return registration.FILES[self.name]

    def of(self, name: str) -> _Engines:
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

    def tell(self, verb: str, unit: str) -> None:
        self.step("tell", verb=verb, unit=unit)

    def give_up(self, name: str) -> None:
        self.step("back", engine=name, paths=registration.FILES[name], unless_changed=True)
        self.tell("restart", engines.get_unit(name, engine_output.parse(self.read())[name]))

    def run_on_copy(self, command: list[str], text: str) -> tuple[int, str, str]:
        ran = self.step("run_on_copy", argv=command, text=text)
        return ran["status"], ran["error"], ran["text"]


def _register(host: _Engines, given: Arguments, *, checking: bool) -> Result:
    """Register it in files of root's engines, then in those of users."""
    done = []
    for name, engine in _read_engines(host, given["names"]).items():
        lacking = engines.differences(name, engine, given["default"])
        if lacking and checking:
            done.append(f"{name}: {'; '.join(lacking)}; nvidia-ctk would register the runtime")
        if not lacking or checking:
            continue
        host.of(name).step("keep", engine=name, paths=registration.FILES[name])
        outcome = registration.register(host, name, given["default"], given["drop_ins"])
        if outcome != registration.DONE:
            fix = "let no file sort behind 99-nvidia.toml in its folder, and keep what one plugin has in one file"
            fix = "correct the template" if name == "microk8s" else fix
            raise StepFailed(f"{name}: {outcome}; it is as it was. Fix: {fix}; {BY_HAND.format(name, 'runtimes')}")
        host.step("settled", engine=name, paths=registration.FILES[name])
        done.append(f"{name}: the runtime is registered, which had: {'; '.join(lacking)}")
    done += [line for user in given["users"] for line in _register_own(host, user, given, checking=checking)]
    return {"changed": bool(done), "msg": "\n".join(done), "diff": {"prepared": "".join(f"{line}\n" for line in done)}}


def _register_own(host: _Engines, user: str, given: Arguments, *, checking: bool) -> list[str]:
    own = host.step("own", user=user)
    memory = registration.InMemory(own["text"], host.run_on_copy)
    lacking = engines.differences("docker", engine_output.parse(memory.read())["docker"], given["default"])
    if not lacking or checking:
        return [f"{own['path']}: {'; '.join(lacking)}; nvidia-ctk would register the runtime"] if lacking else []
    outcome = registration.register(memory, "docker", given["default"], given["drop_ins"])
    if outcome != registration.DONE:
        fix = BY_HAND.format(user, "rootless").removeprefix("or ")
        raise StepFailed(f"{own['path']}: {outcome}; it is as it was. Fix: repair it first, or {fix}")
    host.step("write_own", user=user, text=memory.text)
    return [f"{own['path']}: the runtime is registered, which had: {'; '.join(lacking)}"]


def _put_in_force(host: _Engines, given: Arguments, *, checking: bool) -> Result:
    done, restart = [], []
    for name, engine in _read_engines(host, given["names"]).items():
        wrong = registration.lacks(name, engine, given["default"])
        if wrong:
            done.append(f"{name}: {wrong}")
        if not wrong or checking:
            continue
        outcome = registration.enforce(
            host, name, given["default"], may_stop=given["drained"], restart=given["state"] == "restarted"
        )
        if outcome.problem:
            raise StepFailed(outcome.problem)
        restart += [name] if outcome.restart else []
    shown = {"prepared": "".join(f"{line}\n" for line in done)}
    return {"changed": bool(done), "msg": "\n".join(done), "diff": shown, "restart": restart}


def _read_engines(host: _Engines, names: list[str]) -> dict[str, engine_output.Engine]:
    """Read the engines of these names, once."""
    answers = engine_output.parse(host.read()) if names else {}
    if absent := [name for name in names if name not in answers]:
        raise StepFailed(
            f"{absent[0]} is not on the host. Fix: install it, or take it out of container_toolkit.runtimes"
        )
    return {name: answers[name] for name in names}
