"""The program of the daemons' units: `python -m mps present|start|ready|stop NAME`.

Devices are looked up at each start, as the UUIDs of MIG devices change; the program becomes the daemon, and then sets
its limits.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from typing import Callable, Sequence

from . import daemon as of
from . import modes
from .control import Control
from .devices import Gone, Problem, Unwanted
from .environments import write_environments
from .program import get_old_control

# Seconds that a stopping daemon waits for its clients; then their servers end.
STOPPING = 20


def check_present(name: str) -> None:
    """Check that a daemon is wanted and has its device; a MIG device may be gone after a change of the layout, which is
    no failure."""
    try:
        of.read_state(name)
    except Unwanted:
        raise  # as after a change of the scope, until apply comes to remove the unit
    except Gone as gone:
        with open(of.STATE, encoding="utf-8", errors="replace") as file:
            if json.load(file)["scope"] == "mig":
                raise
        sys.stderr.write(f"{gone}\n")
    except Problem as problem:
        sys.stderr.write(f"{problem}\n")


def start_daemon(name: str) -> None:
    """Become the daemon."""
    config, nvml, daemon = of.read_state(name)
    if not shutil.which(config["control"]):
        raise Problem(f"{config['control']} is not on the PATH: gpuprov apply installs it")
    of.enlarge_shared_memory(config)
    for line in modes.compute_modes(daemon, config, nvml):
        sys.stderr.write(f"{line}\n")
    of.make_folder(daemon["pipe"])
    os.makedirs(daemon["log"], mode=0o755, exist_ok=True)
    if config["protocol"] == "v3":
        of.write(of.make_path(config, daemon, "toml"), of.format_toml(daemon, config))
    sys.stdout.flush()
    words = of.build_command(daemon, config)
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    os.execvpe(words[0], words, {**environment, **of.build_environment(daemon)})


def wait_until_ready(name: str) -> None:
    """Wait for the daemon that has just been started, and set its limits."""
    config, _, daemon = of.read_state(name)
    control = Control(daemon, config)
    control.wait()
    for line in control.settle() + control.partition():
        sys.stderr.write(f"{line}\n")
    write_environments(daemon, config, control)
    of.start_server(config, control)
    uid = of.find_uid(config)
    if uid is not None and not control.v3 and not of.is_serving(uid, control):
        sys.stderr.write(f"no server of {config['user']} could be started: see {daemon['log']}/control.log\n")


def stop(name: str) -> None:
    """End the daemon by its own command. systemd handles the rest."""
    with open(of.STATE, encoding="utf-8", errors="replace") as file:
        config = json.load(file)
    process = of.read_process(os.environ.get("MAINPID", "0"))
    if process:
        get_old_control(name, config, process).stop(STOPPING)


VERBS: dict[str, Callable[[str], None]] = {
    "present": check_present,
    "start": start_daemon,
    "ready": wait_until_ready,
    "stop": stop,
}


def main(arguments: Sequence[str]) -> int:
    verb, name = arguments
    try:
        VERBS[verb](name)
    except (Problem, OSError, ValueError) as problem:
        sys.stderr.write(f"{problem}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:3]))
