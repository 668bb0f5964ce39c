"""MPS on the good host, told as its probe prints it."""

from __future__ import annotations

import json

A, B = "GPU-3c1f6d5e-0000-1111-2222-333344445555", "GPU-4d2e7c6f-0000-1111-2222-333344445555"
MIG = ("MIG-aaaa0000-1111-5222-8333-444455556666", "MIG-bbbb0000-1111-5222-8333-444455556666")
COMMAND = "nvidia-cuda-mps-control -f"


def gpus(*modes: str, mig: str = "Disabled") -> str:
    """nvidia-smi's rows and list of two GPUs in these compute modes; with MIG devices on both, if `mig` is Enabled."""
    rows = [
        f"gpu|{number}, {uuid}, 00000000:{bus}:00.0, {mode}, {mig}\n"
        for number, (uuid, bus, mode) in enumerate(
            zip((A, B), ("19", "3B"), modes or ("Exclusive_Process",) * 2, strict=True)
        )
    ]
    for number, uuid in enumerate((A, B)):
        rows.append(f"device|GPU {number}: NVIDIA H100 80GB HBM3 (UUID: {uuid})\n")
        rows += [f"device|  MIG 3g.40gb     Device  0: (UUID: {MIG[number]})\n"] * (mig == "Enabled")
    return "".join(rows)


def daemon(
    name: str = "host", *devices: str, pid: int = 700, percentage: str = "100.0", priority: str = "0",
    limits: tuple[str, ...] = (),
    servers: str = "", command: str = COMMAND, pipe: str = "/tmp/nvidia-mps", answer: str = "", unit: str = "",
) -> str:  # fmt: skip
    """A control daemon of gpuprov's unit NAME, and what it answers. `servers`: `PID UID STATUS CLIENTS` of each, with
    semicolons."""
    mine = devices or (A, B)
    lines = [f"daemon|{pid}|{unit or f'gpuprov-mps@{name}.service'}|{command} "]
    lines += [f"env|{pid}|CUDA_VISIBLE_DEVICES={','.join(mine)}", f"env|{pid}|CUDA_MPS_PIPE_DIRECTORY={pipe}"]
    lines += [f"env|{pid}|CUDA_MPS_LOG_DIRECTORY=/var/log/nvidia-mps"]
    if answer:
        return "\n".join([*lines, f"answer|{pid}|{answer}"]) + "\n"
    said = [percentage, priority]
    for number in range(len(mine)):
        said += [percentage, *([limits[number]] if limits[number : number + 1] != ("",) and limits[number:] else [])]
    rows = [row.split() for row in servers.split(";") if row]
    said += [percentage, *(row[0] for row in rows)]
    lines += [f"answer|{pid}|{line}" for line in said]
    for server, uid, status, clients in rows:
        lines += [f"server|{pid}|{server}|uid|{uid}", f"server|{pid}|{server}|answer|{percentage}"]
        lines += [f"server|{pid}|{server}|answer|{status}"]
        lines += [f"server|{pid}|{server}|answer|{900 + number}" for number in range(int(clients))]
    return "\n".join(lines) + "\n"


def units(*names: str, off: tuple[str, ...] = ()) -> str:
    """gpuprov's units: enabled and running; `off`: running only."""
    return "".join(f"unit|{name}|active|{'off' if name in off else 'enabled'}\n" for name in (*names, *off))


def environment(name: str = "host", pipe: str = "/tmp/nvidia-mps", *more: str) -> str:
    """The environment that a daemon's unit has written."""
    path = f"/run/gpuprov/mps/{name}.env"
    return "".join(f"file|{path}|{line}\n" for line in (f"CUDA_MPS_PIPE_DIRECTORY={pipe}", *more))


def state(**written: object) -> str:
    """mps.json as the role writes it."""
    text = json.dumps(written, indent=4)
    return "".join(f"file|/etc/gpuprov/mps.json|{line}\n" for line in text.splitlines())


def host(*parts: str, gpu: str = "") -> str:
    """The probe's output: two GPUs, and these parts; without any, the one daemon of scope host."""
    given = "".join(parts) or daemon() + units("host") + environment()
    return "program|\nshm|65536\n" + (gpu or gpus()) + given


TWO = (
    daemon("gpu0", A, pipe="/run/nvidia-mps/gpu0")
    + daemon("gpu1", B, pid=701, pipe="/run/nvidia-mps/gpu1")
    + units("gpu0", "gpu1")
    + environment("gpu0", "/run/nvidia-mps/gpu0")
    + environment("gpu1", "/run/nvidia-mps/gpu1")
)
INDEX = " nvidia-cuda-mps | 535.261.03-1 | http://x P\n nvidia-cuda-mps | 535.309.01-0+deb12u1 | http://x P\n"
PROBES = {"mps": host(), "mps_index": INDEX, "mps_user": ""}
