"""How NVIDIA's runtime comes into an engine, step by step, by the host's own nvidia-ctk, and into the running daemon.

What a step does to a host is the matter of a `Host`: Ansible's (gpuprov/play/engines.py), a real one's or a recorded
one's (tests/engines). nvidia-ctk writes the files, since it knows what each release of an engine takes; what it made of them is judged
by what the engine itself then reads, and undone where a setting of the site's is lost.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple, Protocol

from gpuprov import reading
from gpuprov.shared import engine_files, engine_output, engines

FILES = {
    name: [main, *([engines.DROP_INS[name]] if name in engines.DROP_INS else [])] for name, main in engines.MAIN.items()
}
"""What nvidia-ctk writes, by engine: the main file, and the drop-in file of releases that know them."""
NOTHING = "nothing to do"
DONE = "accepted"
TRIES, PAUSE = 5, 2.0
"""How often, and after how many seconds each, a daemon is asked whether it has the runtime."""


class Host(Protocol):
    """What is done to the files of an engine."""

    def read(self) -> str:
        """The output of the probe."""

    def restore(self) -> None:
        """The engine's files as they were at the start, without NVIDIA's drop-in file."""

    def write(self, files: dict[str, str]) -> None:
        """Put these texts there."""

    def configure(self, command: list[str]) -> tuple[int, str, dict[str, str]]:
        """Run nvidia-ctk: its exit status, what it says, and the files of the engine that are there now."""

    def back(self) -> None:
        """The engine's files as they were at the start, for good."""


def register(host: Host, name: str, default: bool, drop_ins: bool = True) -> str:
    """What becomes of it: DONE, NOTHING, or why it is refused; then the files are as they were.

    `drop_ins`: whether nvidia-ctk is of a release that knows drop-in files.
    """
    engine = engine_output.parse(host.read())[name]
    if why := engines.refused(name, engine):
        return why
    if not engines.differences(name, engine, default):
        return NOTHING
    told = ""
    try:
        lost, told = _attempt(host, name, default, drop_ins, "file")
        # containerd below 2.1 takes a plugin's section from one file, and its built-in runc goes where a section names runtimes:
        # then the drop-in file must repeat all that is in force.
        if lost and name != "docker":
            lost, told = _attempt(host, name, default, drop_ins, "command")
    finally:
        if told != DONE:
            host.back()
    return told


def _attempt(host: Host, name: str, default: bool, drop_ins: bool, source: str) -> tuple[list[str], str]:
    """What is lost of the site's settings, and what becomes of it. `source`: the engine's main file, or all that is in force."""
    host.restore()
    read: Callable[[], engines.Engine] = lambda: engine_output.parse(host.read())[name]  # noqa: E731
    before = read()
    if seed := engines.seed(name, before):
        host.write({FILES[name][0]: seed})
        before = read()
    status, error, produced = host.configure(engines.command(before, name, default, drop_ins, source))
    if status:
        return [], f"nvidia-ctk: {error}"
    originals = {path: file["text"] for path, file in before["files"].items()}
    finished = engine_files.finished(produced, name, originals, default, engines.ordinary(name, before))
    if name != "docker":
        first = engines.has_old_shims(name, before)
        finished = engine_files.with_needed(finished, name, first, engines.runtimes(name, before))
    host.write(finished)
    after = read()
    if lost := engines.lost_between(name, before, after):
        return lost, f"nvidia-ctk would lose {', '.join(lost[:8])}"
    wrong = engines.differences(name, after, default)
    return [], f"nvidia-ctk would leave: {'; '.join(wrong)}" if wrong else DONE


