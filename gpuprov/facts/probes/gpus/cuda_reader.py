"""Run CUDA on each GPU and MIG device, as an ordinary user or in a container, and print how each run ended. It is sent
to hosts as text, for any Python from 3.6 on.

Each device gets a process that may see it alone: libcuda, a context, 1 MiB of memory, a copy there and back. It makes
nothing on the host: libcuda would make a missing /dev/nvidia-uvm, so without it nothing is run; and it is not a client
of MPS, whose daemon serves one user at a time.
Functions: https://docs.nvidia.com/cuda/cuda-driver-api/
"""

import ctypes
import glob
import os
import re
import signal
import subprocess
import sys
import time
from typing import Any

CONTROL, UVM = "/dev/nvidiactl", "/dev/nvidia-uvm"
PATIENCE = 30.0
SIZE = 1 << 20
GPUS = ("--query-gpu=uuid,pci.bus_id,mig.mode.current,compute_mode", "--format=csv,noheader")
ENVIRONMENT = {"PATH": "/usr/bin:/bin", "CUDA_CACHE_DISABLE": "1", "CUDA_MPS_PIPE_DIRECTORY": "/nonexistent"}


def ask_smi(*options: str) -> Any:
    try:
        done = subprocess.run(["nvidia-smi", *options], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    except OSError as error:
        return [f"nvidia-smi: {error.strerror}"]
    return done.stdout.decode(errors="replace").splitlines()


def list_devices() -> Any:
    """Yield UUID, PCI address and compute mode of each MIG device, and of each GPU that is not in MIG mode."""
    gpus = {}
    for line in ask_smi(*GPUS):
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) == 4 and cells[0].startswith("GPU-"):
            gpus[cells[0]] = cells[1:]
    gpu = ""
    for line in ask_smi("-L"):
        # GPU 0: NVIDIA A100 80GB PCIe (UUID: GPU-00000001-0000-0000-0000-000000000000)
        #   MIG 3g.40gb     Device  0: (UUID: MIG-00000002-0000-0000-0000-000000000000)
        match = re.search(r"\(UUID: ((?:GPU|MIG)-[^)\s|]+)\)", line)
        name = match.group(1) if match else ""
        if name.startswith("GPU-"):
            gpu = name if name in gpus else ""
        if gpu and name and (name.startswith("MIG-") or gpus[gpu][1] != "Enabled"):
            yield name, gpus[gpu][0], gpus[gpu][2]


def become(user: Any, device: str) -> None:
    """Become this user (None: stay who it is), with an environment in which CUDA sees one device. Raises OSError."""
    if user and os.geteuid() != user.pw_uid:
        os.initgroups(user.pw_name, user.pw_gid)
        os.setgid(user.pw_gid)
        os.setuid(user.pw_uid)
    os.chdir("/")
    os.environ.clear()
    os.environ.update(ENVIRONMENT, HOME=user.pw_dir if user else "/", CUDA_VISIBLE_DEVICES=device)


def run_cuda(user: Any, device: str) -> str:
    """Return the step that failed, CUDA's number and a text, with | between them; the step is empty if none failed."""
    try:
        become(user, device)
    except OSError as error:
        return f"become|0|{error}"
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        return f"load|0|{error}"
    for path in (CONTROL, UVM, *([] if user else sorted(glob.glob("/dev/nvidia[0-9]*")))):
        try:
            os.close(os.open(path, os.O_RDWR))
        except OSError as error:
            return f"open|{error.errno}|{path}"
    number, context, memory = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
    sent, size = os.urandom(SIZE), ctypes.c_size_t(SIZE)
    back = ctypes.create_string_buffer(SIZE)
    calls = (
        ("cuInit", 0),
        ("cuDeviceGet", ctypes.byref(number), 0),
        ("cuDevicePrimaryCtxRetain", ctypes.byref(context), number),
        ("cuCtxSetCurrent", context),
        ("cuMemAlloc_v2", ctypes.byref(memory), size),
        ("cuMemcpyHtoD_v2", memory, sent, size),
        ("cuMemcpyDtoH_v2", back, memory, size),
    )
    for name, *arguments in calls:
        code = getattr(cuda, name)(*arguments)
        if code:
            return f"{name.split('_')[0]}|{code}|"
    return "|0|" if back.raw == sent else "compare|0|"


def start(user: Any, device: str) -> Any:
    """Run it in a process of its own; return its id, and the pipe that it answers by."""
    answers, into = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            os.write(into, run_cuda(user, device).encode(errors="replace"))
        finally:
            os._exit(0)
    os.close(into)
    return pid, answers


def collect(running: Any) -> Any:
    """Wait for all, and kill what has not ended in time; what hangs in the kernel is left to it."""
    ended: Any = {}
    until = time.time() + PATIENCE
    while len(ended) < len(running):
        for device, (pid, answers) in running.items():
            if device in ended:
                continue
            if os.waitpid(pid, os.WNOHANG)[0]:
                ended[device] = " ".join(os.read(answers, 4096).decode(errors="replace").split()) or "crash|0|"
            elif time.time() > until:
                os.kill(pid, signal.SIGKILL)
                ended[device] = f"hang|0|{PATIENCE:.0f}"
        time.sleep(0.02)
    return ended


def find_obstacle(devices: Any) -> str:
    """Return the line that says why CUDA cannot run on a host with these devices; empty if it can."""
    if not devices:
        return "no-device|" + " ".join(" ".join(ask_smi("-L")).split())
    return "" if os.path.exists(UVM) else "no-uvm|"


def run_each(user: Any, devices: Any) -> None:
    """Run CUDA on these devices as this user (None: as who it is), and print a line for each."""
    sys.stdout.flush()
    ended = collect({device: start(user, device) for device, _, _ in devices})
    for device, address, mode in devices:
        print(f"run|{device}|{address}|{mode}|{ended[device]}", flush=True)


def main(name: str) -> None:
    import pwd

    try:
        user = pwd.getpwnam(name)
    except KeyError:
        print(f"no-user|{name}")
        return
    devices = list(list_devices())
    obstacle = find_obstacle(devices)
    if obstacle:
        print(obstacle)
        return
    run_each(user, devices)


if __name__ == "__main__":
    if sys.argv[1] == "--within":
        run_each(None, [device.split("|") for device in sys.argv[2:]])
    else:
        main(sys.argv[1])
