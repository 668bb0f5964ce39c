"""Builds the stand-in libnvidia-ml.so.1 of simulated hosts from the C sources beside the part `nvml`; cached."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from gpuprov.simulate import image, tools

SOURCES = Path(__file__).parent / "parts/nvml_files"
SONAME = "libnvidia-ml.so.1"
# Not GNU C: with it a newer glibc binds number parsers that the distribution of the simulated host may not have yet.
FLAGS = (
    *("-std=c11", "-D_POSIX_C_SOURCE=200809L", "-O2", "-fPIC", "-shared", "-fvisibility=hidden"),
    *("-Wall", "-Wextra", "-Werror", f"-Wl,-soname,{SONAME}", "-Wl,--no-undefined"),
)


def build() -> Path:
    """Return the library. Its driver version is the one in the name of the installed file."""
    made = image.cache_dir() / f"nvml-{_key()}.so"
    with image.alone(made.with_suffix(".lock")):
        if not made.exists():
            tools.say("building the stand-in NVML (about 3 s)")
            partial = made.with_name(f".{made.name}.{os.getpid()}")
            try:
                tools.run(["gcc", *FLAGS, "-o", str(partial), *map(str, sorted(SOURCES.glob("*.c")))])
                os.replace(partial, made)
            finally:
                partial.unlink(missing_ok=True)
    return made


def _key() -> str:
    digest = hashlib.sha256(" ".join(FLAGS).encode())
    for file in sorted(SOURCES.glob("*.[ch]")):
        digest.update(file.name.encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()[:16]
