"""Registration of NVIDIA's runtime in an engine, step by step, by the host's own nvidia-ctk, and in the running daemon.

A `Host` carries out the steps: Ansible's (gpuprov/play/engines.py), a real or a recorded one (tests/engines).
nvidia-ctk writes the files, since it knows the syntax of each release of an engine; the result is judged by what the
engine itself then reads, and undone if a setting of the site's is lost.
"""

import time
from collections.abc import Callable
from typing import NamedTuple, Protocol

from gpuprov.capabilities.container_toolkit.readers import read_report
from gpuprov.rules import engine_files, engine_output, engines
from gpuprov.rules.cluster_engines import TEMPLATE, is_cluster_engine, template_values

# Files that are written, by engine: of nvidia-ctk the main file, and the drop-in file of releases that support them.
FILES = {
    name: [main, *([engines.DROP_INS[name]] if name in engines.DROP_INS else [])] for name, main in engines.MAIN.items()
} | {"microk8s": [TEMPLATE]}
NOTHING = "nothing to do"
DONE = "accepted"
# Number of queries, and seconds between them, for a daemon to have the runtime.
TRIES, PAUSE = 5, 2.0


class Host(Protocol):
    """Operations on the files of an engine."""

    def read(self) -> str:
        """Return the output of the probe."""

    def restore(self) -> None:
        """Restore the engine's files as they were at the start, without NVIDIA's drop-in file."""

    def write(self, files: dict[str, str]) -> None:
        """Write these texts."""

    def configure(self, command: list[str]) -> tuple[int, str, dict[str, str]]:
        """Run nvidia-ctk; return its exit status, its output, and the engine's current files."""

    def back(self) -> None:
        """Restore the engine's files as they were at the start, for good."""


def register(host: Host, name: str, default: bool, drop_ins: bool = True) -> str:
    """Register the runtime; return DONE, NOTHING, or why it is refused; then the files are as they were.

    `drop_ins`: whether this release of nvidia-ctk supports drop-in files.
    """
    engine = engine_output.parse(host.read())[name]
    if why := engines.refused(name, engine):
        return why
    if not engines.differences(name, engine, default):
        return NOTHING
    message = ""
    try:
        if name == "microk8s":
            message = _fill_template(host, engine, default)
            return message
        lost, message = _try_registration(host, name, default, drop_ins, "file")
        # containerd below 2.1 takes a plugin's section from one file, and its built-in runc goes where a section names
        # runtimes: then the drop-in file must repeat all that is in force.
        if lost and name != "docker":
            lost, message = _try_registration(host, name, default, drop_ins, "command")
    finally:
        if message != DONE:
            host.back()
    return message


def _try_registration(host: Host, name: str, default: bool, drop_ins: bool, source: str) -> tuple[list[str], str]:
    """Return the settings of the site that are lost, and the result. `source`: the engine's main file, or all that is
    in force."""
    host.restore()
    read: Callable[[], engine_output.Engine] = lambda: engine_output.parse(host.read())[name]  # noqa: E731
    before = read()
    if seed := engines.seed(name, before):
        host.write({FILES[name][0]: seed})
        before = read()
    status, error, produced = host.configure(engines.command(before, name, default, drop_ins, source))
    if status:
        return [], f"nvidia-ctk: {error}"
    originals = {path: file.text for path, file in before.files.items()}
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


def _fill_template(host: Host, engine: engine_output.Engine, default: bool) -> str:
    """Put the runtime into MicroK8s' template, whose variables and comments stay; nvidia-ctk would drop the
    comments."""
    config = engines.configuration("microk8s", engine)
    cdi = engines.wants_cdi("microk8s", engine.version, engines.registered("microk8s", config).cdi)
    text = engine.files[TEMPLATE].text
    for tables, key, value in template_values(config, default, cdi):
        text = engine_files.with_value(text, tables, key, value)
    host.write({TEMPLATE: text})
    after = engine_output.parse(host.read())["microk8s"]
    wrong = engines.lost_between("microk8s", engine, after) or engines.differences("microk8s", after, default)
    return f"the template would then lose or have: {'; '.join(wrong[:8])}" if wrong else DONE


