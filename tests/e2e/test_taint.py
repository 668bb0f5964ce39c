"""A hostile host, and a hostile inventory, on a real host: every command is run, and nothing of theirs runs on this
machine."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from gpuprov.simulate import inventory
from gpuprov.simulate.description import Description
from tests.e2e.lab import GPUPROV
from tests.e2e.machine import Machine
from tests.taint.canary import Nest
from tests.taint.test_render import untrusted

pytestmark = pytest.mark.e2e
NAME = "e2e-taint"
HOST = Description()
SYSCTLS = "/etc/sysctl.d/90-gpuprov.conf"


@pytest.fixture
def nest(tmp_path: Path) -> Nest:
    return Nest(tmp_path / "nest")


def gpuprov(folder: Path, *words: str | Path) -> subprocess.CompletedProcess[str]:
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("GPUPROV", "ANSIBLE"))}
    home = {"XDG_CACHE_HOME": str(folder / "cache"), "XDG_STATE_HOME": str(folder / "state")}
    command = [GPUPROV, *map(str, words)]
    return subprocess.run(
        command, cwd=folder, env=clean | home, capture_output=True, text=True, check=False, timeout=600
    )


def oneself(value: str) -> str:
    """A canary as a value that sysctl(8) is given, and that a host has: of one line, and harmless there."""
    return value.replace("\n", " ")


def test_what_a_host_says_runs_nowhere(site: Machine, nest: Nest, tmp_path: Path) -> None:
    """Its sysctls, its labels, its name and its release are canaries; its spec is exported, checked, planned,
    applied."""
    inventory.write([site.host], tmp_path / "inventory.yaml")
    values = [oneself(canary) for canary in nest.all() if canary.replace("\n", "").isprintable()]
    site.write(SYSCTLS, "".join(f"kernel.x{n} = {value}\n" for n, value in enumerate(values)))
    site.write("/run/gpuprov/reboot-required.d/kernel", f"{nest.templates()[0]}\n")
    site.write(
        "/var/lib/gpuprov/receipt.json", json.dumps({"applied_at": nest.templates()[1], "version": nest.templates()[0]})
    )
    exported = gpuprov(tmp_path, "export", "inventory.yaml", "--out", "e.yaml")
    assert exported.returncode == 0, exported
    assert gpuprov(tmp_path, "check", "e.yaml").returncode == 0
    spec = json.loads(gpuprov(tmp_path, "check", "e.yaml", "--json").stdout)["hosts"][0]["spec"]
    assert list(spec["kernel"]["sysctl"].values()) == [" ".join(value.split()) for value in values]
    assert gpuprov(tmp_path, "verify", "e.yaml").returncode == 1
    planned = gpuprov(tmp_path, "plan", "e.yaml")
    assert planned.returncode in (0, 1), planned
    applied = gpuprov(tmp_path, "apply", "e.yaml", "--yes", "--full")
    assert applied.returncode in (0, 1, 3), applied
    assert "Traceback" not in planned.stderr + applied.stderr
    assert nest.flown() == []


@pytest.mark.slow
def test_what_an_untrusted_inventory_says_runs_nowhere(site: Machine, nest: Nest, tmp_path: Path) -> None:
    """A parameter that is a template to the eye alone: planned, and written as it stands."""
    inventory.write([site.host], tmp_path / "hosts.yaml")
    text = "{{6*7}}"  # a module's parameter has no spaces and no quotes
    site.sh(f"rm -f {SYSCTLS} /run/gpuprov/reboot-required.d/kernel /var/lib/gpuprov/receipt.json")
    variables: dict[str, Any] = {
        "gpuprov": {"kernel": {"module_options": {"loop": {"max_part": text}}}},
        "ansible_note": nest.templates()[0],
        "container_toolkit_repository": nest.templates()[1],
    }
    answer = {"_meta": {"hostvars": {site.name: untrusted(variables)}}, "all": {"hosts": [site.name]}}
    (tmp_path / "cloud.json").write_text(json.dumps(answer))
    (tmp_path / "cloud.sh").write_text(f"#!/bin/sh\ncat '{tmp_path}/cloud.json'\n")
    (tmp_path / "cloud.sh").chmod(0o755)
    planned = gpuprov(tmp_path, "plan", "hosts.yaml", "cloud.sh")
    assert planned.returncode in (0, 1), planned
    assert "could not predict" not in planned.stdout, planned
    applied = gpuprov(tmp_path, "apply", "hosts.yaml", "cloud.sh", "--yes")
    assert applied.returncode in (0, 1), applied
    assert f"options loop max_part={text}" in site.sh("cat /etc/modprobe.d/gpuprov.conf")
    assert nest.flown() == []
