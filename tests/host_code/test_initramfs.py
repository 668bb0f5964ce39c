"""Each initramfs made anew, on a folder that looks like /boot: whose image is made, and whose is left."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from gpuprov.facts.probes.base import Output
from gpuprov.facts.probes.kernel.initramfs import INITRAMFS, Initramfs
from gpuprov.host_code import first_boot_systemd, initramfs
from gpuprov.host_code.failed import Failed

RELEASE = "6.1.0-47-amd64"


@pytest.fixture(name="boot")
def _boot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two kernels, the images of which are older than the configuration, and what is left of other images."""
    (tmp_path / "boot").mkdir()
    for name in (
        *(f"initrd.img-{RELEASE}", f"initrd.img-{RELEASE}.old-dkms", f"initrd.img-{RELEASE}.bak"),
        *("initramfs-0-rescue-5f6c.img", f"initramfs-{RELEASE}kdump.img"),
    ):
        (tmp_path / "boot" / name).write_text("image")
        os.utime(tmp_path / "boot" / name, (1, 1))
    for folder in (f"lib/modules/{RELEASE}", "etc/modprobe.d", "bin"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "bin/update-initramfs").write_text(
        f"#!/bin/sh\necho $* >>{tmp_path}/log; touch {tmp_path}/boot/initrd.img-$3\n"
    )
    (tmp_path / "bin/update-initramfs").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    monkeypatch.setattr(initramfs, "BOOT", f"{tmp_path}/boot")
    monkeypatch.setattr(initramfs, "MODULES", f"{tmp_path}/lib/modules")
    monkeypatch.setattr(initramfs, "CONFIGURATION", (f"{tmp_path}/etc/modprobe.d", f"{tmp_path}/etc/none.conf"))
    return tmp_path


def test_only_images_of_kernels_are_made_anew(boot: Path) -> None:
    """DKMS and update-initramfs leave copies beside them. Made anew as a kernel of that name, a copy would have no
    modules."""
    (image,) = initramfs.list_stale()
    assert image == (f"{boot}/boot/initrd.img-{RELEASE}", RELEASE)
    initramfs.rebuild_image(image)
    assert (boot / "log").read_text() == f"-u -k {RELEASE}\n"
    assert initramfs.list_stale() == [], "a second run changes nothing"
    assert initramfs.list_stale([image.path]) == [image], "unless it is named"


def test_a_file_that_changed_counts_as_its_folder_does(boot: Path) -> None:
    (image,) = initramfs.list_stale()
    initramfs.rebuild_image(image)
    options = boot / "etc/modprobe.d/gpuprov.conf"
    options.write_text("blacklist nouveau\n")
    later = os.stat(image.path).st_mtime + 10
    os.utime(options.parent, (1, 1))
    os.utime(options, (later, later))
    assert initramfs.list_stale() == [image]


def test_an_image_that_its_maker_leaves_is_an_error(boot: Path) -> None:
    (boot / "bin/update-initramfs").write_text("#!/bin/sh\n")
    with pytest.raises(Failed, match=f"initrd.img-{RELEASE} was left as it was by update-initramfs"):
        initramfs.rebuild_image(initramfs.list_stale()[0])


def test_a_maker_that_fails_says_why(boot: Path) -> None:
    (boot / "bin/update-initramfs").write_text("#!/bin/sh\necho E: no space; exit 2\n")
    with pytest.raises(Failed, match=f"update-initramfs -u -k {RELEASE} failed: E: no space"):
        initramfs.rebuild_image(initramfs.list_stale()[0])


def test_a_full_boot_is_said_before_anything_is_written(boot: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _path: type("Usage", (), {"free": 1048576})())
    with pytest.raises(Failed, match=r"/boot has 1 MiB free, a rebuilt .* needs 1 MiB: remove old kernels"):
        initramfs.rebuild_image(initramfs.list_stale()[0])
    assert not (boot / "log").exists()


