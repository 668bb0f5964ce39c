"""The program that makes each initramfs anew, run on a folder that looks like /boot: whose image it makes, and whose it leaves."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
import yaml

from gpuprov import assets
from gpuprov.probe.initramfs import INITRAMFS

RELEASE = "6.1.0-47-amd64"


@pytest.fixture(name="boot")
def _boot(tmp_path: Path) -> Path:
    """Two kernels, the images of which are older than the configuration, and what is left of other images."""
    (tmp_path / "boot").mkdir()
    for name in (
        *(f"initrd.img-{RELEASE}", f"initrd.img-{RELEASE}.old-dkms", f"initrd.img-{RELEASE}.bak"),
        *("initramfs-0-rescue-5f6c.img", f"initramfs-{RELEASE}kdump.img"),
    ):
        (tmp_path / "boot" / name).write_text("image")
        os.utime(tmp_path / "boot" / name, (1, 1))
    for folder in (f"lib/modules/{RELEASE}", "etc/modprobe.d", "bin"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "bin/update-initramfs").write_text(
        f"#!/bin/sh\necho $* >>{tmp_path}/log; touch {tmp_path}/boot/initrd.img-$3\n"
    )
    (tmp_path / "bin/update-initramfs").chmod(0o755)
    return tmp_path


def run(root: Path, action: str) -> subprocess.CompletedProcess[str]:
    script = (assets.root() / "roles/kernel/files/initramfs.sh").read_text(encoding="utf-8")
    for folder in ("/boot", "/etc/modprobe.d", "/lib/modules"):
        script = script.replace(folder, f"{root}{folder}")
    env = {**os.environ, "PATH": f"{root}/bin:/usr/bin:/bin"}
    command = ["sh", "-c", script, "initramfs.sh", action]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=20, env=env)


def test_only_images_of_kernels_are_made_anew(boot: Path) -> None:
    """DKMS and update-initramfs leave copies beside them. Made anew as a kernel of that name, a copy would have no modules."""
    assert run(boot, "list").stdout == f"{boot}/boot/initrd.img-{RELEASE}\n"
    done = run(boot, "rebuild")
    assert (done.returncode, done.stderr) == (0, "")
    assert (boot / "log").read_text() == f"-u -k {RELEASE}\n"
    assert run(boot, "list").stdout == "", "a second run changes nothing"


def test_an_image_that_its_maker_leaves_is_an_error(boot: Path) -> None:
    (boot / "bin/update-initramfs").write_text("#!/bin/sh\n")
    done = run(boot, "rebuild")
    assert done.returncode == 1
    assert f"initrd.img-{RELEASE} was left as it was by update-initramfs" in done.stderr


def test_the_rebuild_for_erdma_does_not_hang_on_what_changed_just_now() -> None:
    """A handler is lost where a later role fails, and the next run finds the options written: the image would never be made."""
    tasks = yaml.safe_load((assets.root() / "roles/rdma/tasks/configure/erdma.yml").read_text(encoding="utf-8"))
    rebuild = next(
        task for task in tasks if "initramfs" in task.get("ansible.builtin.include_role", {}).get("tasks_from", "")
    )
    assert rebuild["when"] == "not ansible_check_mode"


def test_the_probe_looks_into_the_same_images(boot: Path) -> None:
    script = INITRAMFS.script
    for folder in ("/boot", "/etc/modprobe.d", "/lib/modules"):
        script = script.replace(folder, f"{boot}{folder}")
    (boot / "bin/lsinitramfs").write_text("#!/bin/sh\necho lib/modules\n")
    (boot / "bin/lsinitramfs").chmod(0o755)
    done = subprocess.run(
        ["sh", "-c", script], capture_output=True, text=True, check=True, env={"PATH": f"{boot}/bin:/usr/bin:/bin"}
    )
    assert done.stdout.split()[:2] == ["image", f"{boot}/boot/initrd.img-{RELEASE}"]
    assert done.stdout.count("image") == 1
