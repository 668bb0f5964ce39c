"""Run CUDA on each GPU and MIG device in a container of each engine, and print how each run ended. It is sent to hosts
as text, behind PROGRAM, the program that runs CUDA, for any Python from 3.6 on.

An image needs neither Python nor a shell: the program in the container is the host's own Python, with its linker and
libraries, mounted read-only. It finds libcuda as any program there does, by the image's linker cache, into which the
toolkit writes. What a process of a container may not open, it may not open either.
The container has no network and no capabilities, ends by itself, and is removed by a process of a session of its own,
even when all else of this login has been killed.
"""

import fcntl
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from typing import Any

PROGRAM = ""
NAME, PLACE = "gpuprov-cuda", "/.gpuprov"
LIMIT, PATIENCE, LONGEST = 24.0, 12.0, 60000
SPLIT = ("libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "libutil.so.1")
GPUS = {"NVIDIA_VISIBLE_DEVICES": "all", "NVIDIA_DRIVER_CAPABILITIES": "compute,utility"}
CTR = ("ctr", "--namespace")
# Variables by which clients of docker, podman and containerd leave the host's own engine for another.
ELSEWHERE = ("DOCKER_HOST", "DOCKER_CONTEXT", "CONTAINER_HOST", "CONTAINERD_ADDRESS")


def run(words: Any, seconds: float) -> Any:
    """Return the exit status and the output of a command; status None if it did not end in time, or is not there."""
    pipe, nothing = subprocess.PIPE, subprocess.DEVNULL
    own = {name: os.environ[name] for name in os.environ if name not in ELSEWHERE}
    given: Any = {"stdin": nothing, "stdout": pipe, "stderr": subprocess.STDOUT, "timeout": seconds, "env": own}
    try:
        done = subprocess.run(words, check=False, **given)
    except subprocess.TimeoutExpired:
        return None, f"no answer within {seconds:.0f} s"
    except OSError as error:
        return None, f"{words[0]}: {error.strerror}"
    return done.returncode, done.stdout.decode(errors="replace")


def find_drain() -> str:
    """Return who has drained the host, if that is not the run that works on it; a drain of health is nobody's work."""
    runs = []
    for path in ("/var/lib/gpuprov/drained.json", "/run/gpuprov/lock/owner.json"):
        run_of = re.search(r'"run": ?"([^"]+)"', run(("cat", path), 5)[1])
        runs.append(run_of.group(1) if run_of else "")
    if runs[0] and runs[0] != runs[1]:
        return f"gpuprov run {runs[0]}"
    node = run(("scontrol", "-o", "show", "node", socket.gethostname().partition(".")[0]), 5)[1]
    # scontrol -o puts a node in one line: `... State=DRAIN+MIXED ... Reason=gpuprov fri [user@time] ...`.
    reason = re.search(r" Reason=(.*?)(?: \[\S+\])?(?: \w+=|$)", node, re.MULTILINE)
    ours = bool(reason) and reason.group(1).startswith("gpuprov")  # type: ignore[union-attr]
    if re.search(r" State=\S*DRAIN", node) and not ours:
        return f"Slurm ({reason.group(1)})" if reason else "Slurm"
    return ""


def list_mounts() -> Any:
    """Return paths of the host's Python, by the path in the container; of libraries under the names that the linker
    asks for."""
    with open("/proc/self/maps", encoding="utf-8") as maps:
        mapped = maps.read()
    linker = next(
        path for path in re.findall(r" (/\S+)$", mapped, re.MULTILINE) if os.path.basename(path).startswith("ld-")
    )
    python = os.path.realpath(sys.executable)
    mounts = {f"{PLACE}/linker": linker, f"{PLACE}/python": python}
    for path in (python, getattr(sys.modules["_ctypes"], "__file__", "")):
        for name, library in re.findall(r"(\S+) => (/\S+)", run((linker, "--list", path), 5)[1] if path else ""):
            mounts[f"{PLACE}/{name}"] = os.path.realpath(library)
            for other in SPLIT if name == SPLIT[0] else ():
                beside = os.path.join(os.path.dirname(library), other)
                if os.path.exists(beside):  # of one release with libc, as libcuda needs them
                    mounts[f"{PLACE}/{other}"] = os.path.realpath(beside)
    library = os.path.dirname(os.path.realpath(os.__file__))
    return {**mounts, library: library}


def compose(engine: str, image: str, space: str, devices: Any) -> Any:
    """Return the command that runs CUDA on these devices in a container of the engine."""
    program = PROGRAM.replace("PATIENCE = 30.0", f"PATIENCE = {PATIENCE}")
    words = [f"{PLACE}/linker", "--library-path", PLACE, f"{PLACE}/python", "-S", "-s", "-c", program, "--within"]
    words += ["|".join(device) for device in devices]
    home = f"{sys.base_prefix}:{sys.base_exec_prefix}"
    settings = {"PYTHONHOME": home, "PYTHONPATH": "", "LD_PRELOAD": "", **({} if engine == "podman" else GPUS)}
    environment = [word for name in settings for word in ("--env", f"{name}={settings[name]}")]
    mounts = list_mounts()
    if engine == "containerd":
        runtime = shutil.which("nvidia-container-runtime") or "nvidia-container-runtime"
        binds = [word for to in mounts for word in ("--mount", f"type=bind,src={mounts[to]},dst={to},options=rbind:ro")]
        return [*CTR, space, "run", "--rm", "--runc-binary", runtime, *environment, *binds, image, NAME, *words]
    binds = [word for to in mounts for word in ("--volume", f"{mounts[to]}:{to}:ro")]
    gpus = ("--device", "nvidia.com/gpu=all") if engine == "podman" else ("--runtime", "nvidia")
    plain = (
        "--network",
        "none",
        "--user",
        "0:0",
        "--cap-drop",
        "ALL",
        "--log-driver",
        "none",
        "--entrypoint",
        words[0],
    )
    return [engine, "run", "--rm", "--name", NAME, *plain, *gpus, *environment, *binds, image, *words[1:]]


def find_image(engine: str, image: str) -> Any:
    """Return the image's name in the engine, containerd's namespace with it, and why the engine does not have it."""
    if engine != "containerd":
        status, printed = run((engine, "image", "inspect", image), 5)
        return image, "", "" if status == 0 else printed
    filters = [f"name=={registry}{image}" for registry in ("", "docker.io/", "docker.io/library/")]
    for space in ("default", "k8s.io"):
        status, printed = run((*CTR, space, "images", "ls", "-q", *filters), 5)
        if status != 0 or printed.strip():
            return printed.strip().rpartition("\n")[2], space, "" if status == 0 else printed
    return image, "", f"no such image: {image}"


def remove(engine: str, space: str) -> None:
    """Remove the container, if it is there."""
    if engine == "containerd":
        run((*CTR, space, "task", "rm", "--force", NAME), 5)
        run((*CTR, space, "container", "rm", NAME), 5)
    else:
        run((engine, "rm", "--force", NAME), 10)


def guard(engine: str, space: str, command: Any, seconds: float) -> str:
    """Run the command in a session of its own, and remove the container after it; return its output."""
    answers, into = os.pipe()
    if not os.fork():
        os.setsid()
        if os.fork():
            os._exit(0)
        try:
            nothing = os.open(os.devnull, os.O_RDWR)
            for stream in (0, 1, 2, answers):
                os.dup2(nothing, stream)
            remove(engine, space)
            status, printed = run(command, seconds)
            os.write(into, f"{'end' if status is None else status}\n{printed}".encode()[:LONGEST])
            os.close(into)
            remove(engine, space)
        finally:
            os._exit(0)
    os.close(into)
    os.wait()
    with os.fdopen(answers, encoding="utf-8", errors="replace") as pipe:
        return pipe.read()


def try_engine(engine: str, image: str, devices: Any, until: float) -> None:
    """Print what came of it in this engine: a line for each device, or one that says why there is none."""
    name, space, absent = find_image(engine, image)
    printed = absent or guard(engine, space, compose(engine, name, space, devices), until - time.time())
    lines = [line for line in printed.splitlines() if line.startswith("run|")]
    if lines and not absent:
        print("\n".join(f"{line[:3]}|{engine}{line[3:]}" for line in lines))
    else:
        words = [word for word in (absent or printed.partition("\n")[2]).split() if word != "[]"]
        print(f"{'image' if absent else 'start'}|{engine}|{' '.join(words)[-600:]}")


def select_engines(names: str) -> Any:
    """Return the engines that were named; without any, those of the host, containerd only where it has no docker."""
    present = [name for name in ("docker", "podman", "containerd") if shutil.which(name)]
    return names.split() or [name for name in present if name != "containerd" or "docker" not in present]


def main(image: str, engines: str) -> None:
    drain = find_drain()
    cuda: Any = {"__name__": "cuda"}
    exec(PROGRAM, cuda)
    devices = [] if drain else list(cuda["list_devices"]())
    obstacle = f"drained|{drain}" if drain else cuda["find_obstacle"](devices)
    if obstacle:
        print(obstacle)
        return
    turn = os.open(
        os.path.dirname(os.__file__), os.O_RDONLY
    )  # whose lock changes nothing; the guard keeps it to its end
    try:
        fcntl.flock(turn, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        print("turn|")
        return
    until = time.time() + LIMIT
    for engine in select_engines(engines):
        try_engine(engine, image, devices, until)


if __name__ == "__main__":
    main(*sys.argv[1:3])
