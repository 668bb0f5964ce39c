"""Modules built by DKMS, signed again if another key signed them, without a rebuild; DKMS then installs them."""

from __future__ import annotations

import glob
import os
import re
import shutil
import subprocess
from typing import Sequence

from . import dkms
from .dkms import Failed

MAGIC = b"~Module signature appended~\n"
# Number of bytes between signature and MAGIC, of which the last four are the signature's length
# (https://github.com/torvalds/linux/blob/master/include/linux/module_signature.h).
HEAD = 12
# As the kernel's own scripts/Makefile.modinst compresses.
COMPRESSORS = {".zst": ["zstd", "-T0", "-q", "-c"], ".gz": ["gzip", "-n", "-c"], ".xz": ["xz", "--check=crc32", "-c"]}
BOOT = "/boot"


def sign_all(version: str, expected: str, key: str, certificate: str, kernels: Sequence[str]) -> list[str]:
    """Have every module of this driver version signed by the certificate with the expected serial number. Return
    `KERNEL: MODULE ...` for each kernel whose modules were not; raises Failed."""
    done = []
    for kernel in kernels:
        for folder in sorted(glob.glob(f"{dkms.TREE}/nvidia*/{version}/{kernel}/*/module")):
            name = folder.split("/")[-5]
            try:
                if late := sign_module(name, folder, version, kernel, expected, key, certificate):
                    done.append(f"{kernel}: {' '.join(map(os.path.basename, late))}")
            except OSError as error:
                raise Failed(f"kernel {kernel}: {error}") from error
            except Failed as error:
                raise Failed(f"kernel {kernel}: {error}") from error
    return done


def sign_module(
    name: str, folder: str, version: str, kernel: str, expected: str, key: str, certificate: str
) -> list[str]:
    files = sorted(file for file in glob.glob(f"{folder}/*.ko*") if not file.endswith(".gpuprov"))
    wrong = [file for file in files if read_serial(file) != expected]
    for file in wrong:
        sign(file, kernel, key, certificate)
    installed = glob.glob(f"{dkms.KERNELS}/{kernel}/*/**/nvidia*.ko*", recursive=True)
    names = {derive_name(file) for file in files}
    late = [path for path in installed if derive_name(path) in names and read_serial(path) != expected]
    if wrong or late:
        _run("dkms", "install", "--force", "-m", name, "-v", version, "-k", kernel)
    return wrong or late


def derive_name(file: str) -> str:
    return os.path.basename(file).partition(".ko")[0]


def _run(*argv: str) -> bytes:
    """Return the command's output. Raises Failed with its error message."""
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    if done.returncode:
        lines = (done.stderr + done.stdout).decode(errors="replace").split("\n")
        raise Failed(" ".join([" ".join(argv[:4]), *lines]).strip())
    return done.stdout


def read_serial(file: str) -> str:
    """Return the serial number of the certificate that signed a module; "" without a signature."""
    shown = _run("modinfo", "-F", "sig_key", file).decode(errors="replace").replace(":", "")
    return "".join(shown.split()).lower().lstrip("0")


def strip_signature(content: bytes) -> bytes:
    """Return the module without its signature."""
    if not content.endswith(MAGIC):
        return content
    end = len(content) - len(MAGIC)
    return content[: end - HEAD - int.from_bytes(content[end - 4 : end], "big")]


def hash_of(kernel: str) -> str:
    """Return the hash algorithm of the signatures of the kernel's own modules."""
    for file in (f"{dkms.KERNELS}/{kernel}/build/.config", f"{BOOT}/config-{kernel}"):
        if os.path.exists(file):
            with open(file, encoding="utf-8", errors="replace") as config:
                match = re.search('^CONFIG_MODULE_SIG_HASH="(.+)"', config.read(), re.MULTILINE)
            if match:
                return match[1]
    return "sha256"


def find_signer(kernel: str) -> str:
    """Return the signing program: the kernel's, or Ubuntu's, as DKMS does."""
    own_program = f"{dkms.KERNELS}/{kernel}/build/scripts/sign-file"
    program = own_program if os.access(own_program, os.X_OK) else shutil.which("kmodsign")
    if not program:
        raise Failed(f"{own_program} is not there, nor is kmodsign")
    return program


def sign(file: str, kernel: str, key: str, certificate: str) -> None:
    """Sign one module in place, keeping its compression."""
    plain, ending = os.path.splitext(file)
    pack = COMPRESSORS.get(ending)
    work = (plain if pack else file) + ".gpuprov"
    try:
        if pack:
            content = _run(*pack, "-d", file)
        else:
            with open(file, "rb") as module:
                content = module.read()
        with open(work, "wb") as module:
            module.write(strip_signature(content))
        _run(find_signer(kernel), hash_of(kernel), key, certificate, work)
        if pack:
            content = _run(*pack, work)
            with open(work, "wb") as module:
                module.write(content)
        os.chmod(work, 0o644)
        os.replace(work, file)
    finally:
        if os.path.exists(work):
            os.remove(work)
