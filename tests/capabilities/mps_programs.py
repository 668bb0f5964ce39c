"""A configuration of MPS as hosts get it, GPUs as the program reads them, and a stand-in for a control daemon."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gpuprov.catalog import mps as catalogue
from gpuprov.host_code.mps.control import Control
from tests.capabilities.mps_host import MIG, A, B

PATHS: dict[str, Any] = {**catalogue.PATHS}
GPUS: list[dict[str, Any]] = [
    {"index": 0, "uuid": A, "address": "0000:19:00.0", "mig": False, "devices": []},
    {"index": 1, "uuid": B, "address": "0000:3b:00.0", "mig": False, "devices": []},
]
CUT: list[dict[str, Any]] = [
    GPUS[0] | {"mig": True, "devices": [{"uuid": MIG[0], "start": 4, "compute": 0}]},
    GPUS[1] | {"mig": True, "devices": [{"uuid": MIG[1], "start": 0, "compute": 0},
                                        {"uuid": "MIG-c", "start": 0, "compute": 1}]},
]  # fmt: skip
NEW = "".format
"""No daemon is older than what it has read."""
# What the real one answers, as far as it is asked: 535 without a GPU, and for partitions what the guide shows.
STAND_IN = r"""#!/bin/sh
d=$CUDA_MPS_PIPE_DIRECTORY
[ -e "$d/hangs" ] && exec sleep 30
[ -e "$d/up" ] || { echo "Cannot find MPS control daemon process"; exit 1; }
say() { cat "$d/$1" 2>/dev/null || echo "$2"; }
while read -r c x y z; do
  echo "$c $x $y $z" >> "$d/log"
  case $c in
    get_default_active_thread_percentage) say percentage 100.0 ;;
    set_default_active_thread_percentage) [ -e "$d/stubborn" ] || echo "$x.0" > "$d/percentage"; say percentage 100.0 ;;
    get_default_client_priority) say priority 0 ;;
    set_default_client_priority) echo "$x" > "$d/priority" ;;
    get_default_device_pinned_mem_limit) [ -e "$d/memory$x" ] && cat "$d/memory$x" ;;
    set_default_device_pinned_mem_limit) case $y in 1500M) y=1G ;; esac; echo "$y" > "$d/memory$x" ;;
    get_server_list) cat "$d/servers" 2>/dev/null ;;
    get_client_list) echo 900; echo 901 ;;
    get_active_thread_percentage) say server_percentage 100.0 ;;
    set_active_thread_percentage) echo "$y.0" > "$d/server_percentage" ;;
    get_device_pinned_mem_limit) [ -e "$d/server_memory" ] && cat "$d/server_memory" ;;
    set_device_pinned_mem_limit) echo "$z" > "$d/server_memory" ;;
    lspart) echo 'GPU Partition free used free used clients'; cat "$d/partitions" 2>/dev/null ;;
    sm_partition) if [ "$x" = rm ]; then : > "$d/partitions"
      elif [ "$z" -gt 8 ]; then echo "Failed to fulfill the request"; else
      echo "$(echo "$y" | cut -c1-12) Dx$z - $z - $((z * 8)) -" >> "$d/partitions"
        echo "Partition $y/Dx$z created"; fi ;;
    quit) rm "$d/up" ;;
  esac
done; true
"""


def config(scope: str = "host", **more: Any) -> dict[str, Any]:
    """mps.json as the role writes it."""
    plain: dict[str, Any] = {
        "version": 1,
        "scope": scope,
        "groups": [],
        "protocol": "v2",
        "exclusive": True,
        "percentage": 100,
    }
    plain |= {
        "memory": {},
        "priority": "0",
        "partitions": [],
        "user": "",
        "shm": "",
        "container_directory": "",
        "count": 0,
    }
    return plain | {"control": catalogue.CONTROL, "paths": PATHS} | more


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "pipe").mkdir()
    (tmp_path / "pipe/up").touch()
    (tmp_path / "control").write_text(STAND_IN)
    (tmp_path / "control").chmod(0o755)
    return tmp_path


def running(folder: Path, *devices: str, **more: Any) -> Control:
    """The daemon of the stand-in, with this configuration."""
    given = config("gpu", control=str(folder / "control"), paths=PATHS | {"runtime": str(folder / "run")}, **more)
    mine = [gpu for gpu in GPUS if gpu["uuid"] in (devices or (A, B))]
    one = {
        "name": "gpu0",
        "devices": list(devices or (A, B)),
        "gpus": mine,
        "mig": False,
        "pipe": str(folder / "pipe"),
        "log": str(folder),
    }
    return Control(one, given)
