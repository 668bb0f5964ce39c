"""Tests of one host's GPUs, on all hosts at a time, and of nccl-tests over all hosts."""

import shlex
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal

import msgspec

from gpuprov.accept import scripts
from gpuprov.accept.lock import LOST, Lock
from gpuprov.accept.model import Host, Ran, Say
from gpuprov.capabilities.acceptance.fragment import STRESS, folder_of
from gpuprov.capabilities.acceptance.judge import ACROSS, LOOPBACK
from gpuprov.catalog import acceptance as catalogue
from gpuprov.catalog import dcgm
from gpuprov.catalog.gpus import find_gpu
from gpuprov.core.sanitize import counted
from gpuprov.facts.probes.acceptance import Measurement, outputs
from gpuprov.facts.probes.acceptance.outputs import Unreadable

# Longest time of a level: https://docs.nvidia.com/datacenter/dcgm/latest/user-guide/dcgm-diagnostics.html, doubled.
DIAG_SECONDS = {1: 300.0, 2: 900.0, 3: 3600.0, 4: 10800.0}
NCCL_SECONDS, COPY_SECONDS = 300.0, 600.0
NO_GPU = "no NVIDIA GPU that nvidia-smi lists"


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """A program to run on a host for one or several tests, or in `skipped` why not."""

    host: str
    tests: tuple[str, ...]
    words: tuple[str, ...] = ()
    seconds: float = 0.0
    environment: dict[str, str] = {}
    skipped: str = ""
    size: int = 0
    # What else is to be said of its figure.
    note: str = ""


def nccl_task(host: Host) -> Task | None:
    """Make the task of nccl-tests over all GPUs of the host."""
    requested = host.block.nccl
    if requested.test == "none":
        return None
    count = len(host.gpus)
    size, note = _choose_size(requested.size, [host])
    task = Task(
        host=host.name, tests=(requested.test,), size=catalogue.parse_size(size), seconds=NCCL_SECONDS, note=note
    )
    program, why = _find_program(host, "nccl", requested.test)
    if getattr(host.spec.capabilities.get("mig"), "mode", "") == "enabled":
        why = "its GPUs are in MIG mode, without the peer-to-peer copies that NCCL needs"
    if count < 2:
        why = why or (NO_GPU if not count else "one GPU alone has no bus bandwidth")
    words = (program, "-b", size, "-e", size, "-g", str(count))
    return msgspec.structs.replace(task, skipped=why, words=words, environment={"NCCL_DEBUG": "INFO"})


def loopback_task(host: Host) -> Task | None:
    """Make the same task over the host's own HCAs: NCCL is left neither NVLink nor shared memory, as in
    azurehpc-health-checks."""
    # https://github.com/Azure/azurehpc-health-checks/blob/main/customTests/azure_nccl_allreduce_ib_loopback.nhc
    task = nccl_task(host) if host.block.nccl.loopback else None
    if task is None:
        return None
    environment = {**task.environment, "NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1", "NCCL_NET_DISABLE_INTRA": "0"}
    return msgspec.structs.replace(
        task,
        tests=(f"{LOOPBACK}.{host.block.nccl.test}",),
        environment=environment,
        skipped=task.skipped or ("" if host.devices else "no RDMA device"),
    )


def _choose_size(requested: str, hosts: Sequence[Host]) -> tuple[str, str]:
    """The message size that the hosts' GPUs have room for, as a power of two where it is less than what is asked for,
    and why.

    nccl-tests has three buffers of it on each GPU beside 1 GiB (src/common.cu); of a GPU's nominal memory a tenth may
    not be free.
    """
    least = min((min(gpu.memory_gb) for host in hosts if (gpu := find_gpu(host.model)) and gpu.memory_gb), default=0)
    room = int((0.9 * least - 1) * (1 << 30) / 3)
    if not least or catalogue.parse_size(requested) <= room:
        return requested, ""
    size = f"{1 << (room.bit_length() - 1) >> 20}M"
    return size, f"with messages of {size}: {least} GB of memory have no room for {requested}"


def nvbandwidth_task(host: Host) -> Task | None:
    """Make one task of all test cases of nvbandwidth in the spec."""
    requested = host.block.nvbandwidth
    if not requested.tests:
        return None
    program, why = _find_program(host, "nvbandwidth", "nvbandwidth")
    why = why or ("" if host.gpus else NO_GPU)
    words = (program, "-j", "-t", *requested.tests)
    return Task(host=host.name, tests=requested.tests, words=words, seconds=COPY_SECONDS, skipped=why)


