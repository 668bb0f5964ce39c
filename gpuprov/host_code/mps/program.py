"""The MPS control daemons of a host, brought to their configuration: everything is checked before anything is
changed."""

from __future__ import annotations

from typing import Callable, NamedTuple

from . import daemon as of
from . import modes
from .control import Control, Restart
from .daemon import Process
from .devices import Config, Daemon, Nvml, Problem, check_limits, group_names, list_daemons
from .environments import remove_environments, write_environments

# Files that are newer than the daemon with this process id; empty if it has read everything as it is.
Ages = Callable[[str], str]


def get_old_control(name: str, config: Config, process: Process) -> Control:
    """Return the running daemon, by its own environment."""
    _, words, environment = process
    daemon = {
        "name": name,
        "pipe": environment.get("CUDA_MPS_PIPE_DIRECTORY", ""),
        "log": environment.get("CUDA_MPS_LOG_DIRECTORY", ""),
        "devices": [],
        "gpus": [],
        "mig": False,
    }
    return Control(daemon, dict(config, protocol="v3" if "-p" in words else "v2"))


def refuse_clients(name: str, config: Config, process: Process, why: str) -> None:
    """Raise Problem if a daemon has clients, which would end with it."""
    try:
        clients = get_old_control(name, config, process).clients()
    except Problem as problem:
        # Clients need the control daemon to begin only: those of its servers go on without it.
        clients, servers = [], of.list_servers(process[0])
        if servers:
            raise Problem(
                f"{of.name_unit(name)} has to be restarted ({why}), does not answer, and its servers (pid "
                f"{' '.join(servers)}) may "
                f"have clients; end those, then systemctl restart {of.name_unit(name)}, and apply again"
            ) from problem
    if clients:
        raise Problem(
            f"{of.name_unit(name)} has to be restarted ({why}), and {len(clients)} clients use it: "
            f"pid {' '.join(clients[:10])}; end or drain them, then apply again"
        )


def retire_daemon(name: str, config: Config, change: bool) -> None:
    """Stop and disable an unwanted daemon."""
    process = of.find_running(name)
    if process:
        refuse_clients(name, config, process, "the spec does not ask for it")
    if not change:
        return
    of.must("disable", "--now", of.name_unit(name))
    of.run_systemctl("reset-failed", of.name_unit(name))
    remove_environments(config, name)


def compare_daemon(daemon: Daemon, config: Config, process: Process, explain_age: Ages) -> str:
    """Return the difference of a running daemon from its configuration; "" if there is none."""
    pid, words, environment = process
    if age := explain_age(pid):
        return age
    for key, value in of.build_environment(daemon).items():
        if environment.get(key) != value:
            return f"{key} is {environment.get(key, 'not set')}, wanted {value}"
    # execve of a program that is found on the PATH keeps the words that it was given.
    return (
        ""
        if [word for word in words if word] == of.build_command(daemon, config)
        else f"it was started as {' '.join(words).strip()}"
    )


def compare_or_fix(daemon: Daemon, config: Config, nvml: modes.Modes, change: bool, explain_age: Ages) -> list[str]:
    """List the differences of one daemon, and fix them if `change`."""
    name, process = daemon["name"], of.find_running(daemon["name"])
    if process is None:
        if change:
            of.must("enable", of.name_unit(name))
            of.run_systemctl("reset-failed", of.name_unit(name))  # too many starts before would forbid this one
            of.must("restart", of.name_unit(name))
        return [f"{of.name_unit(name)}: started"]
    changes = [] if of.is_enabled(name) else [f"{of.name_unit(name)}: enabled"]
    if changes and change:
        of.must("enable", of.name_unit(name))
    try:
        why = compare_daemon(daemon, config, process, explain_age)
        if why:
            raise Restart(why)
        control = Control(daemon, config)
        changes += (
            modes.compute_modes(daemon, config, nvml, change) + control.settle(change) + control.partition(change)
        )
        if write_environments(daemon, config, control, change):
            changes.append(f"{of.name_unit(name)}: environment of its clients written")
        if change and of.start_server(config, control):
            changes.append(f"{of.name_unit(name)}: server of {config['user']} started")
    except Restart as reason:
        refuse_clients(name, config, process, str(reason))
        if change:
            of.must("restart", of.name_unit(name))
        changes.append(f"{of.name_unit(name)}: restarted: {reason}")
    return changes


def list_names_without_driver(config: Config) -> list[str]:
    """List the names of the daemons, as far as they are known while no driver is loaded."""
    if config["scope"] == "groups":
        return group_names(config)
    return {"host": ["host"], "gpu": [f"gpu{number}" for number in range(config["count"])]}.get(config["scope"], [])


def prepare(config: Config, change: bool) -> list[str]:
    """Prepare units that start at the next boot, if no driver is loaded now; MIG devices are not known then."""
    names, changes = list_names_without_driver(config), []
    for name in of.list_known_names():
        if name not in names and (names or config["scope"] == "none"):
            changes.append(f"{of.name_unit(name)}: stopped and removed")
            retire_daemon(name, config, change)
    for name in names:
        if not of.is_enabled(name):
            changes.append(f"{of.name_unit(name)}: enabled")
            if change:
                of.must("enable", of.name_unit(name))
    return changes


def settle(config: Config, change: bool, explain_age: Ages) -> tuple[list[str], str]:
    """Return the differences, fixed if `change`; and the reason why daemons have to wait, if the driver is not
    loaded."""
    try:
        nvml = Nvml()
    except Problem as problem:
        return prepare(config, change), str(problem)
    gpus = nvml.gpus()
    desired = list_daemons(config, gpus)
    if desired:
        check_limits(config, gpus)
    changes, names = [], [item["name"] for item in desired]
    for name in of.list_known_names():
        if name not in names:
            retire_daemon(name, config, change)
            changes.append(f"{of.name_unit(name)}: stopped and removed")
    changes += of.enlarge_shared_memory(config, change)
    for daemon in desired:
        changes += compare_or_fix(daemon, config, nvml, change, explain_age)
    return changes + modes.give_back(config, nvml, gpus, desired, change), ""


class Answer(NamedTuple):
    """`changed`: the differences. `problem`: why nothing was done. `later`: why daemons have to wait."""

    changed: list[str]
    problem: str = ""
    later: str = ""


def run(config: Config, change: bool, explain_age: Ages) -> Answer:
    """Report the differences, and fix them if `change`; everything is checked before anything is changed."""
    try:
        changed, later = settle(config, False, explain_age)
        if change:
            changed, later = settle(config, True, explain_age)
    except (Problem, OSError) as problem:
        return Answer([], str(problem))
    return Answer(changed, "", later)
