"""The image as a place to work in: a chroot with file systems of its own, in namespaces that end with the run.

What is mounted exists in a private mount namespace alone, and every process started in the image is in a PID namespace
whose end is theirs, so nothing has to be undone, even after a kill. The image sees the hardware that its spec names in
place of the building machine's, and sees no process of that machine.
"""

import os
import stat
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from gpuprov.core import chroot
from gpuprov.core.errors import GpuprovError

# Environment variable of the process that runs in the namespaces.
INSIDE = "GPUPROV_BAKE_INSIDE"
# Folders that an image has, and that are not links: something is mounted or written there.
FOLDERS = ("proc", "sys", "dev", "run", "etc", "var", "usr")
NEEDED = ("etc/os-release", "bin/sh", "usr/bin/env")
# https://www.kernel.org/doc/html/latest/admin-guide/devices.html
NODES = {"null": (1, 3), "zero": (1, 5), "full": (1, 7), "random": (1, 8), "urandom": (1, 9), "tty": (5, 0)}
LINKS = {"fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2", "ptmx": "pts/ptmx"}
SHIMS = Path(__file__).parent / "image_files"
RESOLVER = "/etc/resolv.conf"
# As many links as Linux follows: path_resolution(7).
MOST_LINKS = 40


def check(root: Path) -> Path:
    """Return the image's folder, resolved; it may be this machine's own root. Raises GpuprovError if it is none."""
    resolved = root.resolve()
    if not resolved.is_dir():
        raise GpuprovError(
            f"--root {root} is not a folder", "make the image's files first, e.g. debootstrap bookworm DIR"
        )
    for name in FOLDERS:
        if (resolved / name).is_symlink() or not (resolved / name).is_dir():
            raise GpuprovError(
                f"{resolved / name} is not a folder, as an image has", "name the folder that holds /usr and /etc"
            )
    for name in NEEDED:
        if not inside(resolved, name).exists():
            raise GpuprovError(f"{resolved} has no /{name}", "name the folder of an image of a Linux distribution")
    return resolved


def enter() -> None:
    """Start this command again in namespaces of its own, unless it runs in them. Raises GpuprovError without root."""
    if os.environ.get(INSIDE) and os.getpid() == 1:
        return
    if os.geteuid() != 0:
        raise GpuprovError(
            "gpuprov bake mounts file systems and enters a chroot, which only root may", "run it with sudo"
        )
    words = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--propagation", "private", "--"]
    try:
        os.execvpe(
            words[0], [*words, sys.executable, "-P", "-m", "gpuprov", *sys.argv[1:]], {**os.environ, INSIDE: "1"}
        )
    except OSError as error:
        raise GpuprovError(f"unshare cannot be started: {error.strerror}", "install util-linux") from error


def mount(root: Path, hardware: Mapping[str, bytes | str], disks: Mapping[str, int | str]) -> None:
    """Give the image its file systems. hardware: files below /sys, and links as text. disks: numbers of block devices,
    and links to them, by path below /dev."""
    run_mount("-t", "proc", "-o", "nosuid,nodev,noexec", "proc", root / "proc")
    run_mount("-t", "tmpfs", "-o", "mode=0755,nosuid,nodev", "tmpfs", root / "run")
    own = root / chroot.PLACE.lstrip("/")
    for name in ("bin", "ansible"):
        (own / name).mkdir(parents=True, mode=0o755)
    for shim in SHIMS.iterdir():
        if shim.is_file():
            (own / "bin" / shim.name).write_bytes(shim.read_bytes())
            (own / "bin" / shim.name).chmod(0o755)
    (root / "run" / "lock").mkdir(mode=0o1777)
    _hide_proc(root, own)
    _hide_sys(root / "sys", hardware)
    _make_dev(root / "dev", disks)
    _mount_resolver(root)


def _hide_proc(root: Path, own: Path) -> None:
    """Hide what /proc tells of the building machine's kernel, and protect its settings."""
    proc = root / "proc"
    texts = {"modules": "", "cmdline": "ro\n"}
    if _find_init(root) == "systemd":
        texts["1/comm"] = "systemd\n"
    for name, text in texts.items():
        if not (proc / name).exists():
            continue  # a kernel without loadable modules has no list of them
        (made := own / name.replace("/", "-")).write_text(text, encoding="utf-8")
        run_mount("--bind", made, proc / name)
    if (proc / "driver").is_dir():
        run_mount("-t", "tmpfs", "-o", "mode=0755,ro", "tmpfs", proc / "driver")
    run_mount("--bind", proc / "sys", proc / "sys")
    run_mount("-o", "remount,bind,ro", proc / "sys")


