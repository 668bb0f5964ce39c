"""Programs that run CUDA on each GPU and MIG device of a host, as an ordinary user."""

from __future__ import annotations

from pathlib import Path

import msgspec

from gpuprov.facts.probes.base import Output, Probe
from gpuprov.facts.probes.gpus.gpu_settings import normalize_address

READER = Path(__file__).with_name("cuda_reader.py").read_text(encoding="utf-8")


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """The end of CUDA on one device. `device`: its UUID; `address`: of its GPU; `mode`: the GPU's compute mode.

    `step`: what failed: a function of libcuda, with its `code`; `become`, `load` or `open`, with the error or the path as
    `text`; `compare`, `crash` or `hang`. Empty if all went well.
    """

    device: str
    address: str
    mode: str
    step: str = ""
    code: int = 0
    text: str = ""


class Runs(msgspec.Struct, frozen=True, kw_only=True):
    """`obstacle`: why nothing was run: no-user, no-device or no-uvm, with its `text`; off, if nobody was named. `missing`:
    the host has no Python for it."""

    runs: tuple[Run, ...] = ()
    obstacle: str = ""
    text: str = ""
    missing: bool = False


def parse(output: Output) -> Runs:
    if output.status == 127:
        return Runs(missing=True)
    runs = []
    for line in output.text.splitlines():
        kind, _, rest = line.partition("|")
        if kind.startswith("no-"):
            return Runs(obstacle=kind, text=rest)
        if kind == "run":
            device, address, mode, step, code, text = rest.split("|", 5)
            runs.append(
                Run(device=device, address=normalize_address(address), mode=mode, step=step, code=int(code), text=text)
            )
    return Runs(runs=tuple(runs), obstacle="" if runs else "off")


CUDA_RUNS: Probe[Runs] = Probe(
    "cuda_runs",
    f"""[ -n "$cuda_user" ] || {{ echo off; exit 0; }}
p=$(command -v python3 || command -v /usr/libexec/platform-python) || exit 127
"$p" - "$cuda_user" <<'READER_ENDS'
{READER}READER_ENDS""",
    parse,
    "runuser -u nobody -- python3 -c 'import ctypes; print(ctypes.CDLL(\"libcuda.so.1\").cuInit(0))'",
    speaks=True,
    knows_missing=True,
    blank="off",
)
"""Runs as $cuda_user, a name; without it nothing is run."""
