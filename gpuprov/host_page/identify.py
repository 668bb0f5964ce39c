"""Description of the host: rows of the page about the machine, its boot, its software and its GPUs."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime

import msgspec

from gpuprov.core.fill import fill
from gpuprov.core.sanitize import counted
from gpuprov.facts.probes.base import Facts, ProbeFailed
from gpuprov.facts.probes.driver import nvidia
from gpuprov.facts.probes.gpus import fabric
from gpuprov.facts.probes.gpus.gpu_health import GPU_HEALTH
from gpuprov.facts.probes.host import hardware, system
from gpuprov.host_page.read import ReadHost


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A label with its value."""

    label: str
    value: str
    # The value says why there is none.
    unread: bool = False


class Gpu(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU as nvidia-smi shows it. `needs`: the recovery that its driver recommends, or what it reports in place of
    values."""

    address: str
    name: str
    serial: str
    uuid: str
    vbios: str
    needs: str


def list_rows(host: ReadHost, facts: Facts) -> list[Row]:
    """List what the host is; a fact that could not be read says why, once for all rows that it has."""
    rows = [Row(label="name in inventory", value=host.raw.name)]
    rows += [Row(label="groups", value=", ".join(name for name in host.raw.groups if name not in ("all", "ungrouped")))]
    if host.record:
        rows.append(Row(label="read from", value=f"{host.record.kind} {host.record.path}, not from the host"))
    if facts.read_at:
        rows.append(Row(label="read at", value=format_time(facts.read_at)))
    makers: tuple[tuple[str, Callable[[Facts], Iterator[tuple[str, str]]]], ...] = (
        ("machine", _list_machine),
        ("distribution", _list_release),
        ("running kernel", _list_kernel),
        ("CPUs, memory", _list_hardware),
        ("driver", _list_driver),
        ("Fabric Manager", _list_fabric),
    )
    for label, make in makers:
        try:
            rows += [Row(label=name, value=value) for name, value in make(facts)]
        except ProbeFailed as error:
            rows.append(Row(label=label, value=str(error), unread=True))
    return [row for row in rows if row.value]


def list_gpus(facts: Facts) -> tuple[list[Gpu], str]:
    """List the GPUs; and why there are none, or fewer than on the PCI bus."""
    try:
        state = facts.get(GPU_HEALTH)
    except ProbeFailed as error:
        return [], str(error)
    gpus = [
        fill(Gpu, gpu, needs=gpu.broken or {"None": "nothing", "": "not reported"}.get(gpu.recovery, gpu.recovery))
        for gpu in state.gpus
    ]
    lacking = state.present - len(gpus) if state.bus else 0
    missing = f"{counted(lacking, 'more GPU')} on the PCI bus, which nvidia-smi does not show" if lacking > 0 else ""
    return gpus, "; ".join(filter(None, (state.complaint, missing)))


def format_time(at: float) -> str:
    """Format a time for people: `2026-11-29 06:10 UTC`."""
    try:
        return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M} UTC"
    except (ValueError, OverflowError, OSError):
        return ""


def _list_machine(facts: Facts) -> Iterator[tuple[str, str]]:
    own = facts.get(system.IDENTITY)
    yield "own name", own.name
    yield "machine", " ".join(filter(None, (own.vendor, own.product)))
    yield "serial number", own.serial
    yield "board's serial", own.board_serial
    yield "firmware", ", ".join(filter(None, (own.firmware, own.firmware_date)))
    since = format_time(own.booted) if own.booted else ""
    yield "booted", ", ".join(filter(None, (since, f"boot {own.boot_id}" if own.boot_id else "")))


def _list_release(facts: Facts) -> Iterator[tuple[str, str]]:
    release = facts.get(system.OS_RELEASE)
    yield "distribution", release.name or f"{release.id} {release.version}"


def _list_kernel(facts: Facts) -> Iterator[tuple[str, str]]:
    platform = facts.get(system.PLATFORM)
    yield "running kernel", f"{platform.kernel} {platform.machine}"


def _list_hardware(facts: Facts) -> Iterator[tuple[str, str]]:
    machine = facts.get(hardware.HARDWARE)
    cpus = f"{counted(machine.sockets, 'socket')}, {counted(machine.cores, 'core')}" if machine.cores else ""
    memory = f"{machine.memory / 1024:,.0f} GiB of memory" if machine.memory else ""
    yield "CPUs, memory", ", ".join(filter(None, (cpus, memory)))


def _list_driver(facts: Facts) -> Iterator[tuple[str, str]]:
    driver = facts.get(nvidia.DRIVER)
    flavour = "open kernel modules" if driver.open else "proprietary kernel modules"
    yield "driver", f"{driver.version}, {flavour}" if driver.version else "no NVIDIA module is loaded"


def _list_fabric(facts: Facts) -> Iterator[tuple[str, str]]:
    daemon = facts.get(fabric.DAEMON)
    running = daemon.process("nv-fabricmanager")
    if daemon.version or running or daemon.elsewhere:
        state = "running" if running else "running outside its unit" if daemon.elsewhere else "not running"
        yield "Fabric Manager", ", ".join(filter(None, (daemon.version, state)))
