"""Rebuild of every initramfs that is older than its configuration, or than the NVIDIA modules in it, by the program
that made it.

Left out are rescue images, which dracut never rebuilds, kdump images, in which no GPU driver runs, and copies that
belong to no kernel (.old-dkms, .bak): rebuilt, a copy would have no modules.
"""

from __future__ import annotations

import filecmp
import glob
import os
import re
import shutil
import subprocess
from typing import Collection, Iterable, NamedTuple

from . import first_boot_systemd
from .failed import Failed

BOOT, MODULES = "/boot", "/lib/modules"
# Possible mount points of the partition with systemd-boot's files:
# https://uapi-group.org/specifications/specs/boot_loader_specification/
PARTITIONS = ("/efi", "/boot", "/boot/efi")
# Seconds by which file times on it may be too early: https://docs.kernel.org/filesystems/vfat.html
FAT = 2
# Files of the driver's modules, under the names of each distribution; the kernel has nvidiafb of its own.
NVIDIA = re.compile(r"nvidia([-_]current([-_]open)?)?([-_](uvm|modeset|drm|peermem))?\.ko(\.\w+)?")
CONFIGURATION = ("/etc/modprobe.d", "/etc/dracut.conf.d/90-gpuprov.conf")


class Image(NamedTuple):
    """An initramfs and the kernel that it is for."""

    path: str
    kernel: str


def list_stale(named: Collection[str] = ()) -> list[Image]:
    """List the images that are older than their configuration, and those named.

    Compares the files' times rather than what just changed: a run that was interrupted before the rebuild is completed
    by the next.
    """
    outdated = []
    for path in sorted(
        glob.glob(BOOT + "/initrd.img-*") + glob.glob(BOOT + "/initramfs-*.img") + glob.glob(BOOT + "/initrd-*")
    ):
        name = os.path.basename(path)
        kernel = re.sub(r"^(initrd\.img|initramfs|initrd)-|\.img\Z", "", name)
        if name.endswith(("kdump.img", "-kdump")) or "-0-rescue-" in name:
            continue
        if os.path.isfile(path) and os.path.isdir(os.path.join(MODULES, kernel)):
            image = Image(path, kernel)
            outdated += [image] * (
                path in named or is_outrun(path) or bool(find_old_copy(image)) or has_old_driver(image)
            )
    return outdated


class Copy(NamedTuple):
    """A copy of an image, by size and time in seconds."""

    size: int
    made: int
    # Older than the image, and byte for byte the same.
    same: bool
    path: str


def find_old_copy(image: Image) -> str:
    """Return the outdated copy of the image made by kernel-install, from which systemd-boot starts the host: a run that
    was interrupted between the two leaves one. "" if there is none."""
    # PARTITION/TOKEN/VERSION/NAME, kernel-install(8).
    if not first_boot_systemd.started():
        return ""
    name, current = os.path.basename(image.path), _copy(image.path, "")
    paths = [
        path for place in PARTITIONS for path in glob.glob(f"{place}/*/{glob.escape(image.kernel)}/{glob.escape(name)}")
    ]
    return select_old_copy(current.size, current.made, [_copy(path, image.path) for path in paths])


def _copy(path: str, image: str) -> Copy:
    status = os.stat(path)
    size, made = status.st_size, int(status.st_mtime)
    return Copy(size, made, bool(image) and made < os.stat(image).st_mtime and filecmp.cmp(image, path, False), path)


def select_old_copy(size: int, made: int, copies: Iterable[Copy]) -> str:
    """Return the path of the outdated copy of an image of this size and time; "" if there is none.

    The newest copy is the host's own: a token (machine-id) that a host had before leaves others behind.
    """
    # A copy with the same bytes is not outdated: times on FAT are local, and shift with daylight saving and the time
    # zone.
    newest = max(copies, key=lambda copy: copy.made, default=None)
    if newest is None or newest.same or (newest.size == size and newest.made >= made - FAT):
        return ""
    return newest.path


def rebuild_image(image: Image) -> None:
    """Rebuild it; /boot must have room for a second one while it is written. Raises Failed."""
    need = os.path.getsize(image.path) // 1048576 + 1
    free = shutil.disk_usage(BOOT).free // 1048576
    if free <= need:
        raise Failed(
            f"/boot has {int(free)} MiB free, a rebuilt {image.path} needs {int(need)} MiB: remove old kernels"
        )
    if is_made_by_dracut(image.path):
        command = ["dracut", "--force", image.path, image.kernel]
        maker = "dracut: see /etc/dracut.conf and /etc/dracut.conf.d"
    else:  # by its own name: "-k all" means to update-initramfs only those that it made itself
        command = ["update-initramfs", "-u", "-k", image.kernel]
        maker = "update-initramfs: see update_initramfs in /etc/initramfs-tools/update-initramfs.conf"
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8", errors="replace", check=False
    )
    if done.returncode:
        output = [line for line in done.stdout.splitlines() if line.strip()][-3:]
        why = "; ".join(output) or f"status {done.returncode}"
        raise Failed(f"{' '.join(command)} failed: {why}")
    if is_outrun(image.path):
        raise Failed(f"{image.path} was left as it was by {maker}")
    if old := find_old_copy(image):
        raise Failed(f"{old}, from which systemd-boot starts, was left as it was: kernel-install add {image.kernel}")


def is_outrun(image: str) -> bool:
    made = os.stat(image).st_mtime
    for place in CONFIGURATION:
        for folder, _, files in os.walk(place) if os.path.isdir(place) else [(place, [], [""])]:
            for path in [folder, *(os.path.join(folder, name) for name in files if name)]:
                if os.path.exists(path) and os.stat(path).st_mtime > made:
                    return True
    return False


def has_old_driver(image: Image) -> bool:
    """Return whether the image would load an NVIDIA module that predates the kernel's own, which the driver's libraries
    do not work with."""
    # https://github.com/openSUSE/nvidia-driver-G06/issues/25
    made = os.stat(image.path).st_mtime
    places = os.walk(os.path.join(MODULES, image.kernel))
    paths = [os.path.join(folder, name) for folder, _, names in places for name in names if NVIDIA.fullmatch(name)]
    if not any(os.path.exists(path) and os.stat(path).st_mtime > made for path in paths):
        return False
    lister = "lsinitrd" if shutil.which("lsinitramfs") is None else "lsinitramfs"
    return any(NVIDIA.fullmatch(line.rpartition("/")[2]) for line in list_contents(lister, image.path).splitlines())


def is_made_by_dracut(image: str) -> bool:
    if shutil.which("update-initramfs") is None:
        return True
    return shutil.which("dracut") is not None and "lib/dracut/" in list_contents("lsinitramfs", image)


def list_contents(lister: str, image: str) -> str:
    done = subprocess.run([lister, image], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)
    return done.stdout.decode("utf-8", "replace")
