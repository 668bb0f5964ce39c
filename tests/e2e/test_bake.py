"""An image baked without GPUs, started on simulated H100 hosts: each finishes and proves itself, without Ansible."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from gpuprov.bake import files
from gpuprov.simulate import container, engine_choice, guard, hosts, inventory
from gpuprov.simulate.description import Description, Gpus
from gpuprov.simulate.parts import packages
from tests.e2e.lab import GPUPROV
from tests.e2e.machine import Machine
from tests.e2e.wheels import collect_wheels

pytestmark = pytest.mark.e2e
HOST = Description(gpu=Gpus(model="H100-SXM5-80GB", count=8), nvswitch=3)
SPEC: dict[str, Any] = {
    "gpu": {"model": "H100-SXM5-80GB", "count": 8},
    "nouveau": {},
    "nvidia_driver": {"version": "535"},
    "persistence": {},
    "fabric_manager": {},
}
RECEIPT = "/var/lib/gpuprov/receipt.json"
IDENTITY = "cat /etc/machine-id /etc/ssh/ssh_host_*"
BAKE = "PYTHONPATH=/opt/lib python3 -m gpuprov bake /mnt/given/inventory.yaml --root / --wheels /mnt/wheels"
UNITS = (
    "systemctl list-units --no-legend --plain --state=active,failed --type=service; cat /proc/modules "
    "2>/dev/null || true"
)
NAME, CLONES = "e2e-bake", ("e2e-clone1", "e2e-clone2")


@pytest.fixture
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The disk of a new simulated host that gpuprov was never applied to, as a folder."""
    folder = tmp_path_factory.mktemp("image") / "root"
    folder.mkdir()
    container.down(NAME)
    try:
        machine = Machine(hosts.up(NAME, HOST))
        machine.sh("mkdir -p /var/lib/gpuprov; echo {} > /var/lib/gpuprov/receipt.json; sync")
        assert podman_export(f"{container.PREFIX}{NAME}", folder) == 0
    finally:
        container.down(NAME)
    unmask(folder)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def podman_export(name: str, folder: Path) -> int:
    """Unpack the disk of a container."""
    packed = subprocess.Popen(["podman", "export", name], stdout=subprocess.PIPE)
    status = subprocess.run(["tar", "-x", "-C", str(folder)], stdin=packed.stdout, check=False).returncode
    return status or packed.wait()


def unmask(root: Path) -> None:
    """Remove the places of the guard's masks, which no real image has: a boot would set nothing."""
    for unit in guard.MASKED:
        (root / f"{guard.UNITS}/{unit}".lstrip("/")).unlink(missing_ok=True)


def find_root(name: str) -> Path:
    """Return the root folder of a container that runs."""
    words = [engine_choice.chosen(), "inspect", "--format", "{{.State.Pid}}", f"{container.PREFIX}{name}"]
    return Path(f"/proc/{subprocess.check_output(words, text=True).strip()}/root")


