"""A folder that looks like a simulated GPU host to the stand-in NVML, and NVIDIA's own Python binding to talk to it."""

from __future__ import annotations

import ctypes
import importlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gpuprov.simulate.description import convert
from gpuprov.simulate.devices import devices, table
from gpuprov.simulate.parts import nvml
from gpuprov.simulate.parts.base import CONFIGURATION

VERSION = "550.163.01"
ROOT = "GPUPROV_SIM_ROOT"
pynvml: Any = importlib.import_module("pynvml")


class Host:
    """The files of a host below `root`, and the changes that the world around NVML makes to them."""

    def __init__(self, root: Path, model: str, count: int, nvswitch: int = 0, version: str = VERSION) -> None:
        self.root = root
        described = convert({"gpu": {"model": model, "count": count}, "nvswitch": nvswitch}, "test")
        files = dict(nvml.part("host", described).files) | dict(nvml.package_files(version))
        for path, file in files.items():
            self._path(path).parent.mkdir(parents=True, exist_ok=True)
            if isinstance(file.content, Path):
                shutil.copy(file.content, self._path(path))
            else:
                self._path(path).write_bytes(file.content)
        self.write(f"{CONFIGURATION}/devices", table(devices("host", described)))
        self._path("/run/gpuprov-sim/persistence").mkdir(parents=True)
        self._path("/var/lib/gpuprov-sim").mkdir(parents=True)
        self.library = self._path(next(iter(nvml.package_files(version))))
        self.loaded(version)
        self.boot(1)

    def _path(self, path: str) -> Path:
        return self.root / path.lstrip("/")

    def write(self, path: str, content: str) -> Path:
        """Write a file of the host."""
        self._path(path).parent.mkdir(parents=True, exist_ok=True)
        self._path(path).write_text(content)
        return self._path(path)

    def remove(self, path: str) -> None:
        """Remove a file of the host."""
        self._path(path).unlink()

    def capabilities(self, gpu: int = 0) -> dict[str, str]:
        """What the driver shows of a GPU's MIG instances, by path below capabilities/gpuN/mig, and that it shows them
        from now on."""
        folder = self._path(f"/proc/driver/nvidia/capabilities/gpu{gpu}/mig")
        folder.mkdir(parents=True, exist_ok=True)
        self._path("/dev/nvidia-caps").mkdir(parents=True, exist_ok=True)
        return {str(file.relative_to(folder)): file.read_text() for file in sorted(folder.rglob("access"))}

    def nodes(self) -> set[str]:
        """The names of the device files of capabilities."""
        return {file.name for file in self._path("/dev/nvidia-caps").iterdir()}

    def loaded(self, version: str) -> None:
        """The version of the loaded kernel module."""
        line = f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {version}  Tue Apr  8 12:41:17 UTC 2025\n"
        self.write("/proc/driver/nvidia/version", line)

    def boot(self, moment: int) -> None:
        """What a boot of the host leaves; another moment is another boot."""
        file = self.write("/run/gpuprov-sim/booted", "")
        os.utime(file, (moment, moment))

    @contextmanager
    def client(self) -> Iterator[Any]:
        """NVML's Python binding, initialized on this host."""
        old = os.environ.get(ROOT)
        os.environ[ROOT] = str(self.root)
        pynvml.nvmlLib = ctypes.CDLL(str(self.library))
        pynvml._nvmlGetFunctionPointer_cache.clear()
        try:
            pynvml.nvmlInit()
            yield pynvml
            pynvml.nvmlShutdown()
        finally:
            os.environ.pop(ROOT)
            if old is not None:
                os.environ[ROOT] = old


@contextmanager
def holding(*files: Path) -> Iterator[int]:
    """A process that has these files open; its pid."""
    opened = " ".join(f"{number}<{file}" for number, file in enumerate(files, start=3))
    with subprocess.Popen(["sh", "-c", f"exec {opened}; echo; exec sleep 60"], stdout=subprocess.PIPE) as process:
        assert process.stdout
        process.stdout.readline()
        try:
            yield process.pid
        finally:
            process.kill()