class InMemory:
    """A user's own daemon.json; nothing is written before everything is decided. `run`: nvidia-ctk over a copy of a
    text."""

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
    """Operations on the daemons of engines."""

    def read(self) -> str:
        """Return the current output of the probe."""

    def tell(self, verb: str, unit: str) -> None:
        """Reload or restart an engine's daemon."""

    def give_up(self, name: str) -> None:
        """Restore the engine's files as they were before gpuprov changed them, if they are still gpuprov's, and its
        daemon with them."""


class Told(NamedTuple):
    """`changed`: the daemon was reloaded or restarted. `problem`: why it differs from the spec, with the fix.
    `restart`: settings that docker takes only by a restart, which nothing forbids."""

    changed: bool
    problem: str = ""
    restart: str = ""


def lacks(name: str, engine: engine_output.Engine, default: bool) -> str:
    """Return why a daemon has to reload its configuration; empty if it is running and has it in force."""
    if wrong := engines.in_force(name, engine, default):
        return wrong
    return "" if engine.active == "active" else f"{engines.get_unit(name, engine)} is {engine.active or 'not there'}"


def enforce(host: Daemons, name: str, default: bool, *, may_stop: bool = False, restart: bool = False) -> Told:
    """Put the runtime in force in the daemon. docker takes runtimes and the default one by reload, which leaves its
    containers alone; containers of containerd and cri-o continue through a restart.

    `may_stop`: containers may be stopped, since the operator gave a drain command. `restart`: docker may be restarted
    by now.
    """
    # https://docs.docker.com/reference/cli/dockerd/#configuration-reload-behavior
    engine = engine_output.parse(host.read())[name]
    if not lacks(name, engine, default):
        return Told(changed=False)
    reload = name == "docker" and engine.active == "active" and not restart
    unit = engines.get_unit(name, engine)
    host.tell("reload" if reload else "restart", unit)
    engine = _wait_for_engine(host, name, default)
    wrong = lacks(name, engine, default)
    if reload and wrong and engine.active == "active":
        stopped = "" if may_stop else would_stop(engine)
        problem = (
            f"docker takes this only by a restart, which would stop {stopped} running containers: {wrong}. Fix: "
            "stop them, or set live-restore in daemon.json, or give apply a drain command (--drain COMMAND); then "
            "apply again"
        )
        return Told(changed=True, problem=problem) if stopped else Told(changed=True, restart=wrong)
    if not wrong:
        return Told(changed=True)
    why = f"{unit} is active: {wrong}"
    if engine.active != "active":
        if name in FILES:
            host.give_up(name)
        why = f"{unit} is {engine.active or 'not there'}: it does not start"
    return Told(changed=True, problem=f"{why}. Fix: journalctl -u {unit}, on the host")


def would_stop(engine: engine_output.Engine) -> str:
    """Return how many containers a restart of docker would stop, as docker reports; `its` if it does not report it,
    empty for none."""
    running = count_running(engine)
    if running == 0 or read_report(engine).get("LiveRestoreEnabled") is True:
        return ""
    return "its" if running is None else str(running)


def count_running(engine: engine_output.Engine) -> int | None:
    """Return how many containers docker reports as running; None if it does not report it."""
    running = read_report(engine).get("ContainersRunning")
    return running if isinstance(running, int) else None


def _wait_for_engine(host: Daemons, name: str, default: bool) -> engine_output.Engine:
    """Return the engine once its daemon has the runtime, or once the time for that is over."""
    for number in range(TRIES * (6 if is_cluster_engine(name) else 1)):  # an agent first asks its server
        time.sleep(PAUSE if number else 0)
        engine = engine_output.parse(host.read())[name]
        if not lacks(name, engine, default):
            break
    return engine
