"""A new kernel comes to a simulated host by its distribution's packages, and nothing boots: what is held, told and
refused.

That the kernels boot is shown on machines: test_kernel_upgrade.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from gpuprov.simulate import debs, distributions, hosts
from gpuprov.simulate.description import Description, Gpus
from gpuprov.simulate.parts.base import File, text
from gpuprov.simulate.repository import index, signing
from gpuprov.simulate.repository.versions import versions
from gpuprov.simulate.standins import precompiled
from tests.e2e.booted import booted
from tests.e2e.kernels import (
    ANYHOW,
    BUILT,
    FAILS,
    FOLLOW,
    HOLD,
    NEXT,
    OLDER,
    PRECOMPILED,
    UPGRADE,
    VERSIONS,
    Upgraded,
    takes,
)

pytestmark = [pytest.mark.e2e, pytest.mark.slow]
NAME, UBUNTU = "e2e-kernel-packages", "e2e-kernel-ubuntu"
HOST = Description(gpu=Gpus(model="L40S", count=1))
PRECOMPILED_HOST = Description(gpu=Gpus(model="L40S", count=1), distribution="ubuntu2404", driver="535")
RELEASE = distributions.find("ubuntu2404")
NEWER = "6.8.0-62-generic"
PLACE = "/srv/kernels"
HOOK = """mkdir -p /etc/kernel/postinst.d
printf 'MODULES=list\\nCOMPRESS=zstd\\nCOMPRESSLEVEL=1\\n' > /etc/initramfs-tools/conf.d/quick
printf '#!/bin/sh\\nexec update-grub\\n' > /etc/kernel/postinst.d/zz-update-grub
chmod 755 /etc/kernel/postinst.d/zz-update-grub
"""
"""What GRUB's own package has; and an initramfs that is made quickly."""
POSTINST = f"""#!/bin/sh
set -e
cp /boot/config-{RELEASE.kernel} /boot/config-{NEWER}
depmod {NEWER}
run-parts --arg={NEWER} /etc/kernel/postinst.d
"""
"""One of the hooks makes the initramfs."""
SOURCE = f"deb [trusted=yes] file:{PLACE} ./\n"


@pytest.fixture(name="host")
def _host(tmp_path: Path) -> Iterator[Upgraded]:
    """A host with the older one of the archive's two kernels, its headers and the metapackages."""
    with booted(tmp_path, HOST, NAME) as hosts_:
        new = hosts_.sh("ls /lib/modules").split()[-1]
        known = hosts_.sh(VERSIONS).split()
        if len(known) < 2:
            pytest.skip(f"the archive has one kernel only: {known}")
        hosts_.sh(HOOK)
        old = hosts_.sh(OLDER.format(version=known[0])).split()[-1]
        hosts_.sh(f"apt-get -qq purge -y linux-headers-{new} >&2; rm -rf /lib/modules/{new} /boot/*-{new}; update-grub")
        yield Upgraded(hosts_, old, new)


def test_a_kernel_is_held_and_one_whose_build_fails_is_told_of(host: Upgraded) -> None:
    host.apply(**HOLD)
    said = host.sh(UPGRADE)
    assert "FAILED" not in said, said
    assert host.kernels() == {host.old}, said
    held = host.verify(**HOLD)[NEXT]
    assert (held["status"], held["found"].partition(" has ")[0]) == ("pass", host.old), held
    assert "linux-image-amd64" in held["found"], held

    # Debian's upgrade ends where DKMS fails: the new kernel has neither an initramfs nor a place in GRUB's menu.
    host.apply(**FOLLOW)
    kbuild = host.sh("ls /usr/src/nvidia-current-*/Kbuild").strip()
    host.sh(f"cp {kbuild} /root/Kbuild; echo '{FAILS.format(host.new)}' >> {kbuild}")
    said = host.sh(UPGRADE)
    assert "FAILED" in said, said
    assert host.kernels() == {host.old, host.new}
    found = host.verify(**FOLLOW)
    assert re.search(f"{host.new}: none: its build failed .*error: #error .*/build/make.log", found[BUILT]["found"]), (
        found[BUILT]
    )
    assert found[NEXT]["found"].startswith(f"{host.old} has "), found[NEXT]
    code, told = host.gpuprov("apply", "--yes", **FOLLOW)
    assert code == 3, told
    assert "host.packages" in str(told), told
    host.sh("update-grub")
    menu = host.verify(**FOLLOW)[NEXT]
    assert re.match(f"{host.new}, the next boot's, has none: its build failed .*; and no initramfs", menu["found"]), (
        menu
    )

    host.sh(ANYHOW)
    found = host.verify(**FOLLOW)
    assert re.match(f"{host.new}, the next boot's, has none: its build failed .*error: #error", found[NEXT]["found"]), (
        found[NEXT]
    )
    code, told = host.gpuprov("apply", "--yes", **FOLLOW)
    assert code == 3, told
    assert f"kernel {host.new}" in str(told), told
    host.sh(f"cp /root/Kbuild {kbuild}")
    host.apply(**FOLLOW)
    after = host.verify(**FOLLOW)[NEXT]
    assert (after["status"], after["found"].partition(" has ")[0]) == ("pass", host.new), after


