"""The acceptance tools on the good host, told as their probes print it."""

from __future__ import annotations

import time

import msgspec

from gpuprov.facts.probes.acceptance import PROGRAMS, Measurement, Record

FOLDER = "nccl-0123456789ab"


def tools(*names: str, built: str = "") -> str:
    """What the probe `acceptance_tools` prints; without names, every program is there. `built`: FOLDER|lost
    libraries."""
    lines = [f"tool|{name}|/usr/bin/{name}" for name in names or PROGRAMS.split()]
    return "\n".join([*lines, *([f"built|{built}"] if built else []), "python|"]) + "\n"


def record(*measurements: Measurement, age: float = 3.5 * 3600) -> str:
    """The result file of an acceptance this many seconds ago."""
    told = tuple(msgspec.structs.replace(one, at=time.time() - age) for one in measurements)
    return msgspec.json.encode(Record(measurements=told)).decode()


def write_bw(value: float, **more: object) -> Measurement:
    """A figure of ib_write_bw over NDR InfiniBand."""
    plain: dict[str, object] = {"layer": "InfiniBand", "rate": 400.0, "memory": "host", "size": 1 << 20, "unit": "Gb/s"}
    plain |= {"peer": "gpu2", "device": "mlx5_0", "peer_device": "mlx5_0"}
    return msgspec.convert({"test": "write_bw", "value": value, **plain, **more}, Measurement)


PROBES = {
    "acceptance_tools": tools(),
    "acceptance_build": "/usr/local/cuda/bin/nvcc\n",
    "acceptance_mpicc": "/usr/bin/mpicc\n",
    "acceptance_result": "",
}
