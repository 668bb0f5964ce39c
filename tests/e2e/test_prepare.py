"""apply --act prepare: what is needed is downloaded, nothing is changed, and the apply after it needs no network."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuprov.simulate import container, hosts, inventory
from tests.e2e.lab import GPUPROV, SIMULATED, SPEC
from tests.e2e.machine import Machine

pytestmark = pytest.mark.e2e
NAME = "e2e-prepare-act"
ARCHIVES = "cd /var/cache/apt/archives; stat -c '%n %Y %s' *.deb"
NO_NETWORK = 'Acquire::http::Proxy "http://127.0.0.1:9"; Acquire::https::Proxy "http://127.0.0.1:9";\n'


@pytest.fixture(scope="module")
def machine() -> Iterator[Machine]:
    container.down(NAME)
    try:
        machine = Machine(hosts.up(NAME, SIMULATED))
        machine.sh("! mountpoint -q /proc/driver || umount /proc/driver; apt-get clean")
        yield machine
    finally:
        container.down(NAME)


def apply(machine: Machine, place: Path, *more: str) -> tuple[int, dict[str, Any]]:
    (place / "hosts").mkdir(exist_ok=True)
    inventory.write([machine.host], place / "hosts" / "hosts.yaml")
    (place / "hosts" / "spec.yaml").write_text(json.dumps({"all": {"vars": {"gpuprov": SPEC}}}), encoding="utf-8")
    folders = {name: str(place) for name in ("XDG_STATE_HOME", "XDG_CACHE_HOME")}
    words = [GPUPROV, "apply", str(place / "hosts"), "--yes", "--json", *more]
    ran = subprocess.run(words, env={**os.environ, **folders}, capture_output=True, text=True, check=False)
    assert ran.stdout, ran.stderr
    return ran.returncode, json.loads(ran.stdout)


def test_a_host_in_service_is_prepared_once(machine: Machine, tmp_path: Path) -> None:
    before = machine.state()
    code, told = apply(machine, tmp_path, "--act", "prepare")
    host = told["hosts"][0]
    assert (code, told["act"], host["state"], host["changed"]) == (0, "prepare", "prepared", []), told
    assert "nvidia_driver" in host["ran"], "what is still to do"
    assert machine.state() == before
    loaded = machine.sh(ARCHIVES)
    assert "nvidia-kernel-" in loaded
    assert machine.sh("ls -A /run/gpuprov").split() == [".lock.guard"]
    assert "applying.json" not in machine.sh("ls /var/lib/gpuprov")
    code, told = apply(machine, tmp_path, "--act", "prepare")
    assert (code, told["hosts"][0]["state"]) == (0, "prepared"), told
    assert machine.sh(ARCHIVES) == loaded, "a second prepare downloads nothing"


@pytest.mark.slow
def test_what_is_prepared_is_used(machine: Machine, tmp_path: Path) -> None:
    code, told = apply(machine, tmp_path, "--act", "prepare")
    assert code == 0, told
    machine.write("/etc/apt/apt.conf.d/99none", NO_NETWORK)
    code, told = apply(machine, tmp_path)
    assert told["hosts"][0]["state"] == "changed", told["hosts"][0]
    assert all(state.endswith("i") for state, _ in machine.packages().values())
    assert "nvidia-kernel-dkms" in machine.packages()
