"""Scripts of the driver's role that put modules in place: built by DKMS, precompiled, or of a runfile."""

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


def script(folder: Path, name: str, content: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{content}\n")
    (folder / name).chmod(0o755)


def run(folder: Path, file: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sh", FILE.with_name(file), *arguments],
        env={"PATH": f"{folder}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )


KERNEL = "6.8.0-999-gpuprov"


@pytest.fixture
def fakes(tmp_path: Path) -> Path:
    """Programs that say of the module what stands in the file `version`, and write down what they are asked."""
    script(tmp_path, "modinfo", f"cat {tmp_path}/version 2> /dev/null || exit 1")
    script(tmp_path, "depmod", "true")
    script(tmp_path, "dpkg-query", "exit 1")
    script(tmp_path, "dpkg-reconfigure", f'echo "$*" >> {tmp_path}/calls; echo 580.95.05 > {tmp_path}/version')
    return tmp_path


def test_precompiled_modules_that_are_in_place_stay(fakes: Path) -> None:
    (fakes / "version").write_text("580.95.05\n")
    done = run(fakes, "precompiled.sh", "debian", "580.95.05", f"linux-modules-nvidia-580-server-{KERNEL}", KERNEL)
    assert (done.returncode, done.stdout) == (0, "")
    assert not (fakes / "calls").exists()


def test_precompiled_modules_are_put_in_place_by_the_package_of_the_kernel(fakes: Path) -> None:
    (fakes / "version").write_text("570.86.10\n")
    names = f"linux-modules-nvidia-580-server-6.8.0-1-generic linux-modules-nvidia-580-server-{KERNEL}"
    done = run(fakes, "precompiled.sh", "debian", "580.95.05", names, KERNEL)
    assert done.stdout == f"linked for {KERNEL}\n"
    assert (fakes / "calls").read_text() == f"linux-modules-nvidia-580-server-{KERNEL}\n"


def test_precompiled_modules_that_do_not_come_are_told(fakes: Path) -> None:
    (fakes / "version").write_text("570.86.10\n")
    script(fakes, "dpkg-reconfigure", "echo broken")
    done = run(fakes, "precompiled.sh", "debian", "580.95.05", f"linux-modules-nvidia-580-server-{KERNEL}", KERNEL)
    assert done.returncode == 1
    assert f"kernel {KERNEL}: 570.86.10 of nvidia, not 580.95.05: broken" in done.stdout


def test_a_runfile_without_its_source_is_told(fakes: Path) -> None:
    done = run(fakes, "runfile_modules.sh", "999.1.2", "open", KERNEL)
    assert done.returncode == 1
    assert "/usr/src/nvidia-999.1.2/dkms.conf is not there" in done.stdout
