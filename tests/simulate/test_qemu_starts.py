"""QEMU itself takes the words of a machine's devices together."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from gpuprov.simulate import qemu

pytestmark = [
    pytest.mark.install,
    pytest.mark.skipif(not shutil.which(qemu.PROGRAM), reason="QEMU is not installed: make tools"),
]


@pytest.mark.parametrize("kernel", [True, False], ids=["first boot of a disk", "boot from a disk"])
def test_a_disk_with_and_without_a_kernel_beside_it(kernel: bool, tmp_path: Path) -> None:
    disk, file = tmp_path / "disk", tmp_path / "kernel"
    disk.write_bytes(bytes(1 << 20))
    file.write_bytes(bytes(16384))  # QEMU looks at no more of it than that it is long enough
    words = [*qemu.program("tcg", cpus=1, memory=128, console=tmp_path / "console"), *qemu.drive(disk, "raw")]
    words += ["-kernel", str(file)] if kernel else []
    done = subprocess.run(
        [*words, "-S", "-monitor", "stdio"], input="quit\n", capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
