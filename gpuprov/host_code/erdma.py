"""Alibaba's eRDMA driver on this host: its installer run, and the driver built by DKMS for kernels that lack it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from typing import Mapping, Sequence

from .archives import unpack
from .failed import Failed
from .files import compute_digest, peek, write

# The SHA-256 of the last installer that was run, and its mode.
RECORD = "/var/lib/gpuprov/erdma-installer"
UNPACKED = "/var/cache/gpuprov/erdma/unpacked"
DKMS = "/var/lib/dkms/erdma"
PROGRAM = "install.sh"
PATIENCE = 1800


def install(archive: str, sha256: str, mode: str, environment: Mapping[str, str]) -> None:
    """Run the installer of this archive, and record it. Raises Failed."""
    if (actual := compute_digest(archive)) != sha256:
        raise Failed(
            f"{archive} has SHA-256 {actual or 'none'}, and the spec says {sha256}; nothing was run. Fix: apply again"
        )
    script = unpack_installer(archive)
    done = _run(
        ["bash", script, "--batch"], {**environment, "DEBIAN_FRONTEND": "noninteractive"}, os.path.dirname(script)
    )
    if done.returncode:
        lines = [line.strip() for line in (done.stdout + "\n" + done.stderr).splitlines()]
        errors = [line for line in lines if re.search("error|fail|unknown", line, re.IGNORECASE)]
        raise Failed(
            f"Alibaba's installer of eRDMA failed: {errors[-1] if errors else f'status {int(done.returncode)}'}. "
            f"Fix: bash {script} --batch on the host says all; correct it and apply again"
        )
    write(RECORD, f"{sha256} {mode}\n")
    shutil.rmtree(UNPACKED)
    os.unlink(archive)


def unpack_installer(archive: str) -> str:
    """Unpack the installer into a new folder; return its program."""
    fix = "Fix: an archive of Alibaba's, erdma_installer-VERSION.tar.gz, and its sha256"
    shutil.rmtree(UNPACKED, ignore_errors=True)
    os.makedirs(UNPACKED, mode=0o700)
    try:
        unpack(archive, UNPACKED)
    except Failed as error:
        raise Failed(f"{error}. {fix}") from error
    for place in (
        UNPACKED,
        *sorted(entry.path for entry in os.scandir(UNPACKED) if entry.is_dir(follow_symlinks=False)),
    ):
        if os.path.isfile(os.path.join(place, PROGRAM)):
            return os.path.join(place, PROGRAM)
    raise Failed(f"{archive} has no {PROGRAM}. {fix}")


def build(kernels: Sequence[str], environment: Mapping[str, str]) -> None:
    """Have DKMS build and install the driver for each kernel, as always against the OFED whose tree it has. Raises
    Failed."""
    # DKMS builds no version twice: an earlier build is removed first, and restored if the new build fails.
    version = find_registered(_run(["dkms", "status"], {}).stdout)
    if not version:
        raise Failed(
            "the eRDMA driver could not be built: dkms status does not know erdma: the installer has registered "
            "nothing. Fix: an installer whose package has its sources"
        )
    with tempfile.TemporaryDirectory(prefix="gpuprov-erdma-") as aside:
        for kernel in kernels:
            _build(version, kernel, environment, os.path.join(aside, kernel))


def find_registered(status: str) -> str:
    """Return the newest version of erdma that `dkms status` lists; "" if none."""
    # `dkms status` of DKMS 3, then of DKMS 2:
    #     erdma/1.0.2, 6.1.0, x86_64: installed
    #     erdma, 0.2.37, 5.10, x86_64: installed
    devices = re.findall(r"^erdma[,/] *([^,: ]+)", status, re.MULTILINE)
    return max(devices, key=lambda version: [int(number) for number in re.findall("[0-9]+", version)], default="")


def _build(version: str, kernel: str, environment: Mapping[str, str], kept: str) -> None:
    of, built = ["-m", "erdma", "-v", version], f"{DKMS}/{version}/{kernel}"
    if os.path.isdir(built):
        shutil.copytree(built, kept, symlinks=True)
    _run(["dkms", "remove", *of, "-k", kernel], environment)
    if not os.path.exists(f"{DKMS}/{version}/source"):
        _run(["dkms", "add", *of], environment)
    done = _run(["dkms", "install", "--force", *of, "-k", kernel], environment)
    if done.returncode:
        log = [line.strip() for line in peek(f"{DKMS}/{version}/build/make.log").splitlines()[-12:]]
        back = restore_build(of, kernel, built, kept, environment)
        message = " | ".join(filter(None, (*(done.stdout + done.stderr).splitlines()[-4:], *log, back)))
        raise Failed(
            f"the eRDMA driver could not be built for kernel {kernel}: {message}. "
            "Fix: remove that kernel, or have an installer whose driver builds for it"
        )
    _run(["depmod", kernel], {})


def restore_build(of: Sequence[str], kernel: str, built: str, kept: str, environment: Mapping[str, str]) -> str:
    """Restore the earlier build; return a description if that was done."""
    if not os.path.isdir(kept):
        return ""
    shutil.rmtree(built, ignore_errors=True)
    shutil.copytree(kept, built, symlinks=True)
    done = _run(["dkms", "install", "--force", *of, "-k", kernel], environment)
    return "" if done.returncode else "the driver that was there is back"


def _run(argv: Sequence[str], environment: Mapping[str, str], folder: str = "/") -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            list(argv),
            cwd=folder,
            env={**os.environ, "LC_ALL": "C.UTF-8", **environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=PATIENCE,
            check=False,
        )
    except FileNotFoundError as error:
        return subprocess.CompletedProcess(list(argv), 127, "", f"{argv[0]} is not installed: {error.strerror}")
    except subprocess.TimeoutExpired as error:
        raise Failed(
            f"{' '.join(argv)} did not end within {PATIENCE // 60} minutes. Fix: see on the host what it waits for"
        ) from error