def diag_task(host: Host) -> Task | None:
    """Make the task of DCGM's diagnostics, by the host engine of the spec, else dcgmi's default."""
    level = host.block.dcgm.level
    if not level:
        return None
    why = "" if "dcgmi" in host.tools.programs else "no dcgmi: dcgm in the spec installs it"
    listen = str(getattr(host.spec.capabilities.get("dcgm"), "listen", dcgm.LISTEN))
    engine = () if listen == dcgm.LISTEN else ("--host", dcgm.derive_address(listen))
    words = ("dcgmi", "diag", *engine, "-r", str(level), "-j")
    return Task(
        host=host.name,
        tests=("dcgm",),
        words=words,
        seconds=DIAG_SECONDS[level],
        skipped=why or ("" if host.gpus else NO_GPU),
    )


def stream_task(host: Host) -> Task | None:
    """Make the task of STREAM's kernels on all CPUs of the host."""
    seconds = host.block.stream.seconds
    if not seconds:
        return None
    program = host.tools.programs.get(STRESS, "")
    words = (program, "--stream", "0", "--timeout", f"{seconds}s", "--metrics")
    why = "" if program else f"no {STRESS} in PATH: gpuprov apply installs it"
    return Task(host=host.name, tests=("stream",), words=words, seconds=float(seconds), skipped=why)


# The name in `--only`, and the function that makes its task for a host; in this order.
PARTS: tuple[tuple[str, Callable[[Host], Task | None]], ...] = (
    ("nccl", nccl_task),
    ("nccl", loopback_task),
    ("nvbandwidth", nvbandwidth_task),
    ("dcgm", diag_task),
    ("stream", stream_task),
)


def run_part(
    part: Callable[[Host], Task | None], hosts: Mapping[str, Host], lock: Lock, timeout: float, say: Say
) -> Iterable[tuple[Task, Measurement]]:
    """Run one part on all hosts whose spec includes it, at a time; yield every test's measurement."""
    tasks = [task for host in hosts.values() if not host.lost and (task := part(host))]
    yield from _run_tasks(tasks, hosts, lock, timeout, say)


def run_across(hosts: Mapping[str, Host], lock: Lock, timeout: float, say: Say) -> Iterable[tuple[Task, Measurement]]:
    """Run nccl-tests over all hosts whose spec includes it, by mpirun on the first of them."""
    joined = [
        host for host in hosts.values() if host.block.nccl.across and not host.lost and host.block.nccl.test != "none"
    ]
    if not joined:
        return
    first = joined[0]
    requested = first.block.nccl
    name = f"{ACROSS}.{requested.test}"
    size, note = _choose_size(requested.size, joined)
    task = Task(host=first.name, tests=(name,), size=catalogue.parse_size(size), seconds=NCCL_SECONDS, note=note)
    programs = {_find_program(host, "nccl", requested.test) for host in joined}
    lacking = [host.name for host in joined if "mpirun" not in host.tools.programs]
    why = next((why for _, why in programs if why), "")
    if len(joined) < 2:
        why = why or "only one host of this run asks for it"
    elif lacking:
        why = why or f"no mpirun on {', '.join(lacking)}"
    elif len(programs) > 1:
        why = why or "its program does not lie in the same place on all hosts"
    elif not all(host.gpus and host.network.main for host in joined):
        why = why or "a host has no GPU, or no address"
    elif len({host.network.main for host in joined}) < len(joined):
        why = why or "two hosts have the same address on their default route"
    say(f"{name} over {counted(len(joined), 'host')}")
    if not why:
        why = _explain_unreached(first, joined[1:], lock)
    ranks = sum(len(host.gpus) for host in joined)
    places = ",".join(f"{host.network.main}:{len(host.gpus)}" for host in joined)
    program = next(iter(programs))[0]
    sizes = ("-b", size, "-e", size, "-g", "1")
    launch = ("mpirun", "--allow-run-as-root", "-np", str(ranks), "--host", places, "-x", "NCCL_DEBUG=INFO")
    words = (*launch, program, *sizes)
    yield from _run_tasks([msgspec.structs.replace(task, words=words, skipped=why)], hosts, lock, timeout, say)


def _explain_unreached(first: Host, others: Sequence[Host], lock: Lock) -> str:
    """Explain why mpirun on the first host cannot start its daemons on the others; empty if it can."""
    # What one host says of itself runs on another: as one word, and never as an option.
    words = [shlex.quote(host.network.main) for host in others]
    tries = "\n".join(
        f"ssh -n -o BatchMode=yes -o ConnectTimeout=5 -- {word} true >/dev/null 2>&1 || printf '%s\\n' {word}"
        for word in words
    )
    ran = lock.phase({first.name: (f"{tries}\ntrue", 10.0 + 6 * len(others))}).get(first.name, Ran())
    failed = "no answer" if ran.lost or ran.status else " ".join(ran.text.split())
    return f"mpirun on {first.name} cannot log in to {failed} by ssh without a password" if failed else ""


