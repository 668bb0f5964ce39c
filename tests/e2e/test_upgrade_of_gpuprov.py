"""Hosts that an earlier gpuprov has applied: the present one says what it does again and why, does it once, and leaves
nothing behind.

The earlier one is the last in which shell scripts set RoCE at boot. It is taken from the repository's history, and runs
with the Python packages of this one.
"""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from gpuprov.simulate import container, hosts
from gpuprov.simulate.description import Description, Gpus
from gpuprov.simulate.standins import erdma
from tests.e2e import test_cgpu, test_mig
from tests.e2e.lab import Lab, loaded
from tests.e2e.machine import Machine

pytestmark = [pytest.mark.e2e, pytest.mark.slow]
ROOT = Path(__file__).parents[2]
SCRIPT = "roles/rdma/files/roce.sh"
"""What the earlier one still has."""
PARTS = ("gpuprov", "roles", "playbooks", "plugins")
PLACES = "$(ls -d /usr/local/lib/gpuprov /etc/gpuprov /etc/systemd/system 2>/dev/null)"
MINE = f"find {PLACES} -type f -not -name 'gpuprov-sim*' | grep gpuprov | sort"
"""Files of gpuprov's, units and parts of others' units among them; not those that make a host a simulated one."""
GONE = """
cat $(find /etc/systemd/system -type f | grep gpuprov) /dev/null | grep -o '/usr/local/lib/gpuprov/[^ ]*' | sort -u |
  while read -r file; do [ -e "$file" ] || echo "$file"; done
"""
"""What a unit of gpuprov's names and is not there."""


@dataclass
class Case:
    """A simulated host and its spec. `packages`: beside Debian's driver, which is loaded before the first apply; None:
    it is not. `old`: programs that only the earlier gpuprov has."""

    host: Description
    spec: dict[str, Any]
    packages: tuple[str, ...] | None = None
    old: tuple[str, ...] = ()


def git(*words: str) -> bytes:
    """What git prints. The test is skipped where that is nothing."""
    said = ""
    try:
        done = subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, check=False)
        if done.returncode == 0 and done.stdout:
            return done.stdout
        said = done.stderr.decode(errors="replace").strip()
    except OSError as error:
        said = str(error)
    pytest.skip(
        "the earlier gpuprov is in the repository's history, which is missing here: "
        f"{said or f'no commit removes {SCRIPT}'}. "
        "Fix: run the test in a clone that is not shallow"
    )


@pytest.fixture(scope="module")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    """The command of the earlier gpuprov."""
    removed = git("log", "--max-count=1", "--diff-filter=D", "--format=%H", "--", SCRIPT).decode().strip()
    tree = tmp_path_factory.mktemp("earlier")
    with tarfile.open(fileobj=io.BytesIO(git("archive", f"{removed}^", *PARTS))) as archive:
        archive.extractall(tree, filter="data")
    return ("env", f"PYTHONPATH={tree}", sys.executable, "-m", "gpuprov")


def demo(folder: Path) -> Case:
    """The host of `make demo`."""
    every = yaml.safe_load((ROOT / "inventories/example/inventory.yaml").read_text(encoding="utf-8"))["all"]
    described = yaml.safe_load((ROOT / "tests/demo.yaml").read_text(encoding="utf-8"))
    spec = {**every["vars"]["gpuprov"], **every["children"]["simulated"]["vars"]["gpuprov"]}
    return Case(msgspec.convert(described, Description), spec)


def roce(folder: Path) -> Case:
    """RoCE, PCI Express and the GPUs' own settings, each with a unit at boot."""
    gpus = {"model": "H100-SXM5-80GB", "count": 2}
    spec = {
        "gpu": gpus,
        "rdma": {"fabric": "roce", "stack": "inbox", "count": 2, "roce": {"tos": 106, "mtu": 4200}},
        "pcie": {"acs": "disabled", "max_read_request": 4096, "affinity": "local"},
        "gpu_settings": {"power_limit": 500, "compute_mode": "exclusive_process"},
    }
    return Case(
        Description(gpu=msgspec.convert(gpus, Gpus), hcas=2, fabric="roce"),
        spec,
        ("nvidia-modprobe",),
        ("rdma/roce.sh",),
    )


def cloud(folder: Path) -> Case:
    """eRDMA and cGPU."""
    file, digest = erdma.write(folder)
    rdma = {"fabric": "erdma", "erdma": {"file": str(file), "sha256": digest, "compat_mode": True, "mtu": "jumbo"}}
    host = Description(gpu=Gpus(model="T4", count=2), cgpu=True, erdma=True)
    return Case(host, {"rdma": rdma, **test_cgpu.SPEC}, old=("erdma/erdma.sh", "cgpu/cgpu.sh"))


def mig(folder: Path) -> Case:
    return Case(test_mig.HOST, test_mig.layout(test_mig.HALVES), ("nvidia-modprobe", "containerd"))


@contextmanager
def made(case: Case) -> Iterator[Machine]:
    name = "e2e-upgraded"
    if case.packages is not None:
        with loaded(name, case.host, *case.packages) as machine:
            yield machine
        return
    container.down(name)
    try:
        yield Machine(hosts.up(name, case.host))
    finally:
        container.down(name)


@pytest.mark.parametrize("case", [demo, roce, cloud, mig])
def test_a_host_of_an_earlier_gpuprov(
    case: Callable[[Path], Case], earlier: tuple[str, ...], lab: Lab, tmp_path: Path
) -> None:
    asked = case(tmp_path)
    with made(asked) as machine:
        folder = lab.inventory(asked.spec, machine)
        done = lab.finish(lab.start("apply", folder, "--yes", program=earlier))
        assert done.code == 0, done
        assert all(f"/usr/local/lib/gpuprov/{name}\n" in machine.sh(MINE) for name in asked.old)

        (planned,) = lab.run("plan", folder, "--quick", "--json").json["hosts"]
        assert planned["run"], "so much has changed since"
        assert not planned["blocked"]
        for why in planned["run"].values():
            assert "gpuprov's role changed since it was applied (2" in why or why.startswith("follows "), planned["run"]

        done = lab.run("apply", folder, "--yes", "--json")
        assert done.code == 0, done
        (host,) = done.json["hosts"]
        assert set(host["ran"]) == set(planned["run"]), host

        done = lab.run("apply", folder, "--yes", "--json")
        assert done.code == 0, done
        assert done.json["hosts"][0]["state"] == "unchanged", done
        assert done.json["log"] == "", "Ansible is not started"
        assert machine.sh(GONE) == ""
        hosts.reboot(machine.name)
        machine.sh("systemctl is-system-running --wait >/dev/null || true")
        done = lab.run("verify", folder)
        assert done.code == 0, done

        # What the present one needs is there again after this, and nothing else was there before.
        there = machine.sh(MINE)
        assert not [name for name in asked.old if name in there]
        machine.sh(f"rm -f $({MINE})")
        done = lab.run("apply", folder, "--yes", "--full")
        assert done.code == 0, done
        assert machine.sh(MINE) == there