class InMemory:
    """A user's own daemon.json, of which nothing is written before all is decided. `run`: nvidia-ctk over a copy of a text."""

    def __init__(self, text: str, run: Callable[[list[str], str], tuple[int, str, str]]) -> None:
        self.text, self._first, self._run = text, text, run

    def read(self) -> str:
        text = "".join(f" {line}\n" for line in self.text.splitlines())
        return f"@engine docker\n@version \n@file {engines.MAIN['docker']} 0\n{text}"

    def restore(self) -> None:
        self.text = self._first

    back = restore

    def write(self, files: dict[str, str]) -> None:
        self.text = files[engines.MAIN["docker"]]

    def configure(self, command: list[str]) -> tuple[int, str, dict[str, str]]:
        status, error, text = self._run(
            [word for word in command if not word.startswith("--config-source=")], self.text
        )
        return status, error, {engines.MAIN["docker"]: text}


class Daemons(Protocol):
    """What is done to the daemons of engines."""

    def read(self) -> str:
        """The output of the probe, as it is now."""

    def tell(self, verb: str, name: str) -> None:
        """Reload or restart an engine's daemon."""

    def give_up(self, name: str) -> None:
        """The engine's files as they were before gpuprov changed them, where they are still gpuprov's, and its daemon with them."""


class Told(NamedTuple):
    """`changed`: the daemon was reloaded or restarted. `problem`: why it is not as wanted, with the fix. `restart`: what docker takes
    only by a restart, which nothing forbids."""

    changed: bool
    problem: str = ""
    restart: str = ""


def lacks(name: str, engine: engines.Engine, default: bool) -> str:
    """Why a daemon has to be told of its configuration; empty where it lives and has it in force."""
    if wrong := engines.in_force(name, engine, default):
        return wrong
    return "" if engine["active"] == "active" else f"{name}.service is {engine['active'] or 'not there'}"


def enforce(host: Daemons, name: str, default: bool, *, may_stop: bool = False, restart: bool = False) -> Told:
    """Have the runtime in force in the daemon. docker takes runtimes and the default one by reload, which leaves its containers alone;
    containers of containerd and cri-o go on through a restart.
    https://docs.docker.com/reference/cli/dockerd/#configuration-reload-behavior

    `may_stop`: containers may be stopped, since the operator gave a drain command. `restart`: docker may be restarted by now.
    """
    engine = engine_output.parse(host.read())[name]
    if not lacks(name, engine, default):
        return Told(changed=False)
    reload = name == "docker" and engine["active"] == "active" and not restart
    host.tell("reload" if reload else "restart", name)
    engine = _settled(host, name, default)
    wrong = lacks(name, engine, default)
    if reload and wrong and engine["active"] == "active":
        stopped = "" if may_stop else would_stop(engine)
        problem = (
            f"docker takes this only by a restart, which would stop {stopped} running containers: {wrong}. Fix: stop them, or set "
            "live-restore in daemon.json, or give apply a drain command (--drain COMMAND); then apply again"
        )
        return Told(changed=True, problem=problem) if stopped else Told(changed=True, restart=wrong)
    if not wrong:
        return Told(changed=True)
    why = f"{name}.service is active: {wrong}"
    if engine["active"] != "active":
        host.give_up(name)
        why = f"{name}.service is {engine['active'] or 'not there'}: it does not start"
    return Told(changed=True, problem=f"{why}. Fix: journalctl -u {name}.service, on the host")


def would_stop(engine: engines.Engine) -> str:
    """How many containers a restart of docker would stop, in its own word; `its` where it does not say, empty for none."""
    try:
        said = reading.json(engine.get("live") or "{}")
    except reading.Unreadable:
        said = {}
    running = said.get("ContainersRunning") if isinstance(said, dict) else None
    if running == 0 or (isinstance(said, dict) and said.get("LiveRestoreEnabled") is True):
        return ""
    return str(running) if isinstance(running, int) else "its"


def _settled(host: Daemons, name: str, default: bool) -> engines.Engine:
    """The engine when its daemon has the runtime, or when there was time enough for it."""
    for number in range(TRIES):
        time.sleep(PAUSE if number else 0)
        engine = engine_output.parse(host.read())[name]
        if not lacks(name, engine, default):
            break
    return engine
