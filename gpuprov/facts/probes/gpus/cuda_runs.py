"""Programs that run CUDA on each GPU and MIG device of a host: as an ordinary user, and in containers."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from gpuprov.facts.probes.base import Output, Probe
from gpuprov.facts.probes.gpus.gpu_settings import normalize_address

READER = Path(__file__).with_name("cuda_reader.py").read_text(encoding="utf-8")
CONTAINERS = Path(__file__).parents[1] / "containers" / "engines_reader.py"


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """The end of CUDA on one device. `device`: its UUID; `address`: of its GPU; `mode`: the GPU's compute mode.

    `step`: what failed: a function of libcuda, with its `code`; `become`; `load`, with code 1 where no linker cache is;
    `open`, with errno; these with the error or the path as `text`; `compare`, `crash` or `hang`. Empty if all went
    well.
    """

    device: str
    address: str
    mode: str
    step: str = ""
    code: int = 0
    text: str = ""


class Runs(msgspec.Struct, frozen=True, kw_only=True):
    """`obstacle`: why nothing was run: no-user, no-device or no-uvm, with its `text`; off, if nobody was named.
    `missing`: the host has no Python for it."""

    runs: tuple[Run, ...] = ()
    obstacle: str = ""
    text: str = ""
    missing: bool = False


class InEngine(msgspec.Struct, frozen=True, kw_only=True):
    """CUDA in a container of an engine. Without runs, `said`: the engine's answer when it was asked for the `image`, or
    to `start` the container."""

    runs: tuple[Run, ...] = ()
    failed: Literal["", "image", "start"] = ""
    printed: str = ""


class InContainers(msgspec.Struct, frozen=True, kw_only=True):
    """Results by engine."""

    engines: dict[str, InEngine] = {}
    # Why nothing was run: no-device or no-uvm; drained, with by whom as `text`; turn: another such check runs for long;
    # off, if no image was named.
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
            runs.append(parse_run(rest))
    return Runs(runs=tuple(runs), obstacle="" if runs else "off")


def parse_run(cells: str) -> Run:
    device, address, mode, step, code, text = cells.split("|", 5)
    return Run(device=device, address=normalize_address(address), mode=mode, step=step, code=int(code), text=text)


def parse_containers(output: Output) -> InContainers:
    if output.status == 127:
        return InContainers(missing=True)
    engines: dict[str, InEngine] = {}
    for line in output.text.splitlines():
        kind, _, rest = line.partition("|")
        name, _, cells = rest.partition("|")
        if kind in ("no-device", "no-uvm", "drained", "turn"):
            return InContainers(obstacle=kind, text=rest)
        if kind == "run":
            engines[name] = InEngine(runs=(*engines.get(name, InEngine()).runs, parse_run(cells)))
        elif kind in ("image", "start"):
            engines[name] = InEngine(failed="image" if kind == "image" else "start", printed=cells)
    return InContainers(engines=engines, obstacle="" if engines else "off")


FIND_PYTHON = "p=$(command -v python3 || command -v /usr/libexec/platform-python) || exit 127"
# Runs as $cuda_user, a name; without it nothing is run.
CUDA_RUNS: Probe[Runs] = Probe(
    "cuda_runs",
    f"""[ -n "$cuda_user" ] || {{ echo off; exit 0; }}
{FIND_PYTHON}
"$p" - "$cuda_user" <<'READER_ENDS'
{READER}READER_ENDS""",
    parse,
    "runuser -u nobody -- python3 -c 'import ctypes; print(ctypes.CDLL(\"libcuda.so.1\").cuInit(0))'",
    speaks=True,
    knows_missing=True,
    blank="off",
)

# Runs containers of $cuda_image in $cuda_engines, names with spaces between; all that the host has, if empty; without
# an image nothing is run.
CUDA_IN_CONTAINERS: Probe[InContainers] = Probe(
    "cuda_in_containers",
    f"""[ -n "$cuda_image" ] || {{ echo off; exit 0; }}
{FIND_PYTHON}
"$p" - "$cuda_image" "$cuda_engines" <<'READER_ENDS'
{CONTAINERS.read_text(encoding="utf-8").replace('PROGRAM = ""', f"PROGRAM = {READER!r}")}READER_ENDS""",
    parse_containers,
    "docker run --rm --gpus all IMAGE nvidia-smi; podman run --rm --device nvidia.com/gpu=all IMAGE nvidia-smi",
    speaks=True,
    knows_missing=True,
    blank="off",
)
# Engines that do not have $cuda_image yet.
CUDA_IMAGES: Probe[tuple[str, ...]] = Probe(
    "cuda_images",
    """[ -n "$cuda_image" ] || { echo off; exit 0; }
for e in ${cuda_engines:-docker podman}; do
  case $e in
  containerd) ctr images ls -q "name==$cuda_image" 2>/dev/null | grep -q . || echo "lacks $e" ;;
  *) ! command -v $e >/dev/null || $e image inspect "$cuda_image" >/dev/null 2>&1 || echo "lacks $e" ;;
  esac
done
echo off""",
    lambda output: tuple(line[6:] for line in output.text.splitlines() if line.startswith("lacks ")),
    "docker image ls; podman image ls; ctr images ls",
    speaks=True,
    blank="off",
)
