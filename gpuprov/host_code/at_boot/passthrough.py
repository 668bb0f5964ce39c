"""GPUs lent to virtual machines: their reader, the driver that each function should have, and the program that binds
it. `passthrough apply` runs before any driver is loaded at a boot, and when the list of lent GPUs has changed."""

from __future__ import annotations

import os
from fnmatch import fnmatchcase
from typing import Iterable, Iterator, Mapping, NamedTuple, Sequence

from .program import Refused, group_cells, main, read, read_rows, run_for_complaint, tell, write

CONFIG = "/etc/gpuprov/passthrough.conf"
# Addresses that this program has bound since the boot: no others are ever given back.
TAKEN = "/run/gpuprov/passthrough"
SYS, PROC = "/sys/bus/pci", "/proc/driver/nvidia/gpus"
# Drivers that hold a function for a virtual machine, as a shell pattern: vfio-pci, and its variants for single devices
# (nvgrace_gpu_vfio_pci, mlx5_vfio_pci): https://github.com/torvalds/linux/tree/master/drivers/vfio/pci
VFIO = "*vfio[-_]pci"
# Drivers that another function of the group may have: https://docs.kernel.org/driver-api/vfio.html
ALLOWED = ("", "pci-stub", "pcieport")
# NVIDIA's functions and those in a group with one, programs with a group (`7`) or device (`vfio0`) open, and TAKEN.
READER = rf"""s={SYS}/devices
row() {{
  d=$s/$1 v='' i='' c='' m='' o='' g='' n=''
  read -r v <"$d/vendor"; read -r i <"$d/device"; read -r c <"$d/class"; read -r o <"$d/driver_override"
  [ -L "$d/driver" ] && m=$(readlink "$d/driver"); [ -L "$d/iommu_group" ] && g=$(readlink "$d/iommu_group")
  for n in "$d"/vfio-dev/vfio*; do n=${{n##*/}}; done; [ "$n" = 'vfio*' ] && n=''
  echo "function|$1|${{v#0x}}:${{i#0x}}|${{c#0x}}|${{m##*/}}|${{o#(null)}}|${{g##*/}}|$n"
}} 2>/dev/null
for p in $s/*; do
  v=''; read -r v <"$p/vendor" 2>/dev/null; [ "$v" = 0x10de ] || continue
  row "${{p##*/}}"
  for e in "$p"/iommu_group/devices/*; do [ -e "$e" ] && row "${{e##*/}}"; done
done | sort -u
find /proc/[0-9]*/fd -lname '/dev/vfio/*' -printf '%p|%l\n' 2>/dev/null | while IFS='|' read -r p l; do
  p=${{p#/proc/}} p=${{p%%/*}}; echo "user|${{l##*/}}|$p|$(tr '|\n' '  ' </proc/$p/comm 2>/dev/null)"
done | sort -u
sed 's/^/taken|/' {TAKEN} 2>/dev/null; true
"""


def is_lent(driver: str) -> bool:
    """True if the driver holds functions for a virtual machine."""
    return fnmatchcase(driver, VFIO)


class Function(NamedTuple):
    """A PCI function."""

    address: str
    identifier: str
    pci_class: str = "030200"
    driver: str = ""
    override: str = ""
    # Its IOMMU group, empty without one.
    group: str = ""
    # Programs that hold it for a virtual machine.
    users: tuple[str, ...] = ()

    @property
    def is_gpu(self) -> bool:
        return self.identifier.startswith("10de:") and self.pci_class.startswith("03")

    @property
    def is_switch(self) -> bool:
        return self.identifier.startswith("10de:") and self.pci_class.startswith("0680")


class State(NamedTuple):
    """`taken`: addresses that this program has bound since the boot."""

    functions: tuple[Function, ...] = ()
    taken: frozenset[str] = frozenset()


class Config(NamedTuple):
    """`gpus`: `all`, addresses and PCI ids."""

    gpus: tuple[str, ...] = ()
    switches: bool = False
    driver: str = "vfio-pci"


class Move(NamedTuple):
    """A function with another driver than it should have; `driver` empty: whichever of this host's claims it."""

    function: Function
    driver: str

    def __str__(self) -> str:
        return (
            f"{self.function.address}: {self.function.driver or 'no driver'} -> "
            f"{self.driver or 'a driver of this host'}"
        )


def parse(text: str) -> State:
    """Parse the reader's output."""
    many = group_cells(text)
    users = [(row[0], f"{row[2].strip()} (pid {row[1]})") for row in many.get("user", ()) if len(row) > 2]
    functions = []
    for row in many.get("function", ()):
        holders = tuple(who for node, who in users if node and node in row[5:7])
        functions.append(Function(row[0], row[1], row[2], row[3], row[4], row[5], holders))
    return State(tuple(functions), frozenset(row[0] for row in many.get("taken", ())))


def parse_config(rows: Iterable[Sequence[str]]) -> Config:
    """Parse the lines `KEY VALUE` of the configuration."""
    pairs = [(row[0], row[1]) for row in rows if len(row) == 2]
    values = dict(pairs)
    gpus = tuple(value for key, value in pairs if key == "gpu")
    return Config(gpus, values.get("nvswitches") == "all", values.get("driver", "vfio-pci"))


