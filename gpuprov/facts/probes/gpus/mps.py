"""The MPS control daemons of a host, whoever started them: their start settings, and the answers of gpuprov's own
within five seconds."""

from __future__ import annotations

import re
from typing import TypedDict

import msgspec

from gpuprov.core.safe_parse import is_whole
from gpuprov.facts.probes.base import Output, Probe
from gpuprov.facts.probes.gpus.mps_script import SCRIPT
from gpuprov.facts.probes.host.family import by_family
from gpuprov.facts.probes.software import rpm, zypper
from gpuprov.facts.probes.software.packages import parse_index


class Server(msgspec.Struct, frozen=True, kw_only=True):
    """A server of a daemon: the user of its process, its reported status, and its number of clients."""

    pid: int
    uid: int | None = None
    percentage: str = ""
    status: str = ""
    clients: int = 0


class Daemon(msgspec.Struct, frozen=True, kw_only=True):
    """A control daemon. `unit` is empty if it belongs to none. `percentage` is empty if it does not answer: then
    `complaint` is its output. `limits` by device ordinal, as shown. `partitions`: chunks by the beginning of a UUID."""

    pid: int
    unit: str = ""
    command: str = ""
    pipe: str = ""
    log: str = ""
    devices: tuple[str, ...] = ()
    percentage: str = ""
    priority: str = ""
    limits: tuple[str, ...] = ()
    servers: tuple[Server, ...] = ()
    partitions: dict[str, tuple[int, ...]] = {}
    complaint: str = ""

    @property
    def protocol(self) -> str:
        return "v3" if re.search(r" (-p|--protocol)[ =]?3\b", self.command) else "v2"


