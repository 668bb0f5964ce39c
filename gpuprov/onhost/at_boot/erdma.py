"""The program of eRDMA: `erdma apply [SECONDS]` loads the driver, anew where its parameters or its build differ and nobody holds a
device; waits for the network interfaces of its devices; sets their MTU, and reads it back.

Its configuration has lines `parameter NAME VALUE` and `mtu NUMBER`.
"""

from __future__ import annotations

import os

from .erdma_state import READER, State, held_by, of_driver, of_frames, parse
from .program import Refused, complaint, main, read, rows, tell, wait

CONFIG = "/etc/gpuprov/erdma.conf"
MODULE = "/sys/module/erdma"


def look() -> State:
    return parse(read(READER))


def load() -> None:
    said = complaint("modprobe", "erdma")
    if said or not os.path.isdir(MODULE):
        raise Refused(f"the driver cannot be loaded: {said or f'modprobe erdma left nothing in {MODULE}'}")


def whole(state: State) -> bool:
    """Whether each function has a device with an interface."""
    return sum(bool(pair.netdev) for pair in state.pairs) >= len(state.functions)


def drive(wanted: dict[str, str]) -> None:
    """Have the driver in the kernel, with these parameters."""
    state = look()
    if not state.loaded:
        load()
        state = look()
    differs = "; ".join(map(str, of_driver(state, wanted)))
    if not differs:
        return
    if used := held_by(state):
        raise Refused(f"its parameters are read-only while it is loaded ({differs}), and it is held by: {used}")
    if said := complaint("rmmod", "erdma"):
        raise Refused(f"it cannot be unloaded: {said}")
    load()
    tell(f"loaded anew for {differs}")
    left = [one for one in of_driver(look(), wanted) if one.name in wanted]
    if left:
        raise Refused(f"the driver does not take {'; '.join(map(str, left))}: is it the kernel's own? modinfo erdma")


def apply(seconds: int) -> None:
    found = rows(CONFIG, "parameter", "mtu")
    mtus = [int(row[1]) for row in found if row[0] == "mtu"]
    if not mtus:
        raise Refused(f"{CONFIG} has no mtu")
    drive({row[1]: row[2] for row in found if row[0] == "parameter"})
    wait(seconds, lambda: whole(look()))
    state = look()
    if not whole(state):
        there = ", ".join(f"{pair.device} {pair.netdev or 'none'}" for pair in state.pairs) or "none"
        functions = " ".join(address for address, _ in state.functions)
        raise Refused(f"not every eRDMA function has a device with a network interface: {there}; functions {functions}")
    said = {}
    for pair, one in of_frames(state, mtus[-1]):
        said[pair.device] = complaint("ip", "link", "set", "dev", pair.netdev, "mtu", one.value)
        if not said[pair.device]:
            tell(str(one))
    left = [f"{one} ({said.get(pair.device) or 'it did not stay'})" for pair, one in of_frames(look(), mtus[-1])]
    if left:
        raise Refused("; ".join(left))


if __name__ == "__main__":
    main("erdma", {"apply": apply})