def _find_init(root: Path) -> str:
    """Return the name of the program that the image starts first."""
    for name in ("sbin/init", "usr/sbin/init"):
        path = root / name
        if path.is_symlink():
            return os.path.basename(os.readlink(path))
        if path.exists():
            return path.name
    return ""


def _hide_sys(place: Path, hardware: Mapping[str, bytes | str]) -> None:
    run_mount("-t", "tmpfs", "-o", "mode=0755,nosuid,nodev,noexec", "tmpfs", place)
    for name in ("bus/pci/devices", "bus/pci/drivers", "class/net", "class/infiniband", "module", "kernel", "firmware"):
        (place / name).mkdir(parents=True, exist_ok=True)
    for name, content in hardware.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, str):
            (place / name).symlink_to(content)
        else:
            (place / name).write_bytes(content)
    run_mount("-o", "remount,ro", place)


def _make_dev(place: Path, disks: Mapping[str, int | str]) -> None:
    run_mount("-t", "tmpfs", "-o", "mode=0755,nosuid", "tmpfs", place)
    umask = os.umask(0)
    try:
        for name, (major, minor) in NODES.items():
            os.mknod(place / name, 0o666 | stat.S_IFCHR, os.makedev(major, minor))
        (place / "shm").mkdir(mode=0o1777)
        (place / "pts").mkdir(mode=0o755)
        for path, disk in disks.items():
            node = place / path.removeprefix("/dev/")
            node.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            if isinstance(disk, str):
                node.symlink_to(disk)
            else:
                os.mknod(node, 0o600 | stat.S_IFBLK, disk)
    finally:
        os.umask(umask)
    run_mount("-t", "devpts", "-o", "newinstance,ptmxmode=0666,mode=0620,gid=5", "devpts", place / "pts")
    for name, to in LINKS.items():
        (place / name).symlink_to(to)


def _mount_resolver(root: Path) -> None:
    """Have names resolved in the image as on this machine, where its /etc/resolv.conf is a file, or a link into
    /run."""
    path, own = root / RESOLVER.lstrip("/"), Path(RESOLVER)
    if not own.is_file():
        return
    if path.is_symlink():
        to = os.path.normpath(os.path.join("/etc", os.readlink(path)))
        if to.startswith("/run/"):
            target = root / to.lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(own.read_bytes())
    elif path.is_file():
        run_mount("--bind", own.resolve(), path)


def run_mount(*words: str | Path) -> None:
    """Run mount. Raises GpuprovError if it fails."""
    done = subprocess.run(["mount", *map(str, words)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise GpuprovError(
            f"mount {' '.join(map(str, words))}: {' '.join(done.stderr.split())}",
            "bake where file systems may be mounted: as root, in a container with CAP_SYS_ADMIN",
        )


def unmount(place: Path) -> None:
    """Take a file system, and all that is mounted below it, out of this mount namespace."""
    subprocess.run(["umount", "--lazy", "--recursive", str(place)], capture_output=True, check=False)


def run(root: Path, script: str, data: bytes | None = None) -> str:
    """Run a script in the image, and return what it printed. data: its standard input. Raises GpuprovError if it
    fails."""
    done = subprocess.run(
        chroot.command(str(root), "/bin/sh", "-euc", script), input=data or b"", capture_output=True, check=False
    )
    if done.returncode:
        message = " ".join(done.stderr.decode(errors="replace").split())[-300:]
        raise GpuprovError(
            f"a program in the image failed: {message or f'it ended with {done.returncode}'}", "see the image"
        )
    return done.stdout.decode(errors="replace")


def inside(root: Path, path: str) -> Path:
    """Return where a file of the image lies on this machine, with the image's links followed in it. Raises GpuprovError
    for a loop."""
    resolved, rest, steps = root, path.strip("/").split("/"), 0
    while rest:
        name = rest.pop(0)
        if name == "..":
            resolved = resolved if resolved == root else resolved.parent
        elif (resolved / name).is_symlink():
            target = os.readlink(resolved / name)
            resolved = root if target.startswith("/") else resolved
            rest, steps = [*filter(None, target.split("/")), *rest], steps + 1
            if steps > MOST_LINKS:
                raise GpuprovError(f"{path} in the image is a loop of links", "see the image")
        elif name != ".":
            resolved /= name
    return resolved
