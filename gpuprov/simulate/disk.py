"""The disk of a simulated machine: Debian with its own kernel, initramfs and GRUB, built once, then used
copy-on-write."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from gpuprov.core.errors import GpuprovError
from gpuprov.simulate import disk_files, image, qemu, sources, tools
from gpuprov.simulate.parts.base import PROGRAMS

PACKAGES: tuple[str, ...] = (
    *image.PACKAGES,
    # The generic kernel: the cloud flavour has neither nouveau nor rdma_rxe.
    *("linux-image-amd64", "grub-pc", "iputils-ping"),
    *("rdma-core", "ibverbs-utils", "ibverbs-providers"),  # for soft RDMA devices (rxe)
)
NO_DEVICE_YET = (
    "printf 'grub-pc grub-pc/install_devices_empty boolean true\\ngrub-pc grub-pc/install_devices multiselect \\n' "
    '| chroot "$1" debconf-set-selections'
)
MIB = 1 << 20
# Label, offset and size of /boot and /: a separate /boot can be filled without harming the rest.
LAYOUT = ((disk_files.BOOT_LABEL, 1 * MIB, 512 * MIB), (disk_files.ROOT_LABEL, 513 * MIB, 12 << 30))
# Features of newer e2fsprogs that GRUB 2.06 cannot read: https://bugs.debian.org/1030939
FEATURES = "^orphan_file,^metadata_csum_seed"
NEWEST = "apt-cache pkgnames linux-image- on such a host lists those that are there; without the field it is the newest"
PATIENCE = 900.0  # seconds for the boot that finishes the disk; 60 are usual under emulation


@dataclass(frozen=True)
class Disk:
    """A cached disk."""

    file: Path
    # A copy of the kernel on it.
    kernel: Path


@dataclass(frozen=True)
class Recipe:
    """Everything that determines a disk's content."""

    distribution: str
    mirrors: sources.Mirrors
    # A release of the archive; empty for the newest.
    kernel: str = ""

    @property
    def base(self) -> image.Recipe:
        """Return the recipe that it shares with the container image."""
        return image.Recipe(self.distribution, self.mirrors)

    @property
    def key(self) -> str:
        """Return a hash of the recipe: a changed recipe is another disk."""
        parts = [self.base_key, repr(LAYOUT), FEATURES, disk_files.PREPARE]
        parts += [f"{path} {file.mode:o} {_content(file.content)!r}" for path, file in disk_files.files().items()]
        return _hash(parts)

    @property
    def base_key(self) -> str:
        """Return a hash of the packages alone."""
        return _hash(self.command(Path("root")))

    @property
    def packages(self) -> list[str]:
        """Return packages to install beside the essential ones: metapackages for the newest kernel, or the packages of
        the chosen kernel."""
        if not self.kernel:
            return list(PACKAGES)
        return [re.sub(r"(linux-(?:image|headers))-amd64", rf"\1-{self.kernel}", name) for name in PACKAGES]

    def command(self, target: Path) -> list[str]:
        """Return the mmdebstrap call that writes the root file system, before any of our files are in it."""
        return [
            *("mmdebstrap", "--quiet", "--mode=root", "--variant=minbase", "--format=tar"),
            *('--aptopt=Acquire::Languages "none"', "--skip=cleanup/apt/lists", f"--include={','.join(self.packages)}"),
            f"--essential-hook={NO_DEVICE_YET}",
            f'--customize-hook=chroot "$1" sh -ec {shlex.quote(image.ACCOUNT)}',
            *(self.base.suite, str(target), *self.base.lines()),
        ]


def build(distribution: str = "debian12", kernel: str = "", *, rebuild: bool = False) -> Disk:
    """Return a ready disk, cached or built now. `kernel`: the only one on it, a release of the distribution's
    archive."""
    tools.require("machine")
    recipe = Recipe(distribution, sources.read(), kernel)
    file = image.cache_dir() / f"disk-{recipe.base.suite}-{recipe.key}.qcow2"
    disk = Disk(file, file.with_suffix(".vmlinuz"))
    with image.alone(file.with_suffix(".lock")):
        if rebuild or not file.exists():
            with _scratch(file) as scratch:
                _make(recipe, scratch, _packages(recipe, scratch, rebuild=rebuild))
                os.replace(scratch / "vmlinuz", disk.kernel)
                os.replace(scratch / "disk.qcow2", disk.file)
    return disk


