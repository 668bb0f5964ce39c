"""Settings of a daemon's clients: files for shells and services, and snippets for containers."""

from __future__ import annotations

import os
from typing import Sequence

from .control import Control
from .daemon import make_path, write
from .devices import Config, Daemon


def build_client_environments(
    daemon: Daemon, config: Config, control: Control | None = None
) -> dict[str, dict[str, str]]:
    """Return the variables that clients of the daemon have to set, by file name; with static partitions also a file for
    each, NAME-0 and on."""
    pipe = daemon["pipe"] + ("/" + config["paths"]["server"] if config["protocol"] == "v3" else "")
    base = {"CUDA_MPS_PIPE_DIRECTORY": pipe, "CUDA_MPS_LOG_DIRECTORY": daemon["log"]}
    base.update({"CUDA_VISIBLE_DEVICES": daemon["devices"][0]} if daemon["mig"] else {})
    variables = {daemon["name"]: base}
    if control and config["partitions"]:
        partitions = control.partitions().get(daemon["devices"][0], [])
        for number, chunks in enumerate(config["partitions"]):
            same = next((partition for partition in partitions if partition[0] == chunks), None)
            if same:
                partitions.remove(same)
                variables[f"{daemon['name']}-{number}"] = dict(base, CUDA_MPS_SM_PARTITION=same[1])
    return variables


def write_environments(daemon: Daemon, config: Config, control: Control, change: bool = True) -> bool:
    """Write the environment files, and the snippets for containers; return whether any differs. Obsolete files of
    earlier runs are removed."""
    changed, written = [], []
    for name, values in build_client_environments(daemon, config, control).items():
        rows = ["{}={}".format(*pair) for pair in sorted(values.items())]
        written.append(f"{config['paths']['runtime']}/{name}.env")
        changed.append(write(written[-1], "\n".join(rows) + "\n", change))
        if config["container_directory"]:
            pipe = (daemon["pipe"],) * 2
            body = [
                f"# Clients of the MPS daemon {name} in containers: written by gpuprov-mps@{daemon['name']} at each "
                "start.",
                "# docker run --env-file %s -v %s:%s --ipc host" % ((written[-1],) + pipe),
                "environment:",
            ]
            body += ["  {}: {}".format(*pair) for pair in sorted(values.items())]
            body += ["volumes:", "  - {}:{}".format(*pipe), "ipc: host"]
            written.append(f"{config['container_directory']}/{name}.yaml")
            changed.append(write(written[-1], "\n".join(body) + "\n", change))
    if not change:
        return any(changed)
    gone = remove_environments(config, daemon["name"], written)
    write(make_path(config, daemon, "files"), "\n".join(written) + "\n")
    return any(changed) or gone


def remove_environments(config: Config, name: str, but: Sequence[str] = ()) -> bool:
    """Remove files that a daemon's unit has written for clients, except some; return whether there were any."""
    listed, gone = f"{config['paths']['runtime']}/{name}.files", False
    try:
        with open(listed, encoding="utf-8", errors="replace") as file:
            written = file.read().split("\n")
    except OSError:
        return False
    for path in written:
        if path and path not in but and os.path.exists(path):
            os.unlink(path)
            gone = True
    os.unlink(listed)
    return gone
