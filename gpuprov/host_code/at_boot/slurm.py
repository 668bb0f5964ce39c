"""Slurm's view of this host's GPUs. `slurm gres [SECONDS]` waits for the GPUs and writes gres.conf; `slurm health`
judges them, and drains the node if one is not fit for work.

The numbers of MIG device files follow from the instances that exist, so that gres.conf is written anew before each
start of slurmd. Syntax: https://slurm.schedmd.com/gres.conf.html
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from typing import Any, Iterator, Mapping, NamedTuple, Sequence, TypedDict

from .mig_names import name_device
from .program import Refused, main, read, run, tell, wait

CONFIG = "/etc/gpuprov/slurm.json"
FOLDER = "/etc/slurm"
GRES = f"{FOLDER}/gres.conf"
MARK = "# Managed by gpuprov"
HEADER = f"{MARK}: written again before each start of slurmd, from the GPUs that the host has then.\n"
UVM = "/dev/nvidia-uvm"
CAPABILITIES = "/proc/driver/nvidia/capabilities"
READER = f"""cd {CAPABILITIES} 2>/dev/null || exit 0
for f in gpu*/mig/gi*/access gpu*/mig/gi*/ci*/access; do
  [ -r "$f" ] && echo "$f $(sed -n 's/^DeviceFileMinor: *//p' "$f")"
