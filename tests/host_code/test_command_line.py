"""The kernel command line: every boot entry, what later kernels inherit, and what is taken out again."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from types import ModuleType

import pytest

from gpuprov.host_code import command_line

GRUBBY = """#!/bin/sh
# Stands in for grubby: removes and adds words in each entry, and in kernelopts of grub's environment.
while [ $# -gt 0 ]; do case $1 in --args) add=$2; shift ;; --remove-args) gone=$2; shift ;; esac; shift; done
for f in "$BOOT"/loader/entries/*.conf "$BOOT"/grub2/grubenv; do
  for w in $gone $add; do sed -i -E "/^(options|kernelopts=)/s/ ${w%%=*}(=[^ ]*)?( |$)/ /g" "$f"; done
  [ -z "$add" ] || sed -i -E "/^(options [^\\$]|kernelopts=)/s/ *$/ $add/" "$f"
done
"""
EL8 = "title EL 8\nlinux /vmlinuz-4.18.0-553.el8.x86_64\noptions $kernelopts $tuned_params\n"
EL9 = "title EL 9\nlinux /vmlinuz-5.14.0-570.el9.x86_64\noptions root=UUID=5f6c ro console=tty0 console=ttyS0\n"
DEFAULTS = (
    "GRUB_TIMEOUT=5\nGRUB_CMDLINE_LINUX=\"crashkernel=1G-4G:192M rd.lvm.lv=rl/root\"\nGRUB_DISTRIBUTOR='$(sed x)'\n"
)
WORDS = ["iommu=pt", "nosmt"]


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The program, on a host of its own with an EL 8 and an EL 9 entry."""
    boot = tmp_path / "boot"
    for file, text in {
        "boot/loader/entries/a.conf": EL8,
        "boot/loader/entries/b.conf": EL9,
        "boot/grub2/grubenv": "# GRUB Environment Block\nsaved_entry=a\nkernelopts=root=/dev/rl ro iommu=on quiet\n",
        "etc/default/grub": DEFAULTS,
        "etc/kernel/cmdline": "root=UUID=5f6c ro\n",
        "bin/grubby": GRUBBY,
    }.items():
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(text, encoding="utf-8")
    (tmp_path / "bin/grubby").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    monkeypatch.setenv("BOOT", str(boot))
    for name, path in {
        "BOOT": boot,
        "DEFAULTS": tmp_path / "etc/default/grub",
        "INHERITED": tmp_path / "etc/kernel/cmdline",
        "RECORD": tmp_path / "var/command_line",
    }.items():
        monkeypatch.setattr(command_line, name, str(path))
    return command_line


def checked(program: ModuleType, words: list[str]) -> list[str]:
    return [Path(line).name for line in program.check(words)]


def test_every_entry_and_what_later_kernels_inherit(program: ModuleType, tmp_path: Path) -> None:
    assert checked(program, WORDS) == ["a.conf", "b.conf", "grub", "cmdline"]
    assert program.write(WORDS) == ""
    assert checked(program, WORDS) == [], "a second run changes nothing"
    found = {Path(name).name: program.pairs(words) for name, words in program.entries().items()}
    assert all((words["iommu"], words["nosmt"]) == ("pt", "") for words in found.values())
    assert "console=tty0 console=ttyS0" in (tmp_path / "boot/loader/entries/b.conf").read_text(encoding="utf-8")
    assert (tmp_path / "etc/default/grub").read_text(encoding="utf-8") == DEFAULTS.replace(
        'root"', 'root iommu=pt nosmt"'
    )
    assert (tmp_path / "etc/kernel/cmdline").read_text(encoding="utf-8") == "root=UUID=5f6c ro iommu=pt nosmt\n"


def test_what_is_not_asked_any_more_is_taken_out(program: ModuleType, tmp_path: Path) -> None:
    program.write(WORDS)
    assert checked(program, ["iommu=pt"]) == ["a.conf", "b.conf", "grub", "cmdline"]
    assert program.write(["iommu=pt"]) == ""
    assert all("nosmt" not in words for words in [*program.entries().values(), *program.inherited().values()])
    assert program.write([]) == ""
    assert (tmp_path / "etc/default/grub").read_text(encoding="utf-8") == DEFAULTS
    assert not Path(program.RECORD).exists()
    assert checked(program, []) == []
    assert "quiet" in program.entries()[f"{tmp_path}/boot/loader/entries/a.conf"], "never ours, and never taken out"


def test_grubby_that_changes_nothing_is_an_error(program: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "bin/grubby").write_text("#!/bin/sh\necho read-only file system; exit 1\n", encoding="utf-8")
    problem = program.write(WORDS)
    assert "grubby left" in problem
    assert "b.conf" in problem
    assert "read-only file system" in problem


def test_a_run_that_was_cut_off_is_completed(program: ModuleType) -> None:
    program.write(WORDS)
    Path(program.INHERITED).write_text("root=UUID=5f6c ro\n", encoding="utf-8")
    assert checked(program, WORDS) == ["cmdline"]


def test_without_boot_loader_specification_files_the_menu_is_read(program: ModuleType, tmp_path: Path) -> None:
    """openEuler's grub.cfg has its entries inside."""
    for entry in (tmp_path / "boot/loader/entries").iterdir():
        entry.unlink()
    menu = "menuentry 'openEuler' {\n\tlinux\t/vmlinuz-5.10.0 root=/dev/mapper/root ro iommu=pt\n\tinitrd /i\n}\n"
    (tmp_path / "boot/grub2/grub.cfg").write_text(menu, encoding="utf-8")
    assert list(program.entries().values()) == [["root=/dev/mapper/root", "ro", "iommu=pt"]]


def test_a_host_with_nothing_to_say_is_left_alone(program: ModuleType) -> None:
    assert checked(program, []) == []


@pytest.mark.parametrize(
    ("line", "after"),
    [
        ('GRUB_CMDLINE_LINUX="ro crashkernel=1G"  # by the site',
         'GRUB_CMDLINE_LINUX="ro crashkernel=1G iommu=pt"  # by the site'),
        ("GRUB_CMDLINE_LINUX='ro'", "GRUB_CMDLINE_LINUX='ro iommu=pt'"),
        ("GRUB_CMDLINE_LINUX=ro", 'GRUB_CMDLINE_LINUX="ro iommu=pt"'),
        ("GRUB_CMDLINE_LINUX=", 'GRUB_CMDLINE_LINUX="iommu=pt"'),
        ('GRUB_CMDLINE_LINUX="dyndbg=\\"file x +p\\""', 'GRUB_CMDLINE_LINUX="dyndbg=\\"file x +p\\" iommu=pt"'),
        ("GRUB_TIMEOUT=5", 'GRUB_TIMEOUT=5\nGRUB_CMDLINE_LINUX="iommu=pt"'),
    ],
)  # fmt: skip
def test_a_line_of_the_site_stays_what_it_is(program: ModuleType, line: str, after: str) -> None:
    """A later kernel boots with it: without crashkernel and rd.lvm.lv it does not find its root."""
    Path(program.DEFAULTS).write_text(f"{line}\n", encoding="utf-8")
    assert program.write(["iommu=pt"]) == ""
    assert Path(program.DEFAULTS).read_text(encoding="utf-8") == f"{after}\n"
    assert subprocess.run(["sh", program.DEFAULTS], capture_output=True, check=True).stderr == b""


@pytest.mark.parametrize(
    "line", ['GRUB_CMDLINE_LINUX="ro \\\n quiet"', 'GRUB_CMDLINE_LINUX="ro"$more', 'export GRUB_CMDLINE_LINUX="ro"']
)
def test_a_line_that_cannot_be_written_anew_is_refused_before_anything_is_changed(
    program: ModuleType, tmp_path: Path, line: str
) -> None:
    Path(program.DEFAULTS).write_text(f"{line}\n", encoding="utf-8")
    for act in (program.check, program.write):
        with pytest.raises(OSError, match="write it as GRUB_CMDLINE_LINUX="):
            act(WORDS)
    assert Path(program.DEFAULTS).read_text(encoding="utf-8") == f"{line}\n"
    assert (tmp_path / "boot/loader/entries/b.conf").read_text(encoding="utf-8") == EL9
    assert checked(program, []) == [], "who asks for nothing need not fix it"


def test_without_grubby_the_menu_is_made_anew(
    program: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SUSE: grub.cfg is made of /etc/default/grub, which has its own line."""
    (tmp_path / "bin/grubby").unlink()
    for entry in (tmp_path / "boot/loader/entries").iterdir():
        entry.unlink()
    menu = tmp_path / "boot/grub2/grub.cfg"
    menu.write_text("\tlinux /boot/vmlinuz-6.4.0 root=UUID=5f6c\n", encoding="utf-8")
    made = (
        f'. {program.DEFAULTS}; printf "\\tlinux /boot/vmlinuz-6.4.0 root=UUID=5f6c %s\\n" "$GRUB_CMDLINE_LINUX" >"$2"'
    )
    (tmp_path / "bin/grub2-mkconfig").write_text(f"#!/bin/sh\n{made}\n", encoding="utf-8")
    (tmp_path / "bin/grub2-mkconfig").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    assert program.write(WORDS) == ""
    assert program.check(WORDS) == []
    (tmp_path / "bin/grub2-mkconfig").write_text("#!/bin/sh\necho disk full; exit 1\n", encoding="utf-8")
    assert program.write(["iommu=off"]) == f"grub2-mkconfig left {menu} /boot/vmlinuz-6.4.0 as it was: disk full"