def select(state: State, config: Config) -> tuple[Function, ...]:
    """Return the GPUs and NVSwitches that the configuration names."""
    chosen = {"all"} & {*config.gpus}
    return tuple(
        function
        for function in state.functions
        if (function.is_gpu and (chosen or {function.address, function.identifier} & {*config.gpus}))
        or (function.is_switch and config.switches)
    )


def list_drivers(state: State, config: Config) -> dict[str, str]:
    """Return the driver of each function to be lent: NVIDIA's other functions of a card (audio, USB) go with its
    GPU."""
    chosen = select(state, config)
    cards = {function.address.rpartition(".")[0] for function in chosen}
    drivers = {
        function.address: "vfio-pci"
        for function in state.functions
        if function.identifier.startswith("10de:") and function.address.rpartition(".")[0] in cards
    }
    return {**drivers, **{function.address: config.driver for function in chosen if function.is_gpu}}


def list_moves(state: State, config: Config) -> list[Move]:
    """Return the functions to be bound to another driver: lent ones, and those of TAKEN that are lent no longer."""
    drivers = list_drivers(state, config)
    moves = []
    for function in state.functions:
        driver = drivers.get(function.address, "")
        if driver and (function.driver != driver or function.override != driver):
            moves.append(Move(function, driver))
        elif not driver and function.address in state.taken and is_lent(function.driver or function.override):
            moves.append(Move(function, ""))
    return moves


def list_neighbours(state: State, config: Config) -> list[Function]:
    """Return functions that keep a group from being lent: in one with a lent function, and with a driver of this
    host."""
    drivers = list_drivers(state, config)
    groups = {function.group for function in state.functions if function.address in drivers and function.group}
    return [
        function
        for function in state.functions
        if function.group in groups
        and function.address not in drivers
        and not function.pci_class.startswith("0604")
        and function.driver not in ALLOWED
        and not is_lent(function.driver)
    ]


def list_held(moves: Iterable[Move]) -> Iterator[str]:
    """Yield functions that a virtual machine has now, of those that would be moved: `ADDRESS: PROGRAM (pid PID)`."""
    for move in moves:
        if move.function.users and move.function.driver != move.driver:
            yield f"{move.function.address}: {', '.join(move.function.users)}"


def list_obstacles(state: State, config: Config) -> list[str]:
    """Return why nothing may be moved."""
    drivers = list_drivers(state, config)
    without = [row.address for row in state.functions if row.address in drivers and not row.group]
    problems = [f"no IOMMU group: {' '.join(without)}"] if without else []
    problems += [
        f"{row.address} ({row.driver}) is in IOMMU group {row.group} with a lent GPU"
        for row in list_neighbours(state, config)
    ]
    return problems + [f"a virtual machine has {text}" for text in list_held(list_moves(state, config))]


def is_locked(address: str) -> bool:
    """Return whether NVIDIA's driver lets go of this GPU: with users, it would block the one who unbinds it for
    ever."""
    # https://github.com/NVIDIA/k8s-dra-driver/blob/main/scripts/unbind_from_driver.sh
    lock = f"{PROC}/{address}/unbindLock"
    if not os.path.exists(lock):
        return True
    write(lock, "1")
    with open(lock, encoding="utf-8", errors="replace") as file:
        return file.read().strip() == "1"


def bind(move: Move) -> str:
    """Bind a function to its driver; return the error, or ""."""
    function, place = move.function, f"{SYS}/devices/{move.function.address}"
    # An empty line takes the override away: https://docs.kernel.org/admin-guide/abi-testing.html (driver_override)
    problem = write(f"{place}/driver_override", move.driver)
    if not problem and function.driver not in ("", move.driver):
        if function.driver == "nvidia" and not is_locked(function.address):
            write(f"{place}/driver_override", function.override)
            return "in use by programs of this host: nvidia-smi, lsof /dev/nvidia*"
        problem = write(f"{place}/driver/unbind", function.address)
    if problem:
        return problem
    if not move.driver:
        with open(f"{place}/modalias", encoding="utf-8", errors="replace") as file:
            run_for_complaint("modprobe", "-b", file.read().strip())
    return "" if os.path.exists(f"{place}/driver") else write(f"{SYS}/drivers_probe", function.address)


def record(addresses: Iterable[str]) -> None:
    os.makedirs(os.path.dirname(TAKEN), mode=0o755, exist_ok=True)
    with open(TAKEN, "w", encoding="utf-8") as file:
        file.write("".join(f"{address}\n" for address in sorted(addresses)))


def apply(_: int) -> None:
    config = parse_config(read_rows(CONFIG))
    state = parse(read(READER))
    obstacles = list_obstacles(state, config)
    if obstacles:
        raise Refused("; ".join(obstacles))
    drivers, moves = list_drivers(state, config), list_moves(state, config)
    for driver in sorted({*drivers.values()}):
        complaint = run_for_complaint("modprobe", driver)
        if complaint:
            raise Refused(complaint)
    record(state.taken | {*drivers})
    errors: Mapping[str, str] = {move.function.address: bind(move) for move in moves}
    after = parse(read(READER))
    remaining = {move.function.address: move for move in list_moves(after, config)}
    record({*drivers} | {*remaining})
    for move in moves:
        if move.function.address not in remaining:
            tell(str(move))
    if remaining:
        raise Refused("; ".join(f"{move} ({errors.get(place) or 'not bound'})" for place, move in remaining.items()))


if __name__ == "__main__":
    main("passthrough", {"apply": apply}, "")
