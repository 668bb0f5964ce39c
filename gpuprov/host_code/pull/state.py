"""The state of a puller: the highest serial that it accepted, against roll-back, and the serial for which it has
rebooted."""

from __future__ import annotations

import json
import os
from typing import NamedTuple

from . import kept
from .limits import CONFIG
from .refused import Refused

NAME = "state.json"


class State(NamedTuple):
    """`job` and `fleet`: of the last accepted bundle; a result names them. `rebooted`: the serial that a reboot was
    for."""

    serial: int = 0
    job: str = ""
    fleet: str = ""
    rebooted: int = 0


def read(folder: str) -> State:
    """Read the state. Raises Refused if it is damaged: a fresh state would accept old bundles."""
    path = os.path.join(folder, NAME)
    fix = f"see what happened to the disk; then remove {path}, after which any serial is accepted once"
    try:
        content = kept.parse_mapping(kept.read_contents(path, CONFIG, own=True), path, fix)
        state = State(**content)
    except FileNotFoundError:
        return State()
    except (OSError, TypeError) as error:
        raise Refused(f"{path} cannot be read: {error}", fix) from None
    if [type(value) for value in state] != [int, str, str, int]:
        raise Refused(f"{path} is damaged", fix)
    return state


def write(folder: str, state: State) -> None:
    kept.write_whole(os.path.join(folder, NAME), json.dumps(state._asdict()).encode())
