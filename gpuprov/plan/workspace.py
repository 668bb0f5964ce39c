"""A private folder for one run: the rendered project with the hosts' connection secrets; removed at the end, however it
ends."""

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from gpuprov.core import temporary
from gpuprov.core.errors import GpuprovError
from gpuprov.facts.collect.command import with_keep_alive
from gpuprov.render import render, write
from gpuprov.spec.model import HostSpec, RawHost

PREFIX = "gpuprov-run-"
# File locked (flock) by the process that owns the folder, so that folders of killed processes can be recognised.
IN_USE = "in-use"


@contextmanager
def workspace(pairs: Sequence[tuple[RawHost, HostSpec]]) -> Iterator[Path]:
    """Yield a folder of mode 0700: `project/` rendered with secrets, `control/` for ssh's sockets, `tmp/` for Ansible.

    Folders that killed runs of this user left behind are removed first.
    """
    judge_semaphores()
    remove_leftovers(place())
    try:
        folder = temporary.folder(PREFIX)
    except OSError as error:
        raise GpuprovError(str(error.strerror), "make room there, or set TMPDIR to a folder with free space") from error
    try:
        with ExitStack() as stack:
            try:
                mark = stack.enter_context((folder / f"{IN_USE}.new").open("w"))
                fcntl.flock(mark, fcntl.LOCK_EX)  # before it has its name, so that it is never there unlocked
                (folder / f"{IN_USE}.new").rename(folder / IN_USE)
                for name in ("tmp", "runner"):
                    (folder / name).mkdir(mode=0o700)
                temporary.make_sockets(folder / "control")
            except OSError as error:
                raise GpuprovError(f"{folder}: {error.strerror}", "make room there, or set TMPDIR") from error
            project = render([(with_keep_alive(raw), spec) for raw, spec in pairs], secrets=True)
            try:
                write(project, folder / "project")
            except GpuprovError as error:
                raise GpuprovError(error.message, f"make room in {folder.parent}, or set TMPDIR") from error
            yield folder
    finally:
        close_connections(folder / "control")
        temporary.remove_sockets(folder / "control")
        remove(folder)


def judge_semaphores() -> None:
    """Raise GpuprovError if this machine has no semaphores, which Ansible's processes need to work together
    (sem_overview(7))."""
    import multiprocessing

    try:
        multiprocessing.get_context("fork").Lock()
    except OSError as error:
        message = f"Ansible cannot work on this machine: no semaphores in /dev/shm: {error.strerror}"
        raise GpuprovError(message, "mount it, writable for all: mount -t tmpfs -o mode=1777 tmpfs /dev/shm") from error


def place() -> Path:
    """Return the parent folder of workspaces; /nowhere if no folder for temporary files can be written."""
    with suppress(FileNotFoundError):
        return Path(tempfile.gettempdir())
    return Path("/nowhere")


def remove_leftovers(place: Path) -> None:
    """Remove the folders of killed runs, and end their ssh masters: only this user's, and not locked by any process."""
    for folder in place.glob(f"{PREFIX}*"):
        with suppress(OSError):
            if folder.is_symlink() or folder.stat().st_uid != os.geteuid():
                continue
            with (folder / IN_USE).open() as mark:
                fcntl.flock(mark, fcntl.LOCK_EX | fcntl.LOCK_NB)
                close_connections(folder / "control")
                temporary.remove_sockets(folder / "control")
                shutil.rmtree(folder, ignore_errors=True)


def close_connections(folder: Path) -> None:
    """End the ssh masters that Ansible left open for later use."""
    folder = folder.resolve()
    sockets = [path for path in folder.iterdir() if path.is_socket()] if folder.is_dir() else []
    null = subprocess.DEVNULL
    with suppress(OSError):
        children = []
        for path in sockets:
            # ssh wants a host name even where the socket says it all.
            command = ["ssh", "-F", "none", "-O", "exit", "-o", f'ControlPath="{path}"', "any-host"]
            children.append(subprocess.Popen(command, stdin=null, stdout=null, stderr=null))
        for child in children:
            with suppress(subprocess.TimeoutExpired):
                child.wait(5)


def remove(folder: Path) -> None:
    """Remove the folder, a second time if something wrote into it meanwhile."""
    shutil.rmtree(folder, ignore_errors=True)
    if folder.exists():
        try:
            shutil.rmtree(folder)
        except OSError as error:
            fix = "remove it by hand: it holds the connection secrets of the inventory"
            raise GpuprovError(f"cannot remove {folder}: {error.strerror}", fix) from error
