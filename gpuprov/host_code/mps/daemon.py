"""Functions that the units and the program of MPS share: a daemon's unit, command, environment, files, GPUs."""

from __future__ import annotations

import glob
import json
import os
import pwd
import stat
import subprocess
import tempfile
import time
from typing import Any, Dict, List, Tuple

from .control import Control
from .devices import Config, Daemon, Gone, Nvml, Problem, Unwanted, can_be_named, list_daemons

# PID, command line and environment of a process.
Process = Tuple[str, List[str], Dict[str, str]]
STATE = "/etc/gpuprov/mps.json"
WANTS = "/etc/systemd/system/multi-user.target.wants"
# Seconds within which a server that cannot use its devices ends.
SETTLING = 2.0


def name_unit(name: str) -> str:
    return f"gpuprov-mps@{name}.service"


def run_systemctl(*words: str) -> tuple[int, str]:
    done = subprocess.Popen(
        ["systemctl", *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8", errors="replace"
    )
    output, _ = done.communicate()
    return done.returncode, output.strip()


def must(*words: str) -> None:
    status, output = run_systemctl(*words)
    if status:
        log = f"; journalctl -u {words[-1]} -n 20"
        raise Problem(f"systemctl {' '.join(words)}: {(output or f'status {status}').splitlines()[0]}{log}")


def list_known_names() -> list[str]:
    """List daemons whose units are enabled, run, or have failed; not those that another unit only names."""
    _, listed = run_systemctl("list-units", "--all", "--plain", "--no-legend", name_unit("*"))
    rows = [line.split() for line in listed.splitlines()]
    units = [row[0] for row in rows if len(row) > 2 and row[2] != "inactive"]
    units += [os.path.basename(path) for path in glob.glob(f"{WANTS}/{name_unit('*')}")]
    return sorted({name.partition("@")[2].rpartition(".")[0] for name in units})


def is_enabled(name: str) -> bool:
    return os.path.lexists(f"{WANTS}/{name_unit(name)}")


def read_process(pid: str) -> Process | None:
    """Return PID, command line and environment of a process; None if there is none."""
    try:
        with open(f"/proc/{pid}/cmdline", errors="replace") as file:
            command = file.read().split("\0")
        with open(f"/proc/{pid}/environ", errors="replace") as file:
            environment = dict(row.partition("=")[::2] for row in file.read().split("\0") if row)
    except OSError:
        return None
    return pid, command, environment


def list_servers(pid: str) -> list[str]:
    """Return PIDs of the servers in a daemon's unit, without querying it."""
    own_group = read_process_file(pid, "cgroup")
    pids: list[str] = []
    for other in os.listdir("/proc") if own_group else []:
        if other.isdigit() and other != pid and read_process_file(other, "comm").startswith("nvidia-cuda-mps"):
            pids += [other] if read_process_file(other, "cgroup") == own_group else []
    return pids


def read_process_file(pid: str, what: str) -> str:
    """Return a file of a process; "" if there is none."""
    try:
        with open(f"/proc/{pid}/{what}", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def find_running(name: str) -> Process | None:
    """Return the daemon of an active unit, as in `read_process`."""
    _, shown = run_systemctl("show", "-p", "ActiveState", "-p", "MainPID", name_unit(name))
    values = dict(line.partition("=")[::2] for line in shown.splitlines())
    return read_process(values.get("MainPID", "0")) if values.get("ActiveState") == "active" else None


def build_command(daemon: Daemon, config: Config) -> list[str]:
    """Return the daemon's command line: in the foreground, as systemd's own child."""
    words = [config["control"], "-f"]
    if config["protocol"] == "v3":
        words += ["-p", "3"] + ([] if config["user"] else ["-m"]) + ["-a", make_path(config, daemon, "toml")]
    return words + (["-S"] if config["partitions"] and config["protocol"] == "v2" else [])


def build_environment(daemon: Daemon) -> dict[str, str]:
    return {
        "CUDA_VISIBLE_DEVICES": ",".join(daemon["devices"]),
        "CUDA_MPS_PIPE_DIRECTORY": daemon["pipe"],
        "CUDA_MPS_LOG_DIRECTORY": daemon["log"],
    }


def make_path(config: Config, daemon: Daemon, kind: str) -> str:
    return f"{config['paths']['runtime']}/{daemon['name']}.{kind}"


def make_folder(name: str) -> None:
    """Create a directory of root's that every user can pass: users' programs look for the daemon's sockets there.
    Anybody can write to /tmp."""
    os.makedirs(name, mode=0o755, exist_ok=True)
    status = os.lstat(name)
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
        raise Problem(f"{name} is a link or another user's (uid {status.st_uid}): remove it, then start the unit")
    if status.st_mode & 0o022 or status.st_mode & 0o555 != 0o555:
        os.chmod(name, 0o755)


def write(name: str, text: str, change: bool = True) -> bool:
    """Replace a file at once, if `change`; return whether it differed. The folder may be the site's, and
    world-writable: no link is followed."""
    try:
        if stat.S_ISREG(os.lstat(name).st_mode):
            with open(name, errors="replace") as file:
                if file.read() == text:
                    return False
    except OSError:
        pass
    if not change:
        return True
    os.makedirs(os.path.dirname(name), mode=0o755, exist_ok=True)
    handle, fresh = tempfile.mkstemp(prefix=".gpuprov-", dir=os.path.dirname(name))
    try:
        with open(handle, "w") as file:
            file.write(text)
            os.fchmod(handle, 0o644)
        os.rename(fresh, name)
    except BaseException:
        os.unlink(fresh)
        raise
    return True


def find_uid(config: Config) -> int | None:
    """Return the user's number; None without a user."""
    user = config["user"]
    try:
        return None if not user else int(user) if user.isdigit() else pwd.getpwnam(user).pw_uid
    except KeyError as error:
        raise Problem(f"mps.user: the host has no user {user}") from error


def format_toml(daemon: Daemon, config: Config) -> str:
    """Return the configuration that protocol 3 starts with."""
    # https://docs.nvidia.com/deploy/mps/mpsv3-configuration-file.html
    rows = [
        'schema_version = "1.0"',
        f"[servers.{config['paths']['server']}]",
        f'''allowed_devices = "{",".join(daemon["devices"])}"''',
        f'''active_thread_percentage = "{config["percentage"]}"''',
        f'''client_priority = "{config["priority"]}"''',
        f"uid = {find_uid(config) or 0}",
    ]
    rows += [f'''pinned_memory_limit = "{config["memory"]["all"]}"'''] if config["memory"] else []
    for device in daemon["devices"] if config["partitions"] else []:
        rows += [f"[[servers.{config['paths']['server']}.devices]]", f'uuid = "{device}"']
        for number, chunks in enumerate(config["partitions"]):
            rows += [
                f"[[servers.{config['paths']['server']}.devices.sm_partitions]]",
                f'name = "p{number}"',
                f"chunks = {chunks}",
            ]
    return "\n".join(rows) + "\n"


def read_state(name: str) -> tuple[dict[str, Any], Nvml, Daemon]:
    """Return configuration, NVML and daemon of a unit."""
    with open(STATE, encoding="utf-8", errors="replace") as file:
        config = json.load(file)
    if not can_be_named(config, name):
        raise Unwanted(f"{STATE} has no daemon {name}: gpuprov apply removes the unit")
    nvml = Nvml()
    matching = [daemon for daemon in list_daemons(config, nvml.gpus()) if daemon["name"] == name]
    if not matching:
        raise Gone(f"{STATE} has no daemon {name} for the devices that are there")
    return config, nvml, matching[0]


def start_server(config: Config, control: Control) -> bool:
    """Start the server of the user whom the spec names; return whether one was started. Protocol 3 makes its own."""
    uid = find_uid(config)
    if uid is None or control.v3 or is_serving(uid, control):
        return False
    control.ask(f"start_server -uid {uid}")
    time.sleep(SETTLING)
    return is_serving(uid, control)


def is_serving(uid: int, control: Control) -> bool:
    """Return whether a server of this user is running."""
    for pid in control.servers():
        try:
            if os.stat("/proc/" + pid).st_uid == uid:
                return True
        except OSError:
            continue
    return False


def enlarge_shared_memory(config: Config, change: bool = True) -> list[str]:
    """Make /dev/shm at least as large as configured; return the changes."""
    if not config["shm"]:
        return []
    size = int(config["shm"][:-1]) * (1 << 30 if config["shm"].endswith("G") else 1 << 20)
    status = os.statvfs("/dev/shm")
    if status.f_blocks * status.f_frsize >= size:
        return []
    changes = [f"/dev/shm: {status.f_blocks * status.f_frsize >> 20} MiB -> {config['shm']}"]
    if not change:
        return changes
    done = subprocess.Popen(
        ["mount", "-o", f"remount,size={config['shm']}", "/dev/shm"],
        stderr=subprocess.PIPE,
        encoding="utf-8",
        errors="replace",
    )
    _, error = done.communicate()
    if done.returncode:
        raise Problem(f"mps.shm_size: /dev/shm cannot be made {config['shm']}: {error.strip()}")
    return changes