done
true"""
# Seconds within which NVML answers on a healthy host.
ANSWERS = 1.5
# slurmd kills its health check after 60 seconds.
SCONTROL = ("timeout", "20", "scontrol")
REASON = "gpuprov health"
# Beginnings of the states of a node on which nothing new starts:
# https://slurm.schedmd.com/sinfo.html#SECTION_NODE-STATE-CODES
HELD = ("DRAIN", "DOWN", "FAIL", "ERROR")
# Set by slurmd for a prolog or an epilog, after whose failure it drains the node by itself:
# https://slurm.schedmd.com/prolog_epilog.html
JOB_SCRIPT = "SLURM_SCRIPT_CONTEXT"


class Config(TypedDict):
    """The configuration of this node. `count`: GPUs; `xid`: the form of an Xid's line, `xids`: what is to be done after
    which."""

    gres: str
    type: str
    shards: int
    count: int
    xid: str
    xids: Mapping[str, str]
    block: Any


class Part(TypedDict):
    """A compute instance."""

    id: int
    slices: int


class Instance(TypedDict):
    """A GPU instance."""

    id: int
    profile: str
    compute: Sequence[Part]


class Gpu(TypedDict, total=False):
    """A GPU."""

    minor: int
    # It is in MIG mode.
    current: bool | None
    instances: Sequence[Instance]


class State(TypedDict, total=False):
    """The GPUs as NVML has them, or its `complaint`."""

    gpus: Sequence[Gpu]
    unread: Sequence[str]
    complaint: str | None


class Device(NamedTuple):
    """A GPU or a MIG device, with its type for Slurm (empty: none) and its device files, of which the GPU's own is the
    first."""

    kind: str
    files: tuple[str, ...]


def devices(gpus: Sequence[Gpu], nodes: Mapping[str, str], kind: str) -> Iterator[Device]:
    """Yield the devices that jobs can have. `nodes`: device files of MIG instances, by their paths in CAPABILITIES.
    Raises Refused."""
    for gpu in gpus:
        own = f"/dev/nvidia{gpu['minor']}"
        if not gpu.get("current"):
            yield Device(kind, (own,))
            continue
        for instance in gpu.get("instances", ()):
            place = f"gpu{gpu['minor']}/mig/gi{instance['id']}"
            for part in instance["compute"]:
                paths = (f"{place}/access", f"{place}/ci{part['id']}/access")
                if missing := [path for path in paths if path not in nodes]:
                    raise Refused(f"{CAPABILITIES}/{missing[0]} is not there, so that a MIG device has no device file")
                yield Device(
                    _find_profile(instance["profile"], part["slices"]), (own, *(nodes[path] for path in paths))
                )


def _find_profile(name: str, slices: int) -> str:
    if not name:
        raise Refused("the driver names no MIG profile, which gres.conf needs as a type: drivers from 510 on do")
    return name_device(name, slices)


def lines(config: Config, listed: Sequence[Device]) -> list[str]:
    """Return the lines of gres.conf for these devices."""
    made = ["AutoDetect=nvml"] if config["gres"] == "nvml" else [_format_line(device) for device in listed]
    shards = [f"Name=shard Count={config['shards']} File={device.files[0]}" for device in listed]
    return made + (shards if config["shards"] else [])


def _format_line(device: Device) -> str:
    kind = f" Type={device.kind}" if device.kind else ""
    return f"Name=gpu{kind} {'MultipleFiles' if len(device.files) > 1 else 'File'}={','.join(device.files)}"


def text(config: Config, listed: Sequence[Device]) -> str:
    """Return gres.conf for these devices."""
    return HEADER + "".join(f"{line}\n" for line in lines(config, listed))


def load() -> Config:
    """Read what gpuprov wants of this node. Raises Refused."""
    try:
        with open(CONFIG, encoding="utf-8") as file:
            config: Config = json.load(file)
            return config
    except (OSError, ValueError) as error:
        raise Refused(f"{CONFIG} cannot be read: {error}") from error


def ask_nvml(limit: float) -> State:
    """Return the GPUs that NVML lists; `complaint` in their place. A reader that hangs in the kernel is left
    behind."""
    argv = [sys.executable, "-B", os.path.join(os.path.dirname(__file__), "mig_reader.py")]
    reader = subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
    )
    try:
        output, _ = reader.communicate(timeout=limit)
        state: State = json.loads(output)
        return state
    except subprocess.TimeoutExpired:
        reader.kill()
        return {"complaint": f"NVML does not answer within {limit:g} s"}
    except ValueError:
        return {"complaint": f"NVML cannot be asked: {' '.join(output.split())[:100]}"}


def write_gres(seconds: int) -> None:
    """Wait until the host has all of its GPUs and write gres.conf from those that it has then."""
    config, state = load(), State()

    def ready() -> bool:
        nonlocal state
        state = ask_nvml(30)
        return len(state.get("gpus", ())) >= max(int(config["count"]), 1)

    wait(seconds, ready)
    if not os.path.exists(UVM):
        run("nvidia-modprobe", "-u", "-c=0")
    if not os.path.exists(UVM):
        tell(f"there is no {UVM}, without which CUDA does not start")
    if not state.get("gpus"):
        raise Refused(f"{GRES} stays as it is: {state.get('complaint') or 'NVML lists no GPU'}")
    if len(state["gpus"]) < config["count"]:
        others = "; ".join(state["unread"]) or "the others are missing"
        tell(f"{len(state['gpus'])} of {config['count']} GPUs after {seconds} s: {others}")
    if config["gres"] == "site":
        return
    made = text(config, list(devices(state["gpus"], _map_nodes(), config["type"])))
    before = _format_file(GRES)
    if before and not before.startswith(MARK):
        raise Refused(f"{GRES} is not gpuprov's: move it away, or slurm: {{gres: site}}")
    if made == before:
        return
    beside = f"{GRES}.gpuprov"
    with open(beside, "w", encoding="utf-8") as file:
        file.write(made)
        os.fchmod(file.fileno(), 0o644)
    os.replace(beside, GRES)
    tell(f"wrote {GRES}")


def _map_nodes() -> dict[str, str]:
    rows = (line.split() for line in read(READER).splitlines())
    return {row[0]: f"/dev/nvidia-caps/nvidia-cap{row[1]}" for row in rows if len(row) == 2}


def _format_file(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except FileNotFoundError:
        return ""


def unfit(config: Config, state: State, log: str) -> str:
    """Return why these GPUs are not fit for work, in one line; empty if they are. `log`: the kernel's, since the
    boot."""
    # [  966.503025] NVRM: Xid (PCI:0000:10:1c): 63, pid=1896, Row Remapper: New row marked for remapping, ...
    pattern, texts = re.compile(config["xid"]), (line.partition("] ")[2] or line for line in log.splitlines())
    logged = {(match[1], match[2]) for text in texts if (match := pattern.match(text))}
    fatal = sorted((address, number) for address, number in logged if number in config["xids"])
    if state.get("complaint"):
        return str(state["complaint"])
    if state.get("unread"):
        return "; ".join(state["unread"])
    if len(state["gpus"]) < config["count"]:
        return f"{len(state['gpus'])} of {config['count']} GPUs"
    if fatal:
        return "; ".join(f"Xid {number} of {address}: {config['xids'][number]}" for address, number in fatal[:3])
    return "" if os.path.exists(UVM) else f"no {UVM}"


def health(_seconds: int) -> None:
    """Judge the GPUs; drain the node if one is unfit and nobody has taken it out. A node that is out stays out."""
    why = unfit(load(), ask_nvml(ANSWERS), run("dmesg").stdout)
    if not why:
        return
    if JOB_SCRIPT not in os.environ:
        drain(os.environ.get("SLURMD_NODENAME") or socket.gethostname().partition(".")[0], why)
    raise Refused(why)


def drain(node: str, why: str) -> None:
    """Have Slurm start nothing more on the node. Raises Refused."""
    shown = run(*SCONTROL, "show", "node", node, "--oneliner")
    state = re.search(r"\bState=(\S+)", shown.stdout)
    if shown.returncode or not state:
        raise Refused(f"{why}; and Slurm does not say how it has node {node}: {shown.stdout.strip()[:100]}")
    if any(word.startswith(HELD) for word in state[1].split("+")):
        return
    done = run(*SCONTROL, "update", f"NodeName={node}", "State=DRAIN", f"Reason={REASON}: {why[:200]}")
    if done.returncode:
        raise Refused(f"{why}; and node {node} cannot be drained: {done.stdout.strip()[:100]}")


if __name__ == "__main__":
    main("slurm", {"gres": write_gres, "health": health})
