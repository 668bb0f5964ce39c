# What the units and the program of MPS have in common: a daemon's unit, command, environment, files, GPUs.
# Python 3.6 and newer, standard library only.
import glob
import json
import os
import pwd
import stat
import subprocess
import time

from devices import Gone, Nvml, Problem, Unwanted, daemons, named

STATE = "/etc/gpuprov/mps.json"
WANTS = "/etc/systemd/system/multi-user.target.wants"
SETTLING = 2.0
"""Seconds after which a server that cannot use its devices has ended."""


def unit(name):
    return "gpuprov-mps@%s.service" % name


def systemctl(*words):
    done = subprocess.Popen(
        ["systemctl", *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True
    )
    output, _ = done.communicate()
    return done.returncode, output.strip()


def must(*words):
    status, output = systemctl(*words)
    if status:
        log = "; journalctl -u %s -n 20" % words[-1]
        raise Problem("systemctl %s: %s%s" % (" ".join(words), (output or "status %d" % status).splitlines()[0], log))


def known_names():
    """Daemons whose units are enabled, run, or have failed; not those that another unit only names."""
    _, listed = systemctl("list-units", "--all", "--plain", "--no-legend", unit("*"))
    rows = [line.split() for line in listed.splitlines()]
    units = [row[0] for row in rows if len(row) > 2 and row[2] != "inactive"]
    units += [os.path.basename(path) for path in glob.glob("%s/%s" % (WANTS, unit("*")))]
    return sorted({name.partition("@")[2].rpartition(".")[0] for name in units})


def enabled(name):
    return os.path.lexists("%s/%s" % (WANTS, unit(name)))


def process(pid):
    """PID, command line and environment of a process; None where there is none."""
    try:
        with open("/proc/%s/cmdline" % pid) as file:
            command = file.read().split("\0")
        with open("/proc/%s/environ" % pid) as file:
            environment = dict(row.partition("=")[::2] for row in file.read().split("\0") if row)
    except OSError:
        return None
    return pid, command, environment


def servers(pid):
    """PIDs of the servers in a daemon's unit, without asking it."""
    mine, found = about(pid, "cgroup"), []
    for other in os.listdir("/proc") if mine else []:
        if other.isdigit() and other != str(pid) and about(other, "comm").startswith("nvidia-cuda-mps"):
            found += [other] if about(other, "cgroup") == mine else []
    return found


def about(pid, what):
    """A file of a process; empty where there is none."""
    try:
        with open("/proc/%s/%s" % (pid, what)) as file:
            return file.read()
    except OSError:
        return ""


def replaced(pid):
    """Whether a process's program was replaced since it was started, as a change of the driver does."""
    try:
        return os.readlink("/proc/%s/exe" % pid).endswith(" (deleted)")
    except OSError:
        return False


def running(name):
    """The daemon of a unit that is active, as `process` has it."""
    _, shown = systemctl("show", "-p", "ActiveState", "-p", "MainPID", unit(name))
    values = dict(line.partition("=")[::2] for line in shown.splitlines())
    return process(values.get("MainPID", "0")) if values.get("ActiveState") == "active" else None


def command(daemon, config):
    """The daemon's command line: in the foreground, as systemd's own child."""
    words = [config["control"], "-f"]
    if config["protocol"] == "v3":
        words += ["-p", "3"] + ([] if config["user"] else ["-m"]) + ["-a", path(config, daemon, "toml")]
    return words + (["-S"] if config["partitions"] and config["protocol"] == "v2" else [])


def environment(daemon):
    return {
        "CUDA_VISIBLE_DEVICES": ",".join(daemon["devices"]),
        "CUDA_MPS_PIPE_DIRECTORY": daemon["pipe"],
        "CUDA_MPS_LOG_DIRECTORY": daemon["log"],
    }


def path(config, daemon, kind):
    return "%s/%s.%s" % (config["paths"]["runtime"], daemon["name"], kind)


def folder(name):
    """A directory of root's that every user can pass: users' programs look for the daemon's sockets there. /tmp is everybody's."""
    os.makedirs(name, mode=0o755, exist_ok=True)
    status = os.lstat(name)
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
        raise Problem("%s is a link or another user's (uid %d): remove it, then start the unit" % (name, status.st_uid))
    if status.st_mode & 0o022 or status.st_mode & 0o555 != 0o555:
        os.chmod(name, 0o755)


def write(name, text, change=True):
    """Replace a file at once, if `change`; whether it was another."""
    try:
        with open(name) as file:
            if file.read() == text:
                return False
    except OSError:
        pass
    if not change:
        return True
    os.makedirs(os.path.dirname(name), mode=0o755, exist_ok=True)
    with open(name + ".new", "w") as file:
        file.write(text)
    os.chmod(name + ".new", 0o644)
    os.rename(name + ".new", name)
    return True


def uid_of(config):
    """The user's number; None without one."""
    user = config["user"]
    try:
        return None if not user else int(user) if user.isdigit() else pwd.getpwnam(user).pw_uid
    except KeyError as error:
        raise Problem("mps.user: the host has no user %s" % user) from error


def toml(daemon, config):
    """What protocol 3 starts with: https://docs.nvidia.com/deploy/mps/mpsv3-configuration-file.html"""
    rows = [
        'schema_version = "1.0"',
        "[servers.%s]" % config["paths"]["server"],
        'allowed_devices = "%s"' % ",".join(daemon["devices"]),
        'active_thread_percentage = "%d"' % config["percentage"],
        'client_priority = "%s"' % config["priority"],
        "uid = %d" % (uid_of(config) or 0),
    ]
    rows += ['pinned_memory_limit = "%s"' % config["memory"]["all"]] if config["memory"] else []
    for device in daemon["devices"] if config["partitions"] else []:
        rows += ["[[servers.%s.devices]]" % config["paths"]["server"], 'uuid = "%s"' % device]
        for number, chunks in enumerate(config["partitions"]):
            rows += [
                "[[servers.%s.devices.sm_partitions]]" % config["paths"]["server"],
                'name = "p%d"' % number,
                "chunks = %d" % chunks,
            ]
    return "\n".join(rows) + "\n"


def client_environments(daemon, config, control=None):
    """By file name: what clients of the daemon have to set; with static partitions also one for each, NAME-0 and on."""
    pipe = daemon["pipe"] + ("/" + config["paths"]["server"] if config["protocol"] == "v3" else "")
    base = {"CUDA_MPS_PIPE_DIRECTORY": pipe, "CUDA_MPS_LOG_DIRECTORY": daemon["log"]}
    base.update({"CUDA_VISIBLE_DEVICES": daemon["devices"][0]} if daemon["mig"] else {})
    found = {daemon["name"]: base}
    if control and config["partitions"]:
        there = control.partitions().get(daemon["devices"][0], [])
        for number, chunks in enumerate(config["partitions"]):
            same = next((one for one in there if one[0] == chunks), None)
            if same:
                there.remove(same)
                found["%s-%d" % (daemon["name"], number)] = dict(base, CUDA_MPS_SM_PARTITION=same[1])
    return found


def write_environments(daemon, config, control, change=True):
    """The environment files, and the snippets for containers; whether one differs. What it wrote before and not now is removed."""
    changed, written = [], []
    for name, values in client_environments(daemon, config, control).items():
        rows = ["%s=%s" % pair for pair in sorted(values.items())]
        written.append("%s/%s.env" % (config["paths"]["runtime"], name))
        changed.append(write(written[-1], "\n".join(rows) + "\n", change))
        if config["container_directory"]:
            pipe = (daemon["pipe"],) * 2
            body = [
                "# Clients of the MPS daemon %s in containers: written by gpuprov-mps@%s at each start."
                % (name, daemon["name"]),
                "# docker run --env-file %s -v %s:%s --ipc host" % ((written[-1],) + pipe),
                "environment:",
            ]
            body += ["  %s: %s" % pair for pair in sorted(values.items())]
            body += ["volumes:", "  - %s:%s" % pipe, "ipc: host"]
            written.append("%s/%s.yaml" % (config["container_directory"], name))
            changed.append(write(written[-1], "\n".join(body) + "\n", change))
    if not change:
        return any(changed)
    gone = remove_environments(config, daemon["name"], written)
    write(path(config, daemon, "files"), "\n".join(written) + "\n")
    return any(changed) or gone


def remove_environments(config, name, but=()):
    """Remove what a daemon's unit has written for clients, but for some; whether there was any."""
    listed, gone = "%s/%s.files" % (config["paths"]["runtime"], name), False
    try:
        with open(listed) as file:
            written = file.read().split("\n")
    except OSError:
        return False
    for one in written:
        if one and one not in but and os.path.exists(one):
            os.unlink(one)
            gone = True
    os.unlink(listed)
    return gone


def from_state(name):
    """Configuration, NVML and daemon of a unit."""
    with open(STATE) as file:
        config = json.load(file)
    if not named(config, name):
        raise Unwanted("%s has no daemon %s: gpuprov apply removes the unit" % (STATE, name))
    nvml = Nvml()
    found = [one for one in daemons(config, nvml.gpus()) if one["name"] == name]
    if not found:
        raise Gone("%s has no daemon %s for the devices that are there" % (STATE, name))
    return config, nvml, found[0]


def start_server(config, control):
    """Have the server of the user whom the spec names; whether one was started. Protocol 3 makes its own."""
    uid = uid_of(config)
    if uid is None or control.v3 or serves(uid, control):
        return False
    control.ask("start_server -uid %d" % uid)
    time.sleep(SETTLING)
    return serves(uid, control)


def serves(uid, control):
    """Whether a server of this user lives."""
    for pid in control.servers():
        try:
            if os.stat("/proc/" + pid).st_uid == uid:
                return True
        except OSError:
            continue
    return False


def shared_memory(config, change=True):
    """Make /dev/shm at least as large as asked for; what was to be done."""
    if not config["shm"]:
        return []
    wanted = int(config["shm"][:-1]) * (1 << 30 if config["shm"].endswith("G") else 1 << 20)
    status = os.statvfs("/dev/shm")
    if status.f_blocks * status.f_frsize >= wanted:
        return []
    told = ["/dev/shm: %d MiB -> %s" % (status.f_blocks * status.f_frsize >> 20, config["shm"])]
    if not change:
        return told
    done = subprocess.Popen(
        ["mount", "-o", "remount,size=%s" % config["shm"], "/dev/shm"], stderr=subprocess.PIPE, universal_newlines=True
    )
    _, error = done.communicate()
    if done.returncode:
        raise Problem("mps.shm_size: /dev/shm cannot be made %s: %s" % (config["shm"], error.strip()))
    return told
