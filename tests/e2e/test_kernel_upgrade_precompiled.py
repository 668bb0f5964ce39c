"""Precompiled modules through a kernel upgrade: a machine that says it is Ubuntu, whose archive has modules for its
kernel, and later for the new one. Its kernels, GRUB and apt are Debian's, the modules are the stand-ins, compiled for
each kernel."""

from __future__ import annotations

import base64
import io
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from gpuprov.simulate import container, debs, distributions, hosts, machine
from gpuprov.simulate.description import Description
from gpuprov.simulate.parts import identity, silicon
from gpuprov.simulate.parts.base import PROGRAMS, File, text
from gpuprov.simulate.parts.packages import UBUNTU, URL
from gpuprov.simulate.repository import index, signing
from gpuprov.simulate.repository.versions import versions
from gpuprov.simulate.standins import precompiled, ubuntu
from gpuprov.simulate.standins.model import Standin
from tests.e2e.kernels import NEXT, PRECOMPILED, UPGRADE, Older, Upgraded, takes

pytestmark = [pytest.mark.e2e, pytest.mark.slow]
NAME = "e2e-kernel-precompiled"
RELEASE = distributions.find("ubuntu2404")
BUILDER = "e2e-kernel-modules"
PLACE = "/srv/ubuntu"
COMPILE = """export DEBIAN_FRONTEND=noninteractive
apt-get -qq update
for kernel in {kernels}; do
  apt-get -qq install -y linux-headers-$kernel >&2
  make -s -C /srv/source KERNEL_UNAME=$kernel modules >&2
  install -D -m 644 -t /srv/built/$kernel /srv/source/*.ko
  make -s -C /lib/modules/$kernel/build M=/srv/source clean >&2
done
tar -C /srv/built -c . | base64 -w0"""
SIMULATION = """export DEBIAN_FRONTEND=noninteractive
apt-get -qq install -y linux-headers-{0} >&2
make -s -C /lib/modules/{0}/build M={1} modules >&2
install -D -m 644 -t /lib/modules/{0}/updates/dkms {1}/gpuprov_sim_pci.ko
depmod {0}
update-initramfs -u -k {0} >&2"""
"""The simulation's own module for the new kernel, without which there is no GPU: nothing builds modules on this host.
"""
BECOME = f"""rm -f /etc/apt/sources.list.d/gpuprov-sim.sources {PROGRAMS}/sources/*
echo 'bookworm/sid' > /etc/debian_version"""


@dataclass(frozen=True)
class Archive:
    """The archive that is on the machine itself: the driver's packages, and modules for some kernels."""

    folder: Path
    host: Upgraded
    built: dict[str, bytes]

    def offers(self, *kernels: str) -> None:
        """From now on there are modules for these kernels."""
        version = versions("535")[0]
        made = ubuntu.packages(RELEASE, version)
        for kernel in kernels:
            made += _of_kernel(kernel, version, self.built)
        place = self.folder / "-".join(kernels)
        debs.build(place / "pool", made)
        with signing.signer() as signer:
            index.apt(place, index.Release("Ubuntu", "Ubuntu", RELEASE.codename, "restricted"), signer)
        served = {f"{PLACE}/{file.relative_to(place)}": File(file) for file in place.rglob("*") if file.is_file()}
        machine.write(self.host.name, hosts.archive(served))
        self.host.sh("apt-get -qq update")


@pytest.fixture(scope="module", name="built")
def _built(older_kernel: Older) -> dict[str, bytes]:
    """The stand-in modules by KERNEL/NAME.ko, compiled for both kernels: in a container, which does it in seconds."""
    source = silicon.dkms_source(versions("535")[0], "proprietary", "nvidia")
    try:
        container.up(BUILDER, Description())
        container.write(
            BUILDER, hosts.archive({f"/srv/source/{name}": File(content) for name, content in source.items()})
        )
        packed = base64.b64decode(
            container.run(BUILDER, COMPILE.format(kernels=f"{older_kernel.old} {older_kernel.new}"))
        )
    finally:
        container.down(BUILDER)
    with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
        files = {entry.name: tar.extractfile(entry) for entry in tar if entry.isfile()}
        return {name.removeprefix("./"): file.read() for name, file in files.items() if file}


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
    with older_kernel.started(tmp_path_factory.mktemp("precompiled"), NAME) as host:
        files = {"/usr/lib/os-release": text(identity.os_release(RELEASE))}
        files |= {path: text(content) for path, content in RELEASE.release_files.items()}
        source = UBUNTU.format(codename=RELEASE.codename).replace(f"{URL}/ubuntu", f"file:{PLACE}")
        files["/etc/apt/sources.list.d/ubuntu.sources"] = text(source)
        machine.write(NAME, hosts.archive(files))
        host.sh(BECOME)
        yield host


def test_modules_that_somebody_else_has_built(host: Upgraded, built: dict[str, bytes], tmp_path: Path) -> None:
    archive = Archive(tmp_path, host, built)
    archive.offers(host.old)
    host.apply(**PRECOMPILED)
    host.is_green(host.old, **PRECOMPILED)
    said = host.sh(UPGRADE)
    assert "FAILED" not in said, said
    assert host.kernels() == {host.old}, "held with its modules"

    said = host.sh(takes("linux-image-amd64"))
    assert host.kernels() == {host.old, host.new}, said
    found = host.verify(**PRECOMPILED)
    assert found[NEXT]["found"].startswith(f"{host.new}, the next boot's, has none"), found[NEXT]
    assert f"have {host.old} start, one time: grub-reboot 'gnulinux-advanced-" in found[NEXT]["fix"], found[NEXT]
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
    host.sh(SIMULATION.format(host.new, silicon.MODULE_SOURCE))
    assert host.reboot() == host.new
    host.is_green(host.new, **PRECOMPILED)
    assert f"/lib/modules/{host.new}/kernel/nvidia-535srv/" in host.sh("modinfo -n nvidia")
    assert host.sh("dpkg -S /usr/src/nvidia* 2>/dev/null || true") == "", "nothing was built here"