@pytest.fixture(name="copy")
def _copy(boot: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A host that systemd-boot has started, with kernel-install's copy of the image, and a maker whose hook copies
    it."""
    variables = boot / "efivars"
    variables.mkdir()
    told = "systemd-boot 252.39-1".encode("utf-16-le")
    (variables / f"LoaderInfo-{first_boot_systemd.VENDOR}").write_bytes(bytes(4) + told)
    monkeypatch.setattr(first_boot_systemd, "VARIABLES", str(variables))
    monkeypatch.setattr(initramfs, "PARTITIONS", (f"{boot}/efi", f"{boot}/boot"))
    copy = boot / f"efi/5f6c/{RELEASE}/initrd.img-{RELEASE}"
    copy.parent.mkdir(parents=True)
    copy.write_text("image")
    program = boot / "bin/update-initramfs"
    program.write_text(f"{program.read_text()}cp {boot}/boot/initrd.img-$3 {copy}\n")
    initramfs.rebuild_image(initramfs.list_stale()[0])
    return copy


def holds(boot: Path, *paths: str) -> None:
    (boot / "bin/lsinitramfs").write_text("".join(["#!/bin/sh\n", *(f"echo {path}\n" for path in paths)]))
    (boot / "bin/lsinitramfs").chmod(0o755)


def of_probe(boot: Path) -> Initramfs:
    script = INITRAMFS.script.replace("/sys/firmware/efi/efivars", f"{boot}/efivars")
    for folder in ("/boot", "/etc/modprobe.d", "/lib/modules", "/efi"):
        script = re.sub(rf"(?<![\w]){folder}(?=[/ \n])", f"{boot}{folder}", script)
    if not (boot / "bin/lsinitramfs").exists():
        holds(boot, "etc/modprobe.d/gpuprov.conf")
    environment = {"PATH": f"{boot}/bin:/usr/bin:/bin"}
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True, env=environment)
    (image,) = INITRAMFS.parse(Output(done.stdout))
    return image


def test_a_run_that_was_cut_off_before_systemd_boots_copy_is_completed_by_the_next(boot: Path, copy: Path) -> None:
    (boot / "etc/modprobe.d/gpuprov.conf").touch()
    os.utime(boot / "etc/modprobe.d/gpuprov.conf", (1, 1))
    os.utime(boot / "etc/modprobe.d", (1, 1))
    assert initramfs.list_stale() == []
    assert (of_probe(boot).holds_configuration, of_probe(boot).old_copy) == (True, "")
    image = boot / f"boot/initrd.img-{RELEASE}"
    now = os.stat(image).st_mtime
    os.utime(copy, (now - 1, now - 1))
    assert initramfs.list_stale() == [], "times on FAT are even seconds"
    os.utime(copy, (now - 3600, now - 3600))
    assert initramfs.list_stale() == [], "and local ones, which an hour of daylight saving makes older"
    assert of_probe(boot).old_copy == ""
    copy.write_text("older")
    os.utime(copy, (now - 60, now - 60))
    assert [one.path for one in initramfs.list_stale()] == [str(image)]
    assert (of_probe(boot).holds_configuration, of_probe(boot).old_copy) == (False, str(copy))
    initramfs.rebuild_image(initramfs.list_stale()[0])
    assert initramfs.list_stale() == []
    copy.write_text("image, cut o")
    assert [one.path for one in initramfs.list_stale()] == [str(image)]
    assert of_probe(boot).old_copy == str(copy)
    (boot / "bin/update-initramfs").write_text(f"#!/bin/sh\ntouch {image}\n")
    with pytest.raises(Failed, match=rf"{copy}, from which systemd-boot starts, was left as it was"):
        initramfs.rebuild_image(initramfs.list_stale()[0])


def test_a_copy_under_a_name_that_the_host_had_before_is_left(boot: Path, copy: Path) -> None:
    """A machine-id of an image that hosts were cloned from: nothing makes that copy anew."""
    former = boot / f"efi/0badcafe/{RELEASE}/initrd.img-{RELEASE}"
    former.parent.mkdir(parents=True)
    former.write_text("of the image")
    os.utime(former, (1, 1))
    assert initramfs.list_stale() == []
    assert of_probe(boot).old_copy == ""


def test_what_grub_starts_has_no_copy(boot: Path, copy: Path) -> None:
    copy.write_text("of a bootloader that was")
    next((boot / "efivars").iterdir()).unlink()
    assert initramfs.list_stale() == []
    assert of_probe(boot).old_copy == ""


def test_the_probe_looks_into_the_same_images(boot: Path) -> None:
    script = INITRAMFS.script
    for folder in ("/boot", "/etc/modprobe.d", "/lib/modules"):
        script = script.replace(folder, f"{boot}{folder}")
    (boot / "bin/lsinitramfs").write_text("#!/bin/sh\necho lib/modules\n")
    (boot / "bin/lsinitramfs").chmod(0o755)
    done = subprocess.run(
        ["sh", "-c", script], capture_output=True, text=True, check=True, env={"PATH": f"{boot}/bin:/usr/bin:/bin"}
    )
    assert done.stdout.split()[:2] == ["image", f"{boot}/boot/initrd.img-{RELEASE}"]
    assert done.stdout.count("image") == 1


@pytest.mark.parametrize(
    ("inside", "old"),
    [
        ("updates/dkms/nvidia-current.ko", True),
        ("updates/nvidia-modeset.ko.xz", True),
        ("kernel/drivers/video/fbdev/nvidia/nvidiafb.ko", False),
    ],
)
def test_an_image_with_modules_of_the_driver_before(boot: Path, inside: str, old: bool) -> None:
    """As where /etc/initramfs-tools/modules or dracut's force_drivers names nvidia: nothing makes it anew when the
    driver changes."""
    (image,) = initramfs.list_stale()
    initramfs.rebuild_image(image)
    module = boot / f"lib/modules/{RELEASE}/updates/dkms/nvidia-current.ko"
    module.parent.mkdir(parents=True)
    module.touch()
    holds(boot, f"lib/modules/{RELEASE}/{inside}")
    (boot / "bin/modinfo").write_text(f'#!/bin/sh\n[ "$4" = nvidia-current ] && echo {module}\n')
    (boot / "bin/modinfo").chmod(0o755)
    made = os.stat(image.path).st_mtime
    for age, now in ((-60, False), (60, old)):
        os.utime(module, (made + age, made + age))
        assert (initramfs.list_stale() == [image], of_probe(boot).old_driver) == (now, now)
