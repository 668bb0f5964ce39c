"""What GRUB itself does with the files of a counted boot: GRUB 2.06 run as a program (Debian's grub-emu), on a disk of
its own.

GRUB's own default is chosen as Debian's 00_header does it. tests/e2e/test_first_boot.py boots a machine."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from gpuprov.host_code import first_boot_grub
from gpuprov.host_code.first_boot_grub import VARIABLE
from gpuprov.host_code.first_boot_tools import BACK, FIRST, ONCE

pytestmark = [
    pytest.mark.install,
    pytest.mark.skipif(not shutil.which("grub-emu"), reason="needs GRUB as a program: apt-get install grub-emu"),
]
HEADER = """load_env
if [ "${next_entry}" ] ; then
   set default="${next_entry}"
   set next_entry=
   save_env next_entry
   set boot_once=true
else
   set default="${saved_entry}"
fi
menuentry 'Debian' --id simple { true }
"""
END = """
function words { echo "RESULT default=$default words=$# first=$gpuprov_first boot=$gpuprov_boot END"; }
words /vmlinuz ro $gpuprov_first
exit
"""
"""`words`: as `linux` gets them from a line of the menu, to which the file in /etc/default/grub.d adds the variable."""


class Grub:
    """A disk with GRUB's files; each call of `boot` is one start of GRUB, up to the end of its configuration."""

    def __init__(self, folder: Path, *environment: str, entry: bool = True) -> None:
        self.folder, tree = folder, folder / "boot/grub"
        (tree / "gpuprov").mkdir(parents=True)
        subprocess.run(["grub-editenv", tree / "grubenv", "create"], check=True)
        subprocess.run(["grub-editenv", tree / "grubenv", "set", "saved_entry=simple", *environment], check=True)
        hook = subprocess.run(
            ["sh", "-c", first_boot_grub.HOOK_TEXT], capture_output=True, text=True, check=True
        ).stdout
        (tree / "grub.cfg").write_text(HEADER + hook + END)
        told = first_boot_grub.ENTRY_TEXT.format(
            run="r1", kernel="6.1", variable=VARIABLE, once=ONCE, back=BACK, first=" ".join(FIRST), words="'ro' 'quiet'"
        )
        if entry:
            (tree / "gpuprov/boot.cfg").write_text(told)
            subprocess.run(["grub-script-check", tree / "gpuprov/boot.cfg"], check=True)
        self.disk = folder / "disk"
        subprocess.run(["mke2fs", "-q", "-t", "ext2", "-d", folder, self.disk, "8M"], check=True)
        (folder / "map").write_text(f"(hd0) {self.disk}\n")

    def boot(self) -> str:
        ran = subprocess.run(
            ["grub-emu", "-m", self.folder / "map", "-r", "hd0", "-d", "/boot/grub"],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=True,
            env={**os.environ, "TERM": "vt100"},
        )  # fmt: skip
        found = re.search("RESULT (.*) END", ran.stdout)
        assert found, ran.stdout + ran.stderr
        return found[1]


def test_the_new_state_starts_once_and_then_what_was_kept(tmp_path: Path) -> None:
    grub = Grub(tmp_path, f"{VARIABLE}={ONCE}")
    assert grub.boot() == "default=simple words=4 first=gpuprov.first panic=30 boot=back"
    assert grub.boot() == "default=gpuprov-kept words=2 first= boot=back", "nobody called the first boot a good one"
    assert grub.boot() == "default=gpuprov-kept words=2 first= boot=back"


def test_the_sites_default_starts_where_no_boot_is_counted(tmp_path: Path) -> None:
    assert Grub(tmp_path).boot() == "default=simple words=2 first= boot="


def test_without_the_files_of_gpuprov_the_sites_default_starts(tmp_path: Path) -> None:
    assert Grub(tmp_path, f"{VARIABLE}={BACK}", entry=False).boot() == "default=simple words=2 first= boot=back"


def test_the_words_come_into_the_menu_as_a_variable() -> None:
    """The file is read by a shell, as update-grub does; what GRUB is to fill in must come through."""
    script = f"GRUB_CMDLINE_LINUX='console=ttyS0'\n{first_boot_grub.WORDS_TEXT}printf %s \"$GRUB_CMDLINE_LINUX\""
    ran = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True)
    assert ran.stdout == "console=ttyS0 $gpuprov_first"


def test_grub_reboot_has_its_way(tmp_path: Path) -> None:
    grub = Grub(tmp_path, f"{VARIABLE}={BACK}", "next_entry=other")
    assert grub.boot() == "default=other words=2 first= boot=back"
    assert grub.boot() == "default=gpuprov-kept words=2 first= boot=back"