@contextmanager
def served() -> Iterator[None]:
    """The package repository of the simulated host, at its own address, on this machine."""
    folder = packages.volumes(HOST)[0][0]
    words = [sys.executable, "-m", "http.server", packages.URL.rpartition(":")[2], "--bind", "127.0.0.1"]
    server = subprocess.Popen(
        [*words, "--directory", str(folder)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        yield
    finally:
        server.kill()
        server.wait()


@pytest.mark.parametrize("names", [CLONES[:1], pytest.param(CLONES, marks=pytest.mark.slow)], ids=["one", "two"])
def test_an_image_is_baked_and_its_clones_prove_themselves(
    image: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, names: tuple[str, ...]
) -> None:
    if engine_choice.chosen() != "podman":
        pytest.skip("only podman starts a host from a folder")
    written = tmp_path / "inventory.yaml"
    written.write_text(json.dumps({"all": {"hosts": {"image": {"gpuprov": SPEC}}}}), encoding="utf-8")
    wheels = collect_wheels(tmp_path_factory)
    with served():
        told = json.loads(run(tmp_path, "bake", written, "--root", image, "--wheels", wheels, "--json"))
    assert told["state"] == "baked"
    assert told["left"] == []
    assert "/var/lib/gpuprov/receipt.json" in told["cleaned"]
    assert "/etc/ssh/ssh_host_ed25519_key" in told["kept"]
    assert {"fabric_manager.registered", "host.gpu", "nvidia_driver.loaded"} <= set(told["later"])
    built = next(row for row in told["results"] if row["check"] == "nvidia_driver.modules_built")
    assert built["status"] == "pass"
    assert told["kernels"][0] in built["found"]
    assert not (image / "var/lib/gpuprov/receipt.json").exists()
    assert not (image / "root/.cache/gpuprov").exists()
    assert (image / "etc/machine-id").read_text() == ""
    assert str(image) not in Path("/proc/self/mounts").read_text(encoding="utf-8")
    assert clones(image, tmp_path, names) == len(names)


def test_the_machine_that_it_runs_on_is_baked(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """As a provisioner of Packer would: gpuprov unpacked on a booted machine, which stays as it is but for its
    files."""
    wheels = collect_wheels(tmp_path_factory)
    (tmp_path / "inventory.yaml").write_text(
        json.dumps({"all": {"hosts": {"image": {"gpuprov": SPEC}}}}), encoding="utf-8"
    )
    container.down(NAME)
    volumes = (*packages.volumes(HOST), (wheels, "/mnt/wheels"), (tmp_path, "/mnt/given"))
    try:
        machine = Machine(container.up(NAME, HOST, volumes=volumes))
        hosts.furnish(NAME, HOST)
        unmask(find_root(NAME))
        machine.sh("for w in /mnt/wheels/*.whl; do python3 -m zipfile -e $w /opt/lib; done; systemd-machine-id-setup")
        identity = machine.sh(IDENTITY)
        machine.sh(f"mkdir -p /var/lib/gpuprov; echo '{{}}' > {RECEIPT}; {BAKE} 2> /tmp/refused && exit 9 || true")
        assert "gpuprov has been applied" in machine.sh(f"cat /tmp/refused; rm {RECEIPT}")
        started = machine.sh(UNITS)
        told = json.loads(machine.sh(f"{BAKE} --json"))
        assert (told["state"], told["root"], told["left"]) == ("baked", "/", [])
        assert {"/etc/machine-id", "/etc/ssh/ssh_host_ed25519_key"} <= set(told["kept"])
        assert machine.sh(IDENTITY) == identity
        assert machine.sh(UNITS) == started
        assert machine.sh("ls -d /run/gpuprov-machine ~/.ansible ~/.cache/gpuprov ~/.local 2> /dev/null || true") == ""
        assert machine.sh("test -s /run/gpuprov-own/log/*.log; ls /var/lib/gpuprov").split() == ["first-boot"]
        assert machine.sh(f"systemctl is-enabled {files.UNIT}").strip() == "enabled"
        assert machine.held()
        machine.sh(f"{BAKE} --clean-machine")
        assert machine.sh("cat /etc/machine-id; ls /etc/ssh/ssh_host_* 2> /dev/null || true") == ""
    finally:
        container.down(NAME)


def clones(image: Path, folder: Path, names: tuple[str, ...]) -> int:
    """Start the image once for each clone, and look at what its first boot says. Returns how many different machines
    there were."""
    machines = set()
    for name in names:
        container.down(name)
        root = image.parent / name
        subprocess.run(["cp", "-a", "--reflink=auto", str(image), str(root)], check=True)
        try:
            machine = Machine(hosts.up(name, HOST, tag=str(root)))
            machine.wait_for(f"test -e {files.DONE}")
            report = json.loads(machine.sh(f"cat {files.DONE}"))
            assert report["exit_code"] == 0, machine.sh(f"journalctl --no-pager -u {files.UNIT}")
            assert report["result"]["verdict"] == "matches", report
            assert set(machine.receipt()["capabilities"]) == {"kernel", *SPEC} - {"gpu"}
            assert "ansible" not in machine.sh(f"ls {files.LIBRARY}")
            machines.add(report["machine"])
            (folder / f"{name}.yaml").write_text(inventory.text([machine.host], SPEC), encoding="utf-8")
            run(folder, "plan", folder / f"{name}.yaml", "--quick")
        finally:
            container.down(name)
            shutil.rmtree(root, ignore_errors=True)
    return len(machines)


def run(folder: Path, *words: str | Path) -> str:
    """Run gpuprov, which ends well, and return what it printed. Its logs and cache are in the folder."""
    own = {"XDG_STATE_HOME": str(folder / "state"), "XDG_CACHE_HOME": str(folder / "cache")}
    done = subprocess.run(
        [GPUPROV, *map(str, words)], env={**os.environ, **own}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{words}\n{done.stdout[-6000:]}\n{done.stderr[-6000:]}"
    return done.stdout
