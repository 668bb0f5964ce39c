"""The script of the driver's role that builds modules: a package without a DKMS configuration is refused before DKMS is asked."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

FILE = Path(__file__).parents[1] / "roles" / "nvidia_driver" / "files" / "modules.sh"


@pytest.mark.parametrize(("family", "asked"), [("debian", "dpkg-query"), ("redhat", "rpm")])
def test_a_package_without_dkms_conf_is_refused(tmp_path: Path, family: str, asked: str) -> None:
    calls = tmp_path / "calls"
    for name, script in {asked: "echo /usr/share/doc/nvidia", "dkms": f"echo called >> {calls}"}.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    done = subprocess.run(
        ["sh", FILE, family, "open", "nvidia", "", "nvidia-kernel-open-dkms", "6.1.0-40-amd64"],
        env={"PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "nvidia-kernel-open-dkms has no dkms.conf" in done.stdout
    assert "install nvidia-kernel-open-dkms anew" in done.stdout
    assert done.stderr == ""
    assert not calls.exists()