def _packages(recipe: Recipe, scratch: Path, *, rebuild: bool) -> Path:
    """Return the root file system of packages, cached separately since our additions change more often."""
    tarball = image.cache_dir() / f"disk-root-{recipe.base.suite}-{recipe.base_key}.tar"
    with image.alone(tarball.with_suffix(".lock")):
        if rebuild or not tarball.exists():
            tools.say(f"building a Debian {recipe.base.suite} root file system with mmdebstrap (about 2 minutes)")
            try:
                tools.run(recipe.command(scratch / "root.tar"), timeout=1800)
            except GpuprovError as error:
                if recipe.kernel and f"linux-image-{recipe.kernel}" in str(error):
                    raise GpuprovError(
                        f"kernel is {recipe.kernel}, which this distribution's archive has not", fix=NEWEST
                    ) from error
                raise
            os.replace(scratch / "root.tar", tarball)
    return tarball


def _make(recipe: Recipe, scratch: Path, tarball: Path) -> None:
    tree, raw = scratch / "tree", scratch / "disk.raw"
    tools.say(f"making the disk of a Debian {recipe.base.suite} machine (about 1 minute)")
    tree.mkdir()
    tools.run(["tar", "-C", str(tree), "--xattrs", "--numeric-owner", "-xpf", str(tarball)])
    for path, file in disk_files.files().items():
        place = tree / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.unlink(missing_ok=True)
        place.write_bytes(_content(file.content))
        place.chmod(file.mode)
    tools.run(["chroot", str(tree), "sh", "-e"], stdin=disk_files.PREPARE)
    for name in ("vmlinuz", "initrd.img"):
        shutil.copy(tree / "boot" / (tree / name).readlink().name, scratch / name)
    _partition(raw)
    (tree / "boot").rename(scratch / "boot")
    (tree / "boot").mkdir(mode=0o755)
    for (label, offset, size), content in zip(LAYOUT, (scratch / "boot", tree), strict=True):
        tools.run(
            [
                *("/sbin/mke2fs", "-q", "-F", "-t", "ext4", "-O", FEATURES, "-L", label, "-d", str(content)),
                *("-E", f"offset={offset},lazy_itable_init=1,lazy_journal_init=1", str(raw), f"{size // 1024}k"),
            ]
        )
    _finish(scratch, raw)
    tools.run(["qemu-img", "convert", "-f", "raw", "-O", "qcow2", str(raw), str(scratch / "disk.qcow2")])


def _partition(raw: Path) -> None:
    """Make a disk with an MBR partition table; GRUB lives in the gap before the first partition."""
    with raw.open("wb") as file:
        file.truncate(LAYOUT[-1][1] + LAYOUT[-1][2])
        file.seek(446)
        for number, (_, offset, size) in enumerate(LAYOUT):
            active, linux, no_chs = (0x80 if number == 0 else 0), 0x83, b"\xfe\xff\xff"
            file.write(struct.pack("<B3sB3sII", active, no_chs, linux, no_chs, offset // 512, size // 512))
        file.seek(510)
        file.write(b"\x55\xaa")


def _finish(scratch: Path, raw: Path) -> None:
    """Boot it once without GRUB, so that GRUB is installed from the machine itself."""
    tools.say("finishing the disk in its first boot (about 1 minute)")
    console = scratch / "console.log"
    words = f"root=LABEL={disk_files.ROOT_LABEL} ro console={disk_files.CONSOLE} init={PROGRAMS}/finish"
    tools.run(
        [
            *qemu.program(qemu.accelerator(scratch / "vmlinuz"), cpus=2, memory=1024, console=console),
            *qemu.drive(raw, "raw"),
            *(
                "-kernel",
                str(scratch / "vmlinuz"),
                "-initrd",
                str(scratch / "initrd.img"),
                "-append",
                words,
                "-no-reboot",
            ),
        ],
        timeout=PATIENCE,
    )
    output = console.read_text(encoding="utf-8", errors="replace")
    if disk_files.DONE not in output:
        raise GpuprovError(f"the first boot of a new disk failed:\n{qemu.tail(output)}")


def _hash(parts: list[str]) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def _content(content: bytes | Path) -> bytes:
    return content.read_bytes() if isinstance(content, Path) else content


@contextmanager
def _scratch(file: Path) -> Iterator[Path]:
    folder = file.with_name(f".{file.stem}.{os.getpid()}")
    try:
        folder.mkdir()
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
