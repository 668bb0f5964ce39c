"""The program of eRDMA: `erdma apply [SECONDS]` loads the driver, or reloads it if its parameters or its build differ
and nobody holds a device; waits for the network interfaces of its devices; sets their MTU, and reads it back.

Its configuration has lines `parameter NAME VALUE` and `mtu NUMBER`.
"""

from __future__ import annotations

import os

from .erdma_state import READER, State, compare_driver, compare_mtu, find_users, parse
from .program import Refused, main, read, read_rows, run_for_complaint, tell, wait

CONFIG = "/etc/gpuprov/erdma.conf"
MODULE = "/sys/module/erdma"


def look() -> State:
    return parse(read(READER))


def load() -> None:
    error = run_for_complaint("modprobe", "erdma")
    if error or not os.path.isdir(MODULE):
        raise Refused(f"the driver cannot be loaded: {error or f'modprobe erdma left nothing in {MODULE}'}")


def is_complete(state: State) -> bool:
    """Return whether each function has a device with an interface."""
    return sum(bool(pair.netdev) for pair in state.pairs) >= len(state.functions)


def load_driver(desired: dict[str, str]) -> None:
    """Load the driver with these parameters."""
    state = look()
    if not state.loaded:
        load()
        state = look()
    differs = "; ".join(map(str, compare_driver(state, desired)))
    if not differs:
        return
    if used := find_users(state):
        raise Refused(f"its parameters are read-only while it is loaded ({differs}), and it is held by: {used}")
    if error := run_for_complaint("rmmod", "erdma"):
        raise Refused(f"it cannot be unloaded: {error}")
    load()
    tell(f"loaded anew for {differs}")
    remaining = [difference for difference in compare_driver(look(), desired) if difference.name in desired]
    if remaining:
        raise Refused(
            f"the driver does not take {'; '.join(map(str, remaining))}: is it the kernel's own? modinfo erdma"
        )


def apply(seconds: int) -> None:
    config_rows = read_rows(CONFIG, "parameter", "mtu")
    mtus = [int(row[1]) for row in config_rows if row[0] == "mtu"]
    if not mtus:
        raise Refused(f"{CONFIG} has no mtu")
    load_driver({row[1]: row[2] for row in config_rows if row[0] == "parameter"})
    wait(seconds, lambda: is_complete(look()))
    state = look()
    if not is_complete(state):
        pairs = ", ".join(f"{pair.device} {pair.netdev or 'none'}" for pair in state.pairs) or "none"
        functions = " ".join(address for address, _ in state.functions)
        raise Refused(f"not every eRDMA function has a device with a network interface: {pairs}; functions {functions}")
    errors = {}
    for pair, frame in compare_mtu(state, mtus[-1]):
        errors[pair.device] = run_for_complaint("ip", "link", "set", "dev", pair.netdev, "mtu", frame.value)
        if not errors[pair.device]:
            tell(str(frame))
    remaining = [
        f"{difference} ({errors.get(pair.device) or 'it did not stay'})"
        for pair, difference in compare_mtu(look(), mtus[-1])
    ]
    if remaining:
        raise Refused("; ".join(remaining))


if __name__ == "__main__":
    main("erdma", {"apply": apply})
