# usage: program.py plan|apply CONFIG; present|start|ready|stop NAME
# The MPS control daemons of a host: made what CONFIG says (JSON out: changed, problem, later), and what their units do at start and stop.
# Python 3.6 and newer, standard library only.
import json
import os
import shutil
import sys

import daemon as of
import modes
from control import Control, Restart
from devices import Gone, Nvml, Problem, Unwanted, daemons, group_names, limited

STOPPING = 20
"""Seconds that a daemon which is stopped waits for its clients; then their servers end."""


def old_control(name, config, process):
    """The daemon that runs now, by its own environment."""
    _, words, environment = process
    mine = {
        "name": name,
        "pipe": environment.get("CUDA_MPS_PIPE_DIRECTORY", ""),
        "log": environment.get("CUDA_MPS_LOG_DIRECTORY", ""),
        "devices": [],
        "gpus": [],
        "mig": False,
    }
    return Control(mine, dict(config, protocol="v3" if "-p" in words else "v2"))


def refuse_clients(name, config, process, why):
    """A daemon takes its clients down with it."""
    try:
        clients = old_control(name, config, process).clients()
    except Problem as problem:
        # Clients need the control daemon to begin only: those of its servers go on without it.
        clients, servers = [], of.servers(process[0])
        if servers:
            raise Problem(
                "%s has to be restarted (%s), does not answer, and its servers (pid %s) may have clients; end those, then "
                "systemctl restart %s, and apply again" % (of.unit(name), why, " ".join(servers), of.unit(name))
            ) from problem
    if clients:
        raise Problem(
            "%s has to be restarted (%s), and %d clients use it: pid %s; end or drain them, then apply again"
            % (of.unit(name), why, len(clients), " ".join(clients[:10]))
        )


def retire(name, config, change):
    """Stop and disable a daemon that is not wanted."""
    process = of.running(name)
    if process:
        refuse_clients(name, config, process, "the spec does not ask for it")
    if not change:
        return
    of.must("disable", "--now", of.unit(name))
    of.systemctl("reset-failed", of.unit(name))
    of.remove_environments(config, name)


def differs(one, config, process):
    """Why a running daemon is not the wanted one; empty if it is."""
    pid, words, environment = process
    if of.replaced(pid):
        return "its program was replaced"
    for key, value in of.environment(one).items():
        if environment.get(key) != value:
            return "%s is %s, wanted %s" % (key, environment.get(key, "not set"), value)
    # execve of a program that is found on the PATH keeps the words that it was given.
    return (
        ""
        if [word for word in words if word] == of.command(one, config)
        else "it was started as %s" % " ".join(words).strip()
    )


def one_daemon(one, config, nvml, change):
    """What differs of one daemon, put right if `change`."""
    name, process = one["name"], of.running(one["name"])
    if process is None:
        if change:
            of.must("enable", of.unit(name))
            of.systemctl("reset-failed", of.unit(name))  # too many starts before would forbid this one
            of.must("restart", of.unit(name))
        return ["%s: started" % of.unit(name)]
    told = [] if of.enabled(name) else ["%s: enabled" % of.unit(name)]
    if told and change:
        of.must("enable", of.unit(name))
    try:
        why = differs(one, config, process)
        if why:
            raise Restart(why)
        control = Control(one, config)
        told += modes.compute_modes(one, config, nvml, change) + control.settle(change) + control.partition(change)
        if of.write_environments(one, config, control, change):
            told.append("%s: environment of its clients written" % of.unit(name))
        if change and of.start_server(config, control):
            told.append("%s: server of %s started" % (of.unit(name), config["user"]))
    except Restart as reason:
        refuse_clients(name, config, process, str(reason))
        if change:
            of.must("restart", of.unit(name))
        told.append("%s: restarted: %s" % (of.unit(name), reason))
    return told


def names_without_driver(config):
    """What the daemons are called, as far as that is known while no driver is loaded."""
    if config["scope"] == "groups":
        return group_names(config)
    return {"host": ["host"], "gpu": ["gpu%d" % number for number in range(config["count"])]}.get(config["scope"], [])