@pytest.fixture(name="ubuntu")
def _ubuntu(tmp_path: Path) -> Iterator[Upgraded]:
    """An Ubuntu with the metapackages of its kernel, and modules for that."""
    with booted(tmp_path, PRECOMPILED_HOST, UBUNTU) as hosts_:
        hosts_.sh(f"{HOOK}apt-get -qq install -y linux-image-generic >&2")
        yield Upgraded(hosts_, RELEASE.kernel, NEWER)


def offers(host: Upgraded, folder: Path, *, modules: bool) -> None:
    """The archive has a newer kernel, with modules for it or without."""
    made = []
    for package in precompiled.ubuntu(replace(RELEASE, kernel=NEWER), versions("535")):
        if package.name == f"linux-image-{NEWER}":
            files = {
                f"/lib/modules/{NEWER}/modules.{name}": text("") for name in ("order", "builtin", "builtin.modinfo")
            }
            files[f"/boot/vmlinuz-{NEWER}"] = text("a stand-in: no kernel boots here\n")
            made.append(replace(package, files=files, scripts={"postinst": POSTINST}))
        elif modules or package.name == "linux-image-generic":
            made.append(package)
    debs.build(folder, made)
    with signing.signer() as signer:
        index.apt(folder, index.Release("Ubuntu", "Ubuntu"), signer)
    files = {f"{PLACE}/{file.name}": File(file) for file in folder.iterdir()}
    files["/etc/apt/sources.list.d/kernels.list"] = text(SOURCE)
    hosts.KINDS["container"].write(host.name, hosts.archive(files))
    host.sh("apt-get -qq update")


def test_precompiled_modules_follow_when_the_archive_has_them(ubuntu: Upgraded, tmp_path: Path) -> None:
    ubuntu.apply(**PRECOMPILED)
    offers(ubuntu, tmp_path / "kernel", modules=False)
    said = ubuntu.sh(UPGRADE)
    assert "FAILED" not in said, said
    assert ubuntu.kernels() == {ubuntu.old}, "held with its modules"
    held = ubuntu.verify(**PRECOMPILED)[NEXT]["found"].partition("held: ")[2].split()
    assert {"linux-image-generic", "linux-headers-generic"} <= {*held}, held
    ubuntu.sh(takes("linux-image-generic"))
    assert ubuntu.kernels() == {ubuntu.old, ubuntu.new}
    found = ubuntu.verify(**PRECOMPILED)
    assert found[NEXT]["found"].startswith(f"{ubuntu.new}, the next boot's, has none"), found[NEXT]
    assert found["nvidia_driver.precompiled"]["found"] == f"none for {ubuntu.new}"
    code, told = ubuntu.gpuprov("apply", "--yes", **PRECOMPILED)
    assert code == 3, told
    assert ubuntu.new in str(told), told

    offers(ubuntu, tmp_path / "modules", modules=True)
    ubuntu.apply(**PRECOMPILED)
    found = ubuntu.verify(**PRECOMPILED)
    assert (found[NEXT]["status"], found[NEXT]["found"].partition(" has ")[0]) == ("pass", ubuntu.new), found[NEXT]
    assert f"linux-image-{ubuntu.new}" in found[NEXT]["found"], "held anew"
