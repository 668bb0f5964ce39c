"""The programs that a simulated host needs on this machine, and their installation."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence

from gpuprov.core import terminal
from gpuprov.core.errors import GpuprovError
from gpuprov.simulate import engine_choice

COMMON: dict[str, str] = {  # program -> Debian package
    "mmdebstrap": "mmdebstrap",
    "ssh-keygen": "openssh-client",
    # what the stand-in packages of a host with GPUs, and their repositories, are made with
    "gcc": "gcc libc6-dev",
    "dpkg-deb": "dpkg",
    "apt-ftparchive": "apt-utils",
    "gpg": "gnupg",
    "rpmbuild": "rpm",
    "createrepo_c": "createrepo-c",
}
PODMAN: dict[str, str] = {
    "podman": "podman",
    "runc": "runc",
    "iptables": "iptables",  # podman's netavark calls it
    "nft": "nftables",
}
QEMU: dict[str, str] = {"qemu-system-x86_64": "qemu-system-x86", "qemu-img": "qemu-utils", "mke2fs": "e2fsprogs"}
SETUP = "run: gpuprov simulate setup (as root, on Debian)"


def say(text: str) -> None:
    """Print progress to stderr."""
    terminal.progress(text)


def packages(kind: str) -> dict[str, str]:
    """Return programs needed by hosts of this kind (`container` or `machine`): program -> Debian package."""
    if kind == "machine":
        return COMMON | QEMU
    return COMMON if engine_choice.chosen() == "docker" else COMMON | PODMAN


def missing(*kinds: str) -> list[str]:
    """Return Debian packages whose program is not on this machine."""
    programs = {program: package for kind in kinds or ("container",) for program, package in packages(kind).items()}
    return [package for program, package in programs.items() if not _is_installed(program)]


def _is_installed(program: str) -> bool:
    return shutil.which(program, path=os.environ.get("PATH", "") + engine_choice.SBIN) is not None


def require(kind: str = "container") -> None:
    """Raise unless this machine can run simulated hosts of this kind."""
    if os.geteuid() != 0:
        why = "systemd in a privileged container" if kind == "container" else "a disk is made in a chroot"
        raise GpuprovError(f"simulated hosts need root: {why}", fix="run it with sudo")
    if absent := missing(kind):
        raise GpuprovError(f"not installed: {' '.join(absent)}", fix=SETUP)
    if kind == "container":
        require_engine()


def require_engine() -> None:
    """Raise unless the container engine answers."""
    engine = engine_choice.chosen()
    if why := engine_choice.silent_because(engine):
        others = " or ".join(other for other in engine_choice.ENGINES if other != engine)
        raise GpuprovError(
            f"{engine} does not answer: {why}", fix=f"start it, or choose {others} with {engine_choice.VARIABLE}"
        )


def setup(*kinds: str) -> None:
    """Install what is missing for these kinds, with apt-get; for containers if no kind is named."""
    absent = missing(*kinds)
    if not absent:
        if "container" in (kinds or ("container",)):
            require_engine()
        say(f"all programs that simulated hosts need are installed ({', '.join(kinds or ('container',))})")
        return
    if os.geteuid() != 0:
        raise GpuprovError(f"not installed: {' '.join(absent)}; installing them needs root", fix="run it with sudo")
    if shutil.which("apt-get") is None:
        raise GpuprovError(f"not installed: {' '.join(absent)}; no apt-get here", fix="install them by hand")
    say(f"installing {' '.join(absent)}")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (
        ["apt-get", "update", "-qq"],
        ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *" ".join(absent).split()],
    ):
        run(command, environment=environment)
    engine_choice.forget()
    if "container" in (kinds or ("container",)):
        require_engine()


def run(
    command: Sequence[str], *, stdin: str | None = None, environment: dict[str, str] | None = None, timeout: float = 900
) -> str:
    """Run a command and return its standard output; a failure becomes a one-line error."""
    try:
        done = subprocess.run(
            command,
            input=stdin,
            env=environment,
            timeout=timeout,
            text=True,
            capture_output=True,
            check=False,
            stdin=None if stdin is not None else subprocess.DEVNULL,
        )
    except FileNotFoundError:
        raise GpuprovError(f"{command[0]}: not installed", fix=SETUP) from None
    except subprocess.TimeoutExpired:
        raise GpuprovError(f"{' '.join(command[:4])}: still running after {timeout:g} s") from None
    if done.returncode != 0:
        lines = (done.stderr or done.stdout).strip().splitlines()
        message = next(
            (line for line in lines if line.startswith(("E: ", "Error"))), lines[-1] if lines else "no message"
        )
        raise GpuprovError(f"{' '.join(command[:4])} failed (exit status {done.returncode}): {message}")
    return done.stdout


def feed(command: list[str], data: bytes, what: str) -> None:
    """Run a command with these bytes as its standard input; a failure becomes a one-line error."""
    done = subprocess.run(command, input=data, capture_output=True, check=False, timeout=900)
    if done.returncode != 0:
        lines = done.stderr.decode(errors="replace").strip().splitlines() or ["no message"]
        raise GpuprovError(f"{what} failed (exit status {done.returncode}): {lines[-1]}")