def prepare(config, change):
    """Units that start at the next boot, where no driver is loaded now; MIG devices are not known then."""
    wanted, told = names_without_driver(config), []
    for name in of.known_names():
        if name not in wanted and (wanted or config["scope"] == "none"):
            told.append("%s: stopped and removed" % of.unit(name))
            retire(name, config, change)
    for name in wanted:
        if not of.enabled(name):
            told.append("%s: enabled" % of.unit(name))
            if change:
                of.must("enable", of.unit(name))
    return told


def settle(config, change):
    """Everything that differs, put right if `change`; and why daemons have to wait, where the driver is not loaded."""
    try:
        nvml = Nvml()
    except Problem as problem:
        return prepare(config, change), str(problem)
    gpus = nvml.gpus()
    wanted = daemons(config, gpus)
    if wanted:
        limited(config, gpus)
    told, names = [], [one["name"] for one in wanted]
    for name in of.known_names():
        if name not in names:
            retire(name, config, change)
            told.append("%s: stopped and removed" % of.unit(name))
    told += of.shared_memory(config, change)
    for one in wanted:
        told += one_daemon(one, config, nvml, change)
    return told + modes.give_back(config, nvml, gpus, wanted, change), ""


def present(name):
    """Whether a daemon is wanted, and has its device; a MIG device may have gone with a change of the layout, which is no failure."""
    try:
        of.from_state(name)
    except Unwanted:
        raise  # as after a change of the scope, until apply comes to remove the unit
    except Gone as gone:
        with open(of.STATE) as file:
            if json.load(file)["scope"] == "mig":
                raise
        sys.stderr.write("%s\n" % gone)
    except Problem as problem:
        sys.stderr.write("%s\n" % problem)


def start(name):
    """Become the daemon."""
    config, nvml, one = of.from_state(name)
    if not shutil.which(config["control"]):
        raise Problem("%s is not on the PATH: gpuprov apply installs it" % config["control"])
    of.shared_memory(config)
    for line in modes.compute_modes(one, config, nvml):
        sys.stderr.write("%s\n" % line)
    of.folder(one["pipe"])
    os.makedirs(one["log"], mode=0o755, exist_ok=True)
    if config["protocol"] == "v3":
        of.write(of.path(config, one, "toml"), of.toml(one, config))
    sys.stdout.flush()
    words = of.command(one, config)
    os.execvpe(words[0], words, dict(os.environ, **of.environment(one)))


def ready(name):
    """Wait for the daemon that has just been started, and give it its limits."""
    config, _, one = of.from_state(name)
    control = Control(one, config)
    control.wait()
    for line in control.settle() + control.partition():
        sys.stderr.write("%s\n" % line)
    of.write_environments(one, config, control)
    of.start_server(config, control)
    if config["user"] and not control.v3 and not of.serves(of.uid_of(config), control):
        sys.stderr.write("no server of %s could be started: see %s/control.log\n" % (config["user"], one["log"]))


def stop(name):
    """End the daemon by its own command. What is left after that is systemd's."""
    with open(of.STATE) as file:
        config = json.load(file)
    process = of.process(os.environ.get("MAINPID", "0"))
    if process:
        old_control(name, config, process).stop(STOPPING)


def main(verb, argument):
    if verb in ("plan", "apply"):
        try:
            config = json.loads(argument)
            changed, later = settle(config, False)  # everything is refused before anything is changed
            if verb == "apply":
                changed, later = settle(config, True)
            answer = {"changed": changed, "problem": "", "later": later}
        except (Problem, OSError) as problem:
            answer = {"changed": [], "problem": str(problem), "later": ""}
        print(json.dumps(answer))
        return 0
    try:
        {"present": present, "start": start, "ready": ready, "stop": stop}[verb](argument)
    except (Problem, OSError, ValueError) as problem:
        sys.stderr.write("%s\n" % problem)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:3]))
