"""Precompiled modules through a kernel upgrade: a machine that says it is Ubuntu, whose archive has modules for its kernel, and later
for the new one. Its kernels, GRUB and apt are Debian's, the modules are the stand-ins, compiled for each kernel."""

from __future__ import annotations

import base64
import io
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from gpuprov.simulate import debs, distributions, hosts, inventory, machine
from gpuprov.simulate.parts import identity
from gpuprov.simulate.parts.base import File, text
from gpuprov.simulate.parts.packages import PLACE, UBUNTU, UNIT
from gpuprov.simulate.repository import index, signing
from gpuprov.simulate.standins import precompiled, ubuntu
from gpuprov.simulate.standins.model import Standin
from tests.e2e.booted import Booted
from tests.e2e.kernels import DESCRIPTION, MODULES, NEXT, UPGRADE, Older, Upgraded

pytestmark = [pytest.mark.e2e, pytest.mark.slow]
NAME = "e2e-kernel-precompiled"
PRECOMPILED = {"build": "precompiled"}
RELEASE = distributions.find("ubuntu2404")
BECOME = """rm -f /etc/apt/sources.list.d/gpuprov-sim.sources
echo 'bookworm/sid' > /etc/debian_version"""
OFFER = f"systemctl restart {UNIT}; apt-get -qq update"
ANYWAY = (
    "DEBIAN_FRONTEND=noninteractive apt-get -y -q --allow-change-held-packages --only-upgrade install linux-image-amd64"
)
"""How somebody takes the new kernel though it is held."""


@dataclass(frozen=True)
class Archive:
    """The archive that the machine serves to itself: the driver's packages, and modules for some kernels."""

    folder: Path
    host: Upgraded

    def offers(self, *kernels: str) -> None:
        """From now on there are modules for these kernels."""
        packed = base64.b64decode(self.host.sh(f"tar -C {MODULES} -c {' '.join(kernels)} | base64 -w0"))
        with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
            files = {entry.name: tar.extractfile(entry) for entry in tar if entry.isfile()}
        built = {name: file.read() for name, file in files.items() if file}
        version = self.host.sh(f"modinfo -F version {MODULES}/{kernels[0]}/nvidia.ko").strip()
        made = ubuntu.packages(RELEASE, version)
        for kernel in kernels:
            made += _of_kernel(kernel, version, built)
        place = self.folder / "-".join(kernels)
        debs.build(place / "pool", made)
        with signing.signer() as signer:
            index.apt(place, index.Release("Ubuntu", "Ubuntu", RELEASE.codename, "restricted"), signer)
        served = {
            f"{PLACE}/ubuntu/{file.relative_to(place)}": File(file) for file in place.rglob("*") if file.is_file()
        }
        machine.write(self.host.name, hosts.archive(served))
        self.host.sh(OFFER)


def _of_kernel(kernel: str, version: str, built: dict[str, bytes]) -> list[Standin]:
    """linux-modules-nvidia-... as Ubuntu's archive has them, with modules that this kernel loads."""
    made = []
    for package in precompiled.ubuntu(replace(RELEASE, kernel=kernel), [version]):
        if package.name.startswith("linux-image-"):
            continue  # the kernel itself is Debian's
        if package.name.startswith("linux-objects-nvidia-"):
            files = {path: File(built[f"{kernel}/{Path(path).stem}.ko"]) for path in package.files}
            package = replace(package, files=files)
        made.append(package)
    return made


@pytest.fixture(scope="module", name="host")
def _host(older_kernel: Older, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Upgraded]:
    """A machine that says it is Ubuntu, without a driver."""
    folder = tmp_path_factory.mktemp("precompiled")
    try:
        reached = machine.up(NAME, DESCRIPTION, tag=older_kernel.tag)
        inventory.write([reached], folder / "inventory.yaml")
        files = {"/usr/lib/os-release": text(identity.os_release(RELEASE))}
        files |= {path: text(content) for path, content in RELEASE.release_files.items()}
        files["/etc/apt/sources.list.d/ubuntu.sources"] = text(UBUNTU.format(codename=RELEASE.codename))
        machine.write(NAME, hosts.archive(files))
        machine.run(NAME, BECOME)
        yield Upgraded(Booted((NAME,), folder), older_kernel.old, older_kernel.new)
    finally:
        hosts.down(NAME)


def test_modules_that_somebody_else_has_built(host: Upgraded, tmp_path: Path) -> None:
    archive = Archive(tmp_path, host)
    archive.offers(host.old)
    host.apply(**PRECOMPILED)
    host.is_green(host.old, **PRECOMPILED)
    said = host.sh(UPGRADE)
    assert "FAILED" not in said, said
    assert host.kernels() == {host.old}, "held with its modules"

    said = host.sh(ANYWAY)
    assert host.kernels() == {host.old, host.new}, said
    found = host.verify(**PRECOMPILED)
    assert found[NEXT]["found"].startswith(f"{host.new}, the next boot's, has none"), found[NEXT]
    assert f"have {host.old} start, one time: grub-reboot 'gnulinux-advanced-" in found[NEXT]["hint"], found[NEXT]
    assert found["nvidia_driver.precompiled"]["found"] == f"none for {host.new}"
    code, told = host.gpuprov("apply", "--yes", **PRECOMPILED)
    assert code == 3, told
    assert host.new in str(told), told
    assert "nvidia_driver.resolvable" in str(told), told

    archive.offers(host.old, host.new)
    host.apply(**PRECOMPILED)
    found = host.verify(**PRECOMPILED)
    assert found[NEXT]["found"].startswith(f"{host.new} has "), found[NEXT]
    assert found[NEXT]["status"] == "pass", found[NEXT]
    assert host.reboot() == host.new
    host.is_green(host.new, **PRECOMPILED)
    assert f"/lib/modules/{host.new}/kernel/nvidia-535srv/" in host.sh("modinfo -n nvidia")
    assert host.sh("dpkg -S /usr/src/nvidia* 2>/dev/null || true") == "", "nothing was built here"