def _find_program(host: Host, name: Literal["nccl", "nvbandwidth"], program: str) -> tuple[str, str]:
    """Return the path of a program, or why there is none: built from the spec's source, its `path`, or PATH."""
    requested = host.block.nccl if name == "nccl" else host.block.nvbandwidth
    if requested.source.sha256:
        folder = folder_of(host.block, name)
        lost = host.tools.built.get(folder.rpartition("/")[2])
        if lost is None:
            return "", f"{folder} is not built: gpuprov apply"
        return f"{folder}/bin/{program}", f"{folder} does not find {', '.join(lost)}" if lost else ""
    if requested.path:
        return f"{requested.path.rstrip('/')}/{program}", ""
    path = host.tools.programs.get(program, "")
    return (
        path,
        ""
        if path
        else f"no {program} in PATH: acceptance.{name}.source builds it, acceptance.{name}.path names its folder",
    )


def _run_tasks(
    tasks: Sequence[Task], hosts: Mapping[str, Host], lock: Lock, timeout: float, say: Say
) -> Iterable[tuple[Task, Measurement]]:
    ready = [task for task in tasks if not task.skipped]
    if ready:
        tests = ", ".join(dict.fromkeys(test for task in ready for test in task.tests))
        say(f"{tests} on {len(ready)} host{'s' * (len(ready) != 1)}")
    ran: dict[str, Ran] = {}
    if ready:
        limits = {task.host: task.seconds + timeout for task in ready}
        ran = lock.phase(
            {
                task.host: (
                    scripts.ask(task.words, limit=limits[task.host], more=task.environment),
                    limits[task.host] + 15,
                )
                for task in ready
            }
        )
    for name, result in ran.items():
        if result.lost or result.status == LOST:
            hosts[name].lost = result.lost.message if result.lost else "the lock of this acceptance is gone on the host"
    for task in tasks:
        host = hosts[task.host]
        for test in task.tests:
            plain = Measurement(
                test=test, at=time.time(), model=host.model, gpus=len(host.gpus), size=task.size, skipped=task.skipped
            )
            if task.skipped:
                yield task, plain
                continue
            try:
                yield task, _parse_figure(task, ran[task.host], host, plain)
            except Unreadable as error:
                yield task, msgspec.structs.replace(plain, problem=str(error))


def _parse_figure(task: Task, ran: Ran, host: Host, plain: Measurement) -> Measurement:
    if ran.lost or ran.status == LOST:
        raise Unreadable(host.lost)
    if ran.status in (scripts.TIMED_OUT, scripts.KILLED):
        raise Unreadable(f"it did not end within {task.seconds:.0f} s and its time-out")
    if plain.test == "dcgm":
        diagnostics = outputs.diagnostics(ran.text)
        detail = f"skipped: {', '.join(diagnostics.skipped)}" if diagnostics.skipped else ""
        problem = "; ".join(diagnostics.failed)
        return msgspec.structs.replace(
            plain, value=float(diagnostics.passed), unit="tests passed", detail=detail, problem=problem
        )
    if plain.test == "stream":
        rate, count = outputs.stream(ran.text)
        return msgspec.structs.replace(
            plain, value=rate, unit="GB/s", detail=f"read and written by {counted(count, 'process')}"
        )
    if plain.test.endswith("_perf"):
        run = outputs.collective(ran.text)
        if ran.status:
            raise Unreadable(f"exit status {ran.status}: {outputs.complaint(ran.text)}")
        if plain.test.startswith(LOOPBACK) and "NET/IB" not in run.networks:
            raise Unreadable(f"NCCL went by {', '.join(run.networks) or 'no network that it names'}, not by NET/IB")
        by = f"by {', '.join(run.networks)}{' with GDRDMA' if run.gdrdma else ''}" if run.networks else ""
        by = ", ".join(filter(None, (by, task.note)))
        return msgspec.structs.replace(plain, value=run.busbw, unit="GB/s", detail=by, gdrdma=run.gdrdma)
    least = outputs.copies(ran.text, plain.test)
    if least is None:
        return msgspec.structs.replace(plain, skipped="nvbandwidth waived it: it does not apply to these GPUs")
    return msgspec.structs.replace(plain, value=least, unit="GB/s", detail="the slowest copy")