class Gpu(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU by nvidia-smi. `address` as sysfs writes it."""

    index: int
    uuid: str
    address: str
    # Its compute mode.
    mode: str = ""
    mig: bool = False
    # Compute slices by UUID.
    mig_devices: dict[str, int] = {}


class MpsState(msgspec.Struct, frozen=True, kw_only=True):
    """`units`: (ActiveState, whether it is enabled) of gpuprov's units by daemon. The state. `files`: files written for
    clients, by path. `users`: numbers of users by name. `shm`: MiB of /dev/shm, None if unknown. `complaint`:
    nvidia-smi's."""

    daemons: tuple[Daemon, ...] = ()
    gpus: tuple[Gpu, ...] = ()
    units: dict[str, tuple[str, bool]] = {}
    files: dict[str, str] = {}
    program: bool = False
    shm: int | None = None
    users: dict[str, int] = {}
    complaint: str = ""


# nvidia-cuda-mps-control answers get_default_active_thread_percentage with a line like `100.0`.
PERCENTAGE = re.compile(r"\d+\.\d+")


class Answers(TypedDict, total=False):
    """A daemon's answers, as fields of `Daemon`."""

    percentage: str
    priority: str
    limits: tuple[str, ...]
    complaint: str


def _parse_answers(lines: list[str]) -> Answers:
    """Parse the answers of one session: a percentage precedes the priority, each device's limit, and the servers."""
    parts: list[list[str]] = []
    for line in lines:
        if PERCENTAGE.fullmatch(line.strip()):
            parts.append([])
        elif parts:
            parts[-1].append(line.strip())
    if not parts or PERCENTAGE.fullmatch(lines[0].strip()) is None:
        return {"complaint": " ".join(lines)[:200] or "no answer"}
    limits = tuple(" ".join(part) for part in parts[1:-1])
    return {"percentage": lines[0].strip(), "priority": " ".join(parts[0]), "limits": limits}


def parse_mps(output: Output) -> MpsState:
    rows = output.rows(bare=True)
    gpus, complaint = _parse_gpus(rows.get("gpu", []), _parse_mig_devices(rows.get("device", [])))
    files: dict[str, list[str]] = {}
    for name, text in _split_pairs(rows, "file"):
        files.setdefault(name, []).append(text)
    shm = rows.get("shm", [""])[0]
    return MpsState(
        daemons=tuple(_parse_daemon(pid, text, rows) for pid, text in _split_pairs(rows, "daemon")),
        gpus=gpus,
        units={name: (text.partition("|")[0], text.endswith("|enabled")) for name, text in _split_pairs(rows, "unit")},
        files={name: "\n".join(lines) for name, lines in files.items()},
        program="program" in rows,
        shm=int(shm) if is_whole(shm) else None,
        users={name: int(text) for name, text in _split_pairs(rows, "user") if is_whole(text)},
        complaint=complaint,
    )


def _split_pairs(rows: dict[str, list[str]], kind: str, key: str = "") -> list[tuple[str, str]]:
    """Split each line of a kind at the first bar; with `key`, only the lines of that key, without it."""
    cut = [(first, rest) for first, _, rest in (line.partition("|") for line in rows.get(kind, []))]
    return [(first, rest) for first, rest in cut if key in ("", first)]


def _parse_gpus(lines: list[str], mig: dict[str, dict[str, int]]) -> tuple[tuple[Gpu, ...], str]:
    gpus, other = [], []
    for line in lines:
        cells = [cell.strip() for cell in line.split(",")]
        # 0, GPU-3c1f6d5e-0f2b-7d77-5b0e-0d5e6d6f4a10, 00000000:19:00.0, Default, Disabled
        if len(cells) != 5 or not is_whole(cells[0]):
            other.append(line.strip())
            continue
        domain, _, place = cells[2].lower().partition(":")
        gpus.append(
            Gpu(
                index=int(cells[0]),
                uuid=cells[1],
                address=f"{domain[-4:]}:{place}",
                mode=cells[3],
                mig=cells[4] == "Enabled",
                mig_devices=mig.get(cells[1], {}),
            )
        )
    return tuple(gpus), "" if gpus else " ".join(other)


def _parse_mig_devices(lines: list[str]) -> dict[str, dict[str, int]]:
    """Parse MIG devices in `nvidia-smi -L`: their UUIDs and compute slices, by the UUID of their GPU."""
    devices: dict[str, dict[str, int]] = {}
    parent = ""
    for line in lines:
        # `nvidia-smi -L` (tests/real/a100-pcie-mig-lxd):
        #     GPU 0: NVIDIA A100 80GB PCIe (UUID: GPU-00000001-0000-0000-0000-000000000000)
        #       MIG 3g.40gb     Device  0: (UUID: MIG-00000002-0000-0000-0000-000000000000)
        # A compute instance smaller than its GPU instance names both sizes: `MIG 1c.3g.40gb`.
        if match := re.search(r"\(UUID: (GPU-[^)]+)\)", line):
            parent = match[1]
        elif match := re.search(r"MIG (?:(\d+)c\.)?(\d+)g\..*\(UUID:? (MIG-[^)]+)\)", line):
            devices.setdefault(parent, {})[match[3]] = int(match[1] or match[2])
    return devices


def _parse_daemon(pid: str, text: str, rows: dict[str, list[str]]) -> Daemon:
    unit, _, command = text.partition("|")
    environment = dict(line.partition("=")[::2] for _, line in _split_pairs(rows, "env", pid))
    servers: dict[str, list[str]] = {}
    for _, line in _split_pairs(rows, "server", pid):
        server, _, line_text = line.partition("|")
        servers.setdefault(server, []).append(line_text)
    partitions: dict[str, tuple[int, ...]] = {}
    for _, line in _split_pairs(rows, "partition", pid):
        cells = line.split()
        if len(cells) > 3 and cells[1] != "-" and is_whole(cells[3]):
            partitions[cells[0]] = (*partitions.get(cells[0], ()), int(cells[3]))
    answers = [line for _, line in _split_pairs(rows, "answer", pid)]
    return Daemon(
        pid=int(pid),
        unit=unit,
        command=command.strip(),
        pipe=environment.get("CUDA_MPS_PIPE_DIRECTORY", ""),
        log=environment.get("CUDA_MPS_LOG_DIRECTORY", ""),
        devices=tuple(part for part in environment.get("CUDA_VISIBLE_DEVICES", "").split(",") if part),
        servers=tuple(_parse_server(server, server_lines) for server, server_lines in servers.items()),
        partitions=partitions,
        **_parse_answers(answers or [""]),
    )


def _parse_server(pid: str, lines: list[str]) -> Server:
    pairs = [line.partition("|")[::2] for line in lines]
    answers = [value.strip() for what, value in pairs if what == "answer"]
    uid = next((value for what, value in pairs if what == "uid"), "")
    words = [value for value in answers if value and not is_whole(value) and not PERCENTAGE.fullmatch(value)]
    return Server(
        pid=int(pid),
        uid=int(uid) if is_whole(uid) else None,
        percentage=next((value for value in answers if PERCENTAGE.fullmatch(value)), ""),
        status=next((value for what, value in pairs if what == "status"), "") or " ".join(words),
        clients=sum(is_whole(value) for value in answers),
    )


MPS = Probe(
    "mps",
    SCRIPT,
    parse_mps,
    "systemctl status 'gpuprov-mps@*'; echo get_default_active_thread_percentage | nvidia-cuda-mps-control",
    speaks=True,
)
# Package versions that the host's repositories offer, by name, newest first.
INDEX = Probe(
    "mps_index",
    by_family(
        """apt-cache pkgnames | grep -xE 'nvidia-cuda-mps|nvidia-compute-utils-.*|nvidia-driver-cuda' |
  xargs -r apt-cache madison 2>/dev/null; true""",
        rpm.search("nvidia-driver-cuda"),
        zypper.search("nvidia-compute-utils-G*"),
    ),
    parse_index,
    "apt-cache madison nvidia-cuda-mps; dnf -C repoquery --showduplicates nvidia-driver-cuda",
)


def parse_user(output: Output) -> dict[str, int | None]:
    rows = [line.split("|") for line in output.text.splitlines() if line.strip()]
    return {name: int(number) if number else None for _, name, number in rows}


# The number of the user whom the spec names, by name; None if the host has no such user.
USER = Probe(
    "mps_user",
    '[ -z "${mps_user:-}" ] || echo "user|$mps_user|$(id -u "$mps_user" 2>/dev/null)"',
    parse_user,
    "id",
    asks=lambda host: {"mps_user": host.capabilities["mps"].user},
)
