"""AWS's EFA installer on this host: whether it has to run, the run itself, and the driver that is loaded afterwards.

The decision is pure, and the check rdma.efa_source uses it, too. Options of efa_installer.sh:
https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/efa-start-nccl.html and its own --help.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from typing import Any, Mapping

from .archives import unpack
from .failed import Failed
from .files import compute_digest, peek
from .json_members import Json

# The record of the last run: the archive's SHA-256 and the options.
RECORD = "/var/lib/gpuprov/efa.json"
MODULE = "/sys/module/efa"
FOLDER, PROGRAM = "aws-efa-installer", "efa_installer.sh"
MPI = {"none": ["--skip-mpi"], "openmpi4": ["--mpi=openmpi4"], "openmpi5": ["--mpi=openmpi5"], "both": []}
PATIENCE = 1800


def build_options(params: Mapping[str, Json]) -> list[str]:
    """Return the installer's options for kmod, plugin (bools) and mpi. Its own test is left out: the checks are more
    thorough."""
    kmod = [] if params["kmod"] else ["--skip-kmod"]
    plugin = [] if params["plugin"] else ["--skip-plugin"]
    return ["-y", "--no-verify", "--skip-limit-conf", *kmod, *plugin, *MPI[str(params["mpi"])]]


def explain_installation(record: str, sha256: str, options: list[str]) -> str:
    """Return the reason why the installer has to run; "" if it has run in the same way. `record`: the contents of the
    file RECORD."""
    try:
        last = json.loads(record) if record else {}
    except ValueError:
        last = {}
    if not isinstance(last, dict) or not last.get("sha256"):
        return "gpuprov has run no installer here"
    if last["sha256"] != sha256:
        return "gpuprov ran the one with SHA-256 {}".format(last["sha256"])
    if last.get("options") != options:
        return "it ran with {}".format(" ".join(str(option) for option in last.get("options") or ["no options"]))
    return ""


def unpack_installer(archive: str, into: str) -> str:
    """Unpack the installer into this folder, and return its own folder. Raises Failed."""
    unpack(archive, into)
    folder = os.path.join(into, FOLDER)
    if not os.path.isfile(os.path.join(folder, PROGRAM)):
        raise Failed(f"{archive} holds no {FOLDER}/{PROGRAM}: it is not an EFA installer")
    return folder


def install(archive: str, sha256: str, options: list[str]) -> str:
    """Run the installer of this archive; return its last lines. Raises Failed."""
    checksum = compute_digest(archive)
    if checksum != sha256:
        raise Failed(f"{archive} has SHA-256 {checksum}, and the spec says {sha256}; nothing was run")
    with tempfile.TemporaryDirectory(prefix="gpuprov-efa-", dir="/var/tmp") as into:
        folder = unpack_installer(archive, into)
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8"}
        try:
            done = subprocess.run(
                ["bash", "./" + PROGRAM, *options],
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=PATIENCE,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise Failed(f"{PROGRAM} did not end within {PATIENCE // 60} minutes") from error
    output = done.stdout.decode("utf-8", "replace")
    if done.returncode != 0:
        last = " | ".join(output.split("\n")[-12:]).strip(" |")
        raise Failed(f"{PROGRAM} ended with {done.returncode}: {last}")
    os.makedirs(os.path.dirname(RECORD), exist_ok=True)
    with open(RECORD + ".new", "w", encoding="utf-8") as file:
        json.dump({"sha256": sha256, "options": options}, file)
    os.replace(RECORD + ".new", RECORD)
    return output[-2000:]


def capture_output(*command: str) -> str:
    """Return the output of a program; "" if it fails."""
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode("utf-8", "replace").strip() if done.returncode == 0 else ""


def is_stale() -> bool:
    """Return whether the loaded driver is another build than the one on disk."""
    # The kernel's own has no version, and a srcversion only if the kernel was built with MODULE_SRCVERSION_ALL, which
    # Debian's is not.
    if not capture_output("modinfo", "-n", "efa"):
        return False
    marks = ("srcversion", "version")
    return any(peek(f"{MODULE}/{mark}").strip() != capture_output("modinfo", "-F", mark, "efa") for mark in marks)


def settle(*, change: bool) -> dict[str, Any]:
    """Have the driver on disk loaded. `reboot`: why that needs a reboot; "" if it does not."""
    loaded = os.path.isdir(MODULE)
    if loaded and not is_stale():
        return {"changed": False, "reboot": ""}
    if not change:
        return {"changed": True, "reboot": ""}
    if loaded and subprocess.run(["rmmod", "efa"], stderr=subprocess.DEVNULL, check=False).returncode != 0:
        return {"changed": False, "reboot": "another build of efa is loaded, and in use"}
    done = subprocess.run(["modprobe", "efa"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    if done.returncode != 0:
        raise Failed("modprobe efa: {}".format(done.stdout.decode("utf-8", "replace").strip()))
    return {"changed": True, "reboot": ""}
