"""The programs a simulated host needs on this machine, and how they are installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence

from gpuprov.errors import GpuprovError

PACKAGES: dict[str, str] = {  # program -> Debian package
    "podman": "podman",
    "runc": "runc",
    "mmdebstrap": "mmdebstrap",
    "iptables": "iptables",  # podman's netavark calls it
    "nft": "nftables",
    "ssh-keygen": "openssh-client",
}
SETUP = "run: python -m gpuprov.simulate setup (as root, on Debian)"


def say(text: str) -> None:
    """Progress goes to stderr."""
    print(text, file=sys.stderr, flush=True)


def missing() -> list[str]:
    """Debian packages whose program is not on this machine."""
    path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    return [package for program, package in PACKAGES.items() if shutil.which(program, path=path) is None]


def require() -> None:
    """Raise unless this machine can run simulated hosts."""
    if os.geteuid() != 0:
        raise GpuprovError("simulated hosts need root: systemd in a privileged container", hint="run it with sudo")
    if absent := missing():
        raise GpuprovError(f"not installed: {' '.join(absent)}", hint=SETUP)


def setup() -> None:
    """Install what is missing, with apt-get."""
    absent = missing()
    if not absent:
        say("all programs that simulated hosts need are installed")
        return
    if os.geteuid() != 0:
        raise GpuprovError(f"not installed: {' '.join(absent)}; installing them needs root", hint="run it with sudo")
    if shutil.which("apt-get") is None:
        raise GpuprovError(f"not installed: {' '.join(absent)}; no apt-get here", hint="install them by hand")
    say(f"installing {' '.join(absent)}")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (
        ["apt-get", "update", "-qq"],
        ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *absent],
    ):
        run(command, environment=environment)


def run(command: Sequence[str], *, stdin: str | None = None, environment: dict[str, str] | None = None,
        timeout: float = 900) -> str:  # fmt: skip
    """Standard output of a command; a failure becomes one clear line."""
    try:
        done = subprocess.run(command, input=stdin, env=environment, timeout=timeout, text=True, capture_output=True,
                              check=False, stdin=None if stdin is not None else subprocess.DEVNULL)  # fmt: skip
    except FileNotFoundError:
        raise GpuprovError(f"{command[0]}: not installed", hint=SETUP) from None
    except subprocess.TimeoutExpired:
        raise GpuprovError(f"{' '.join(command[:4])}: still running after {timeout:g} s") from None
    if done.returncode != 0:
        lines = (done.stderr or done.stdout).strip().splitlines()
        said = next((line for line in lines if line.startswith(("E: ", "Error"))), lines[-1] if lines else "no message")
        raise GpuprovError(f"{' '.join(command[:4])} failed (exit status {done.returncode}): {said}")
    return done.stdout
