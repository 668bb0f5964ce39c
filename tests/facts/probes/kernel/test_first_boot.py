"""What a host that systemd-boot has started says of counted boots: the probe's script, and the firmware's variables as
files."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from gpuprov.facts.probes.base import Output
from gpuprov.facts.probes.kernel.first_boot import FIRST_BOOT, FirstBoot
from gpuprov.host_code.first_boot_systemd import FIRST_ENTRY, KEPT_ENTRY, VARIABLES, VENDOR

LISTING = """Boot Loader Entries:
        title: Debian GNU/Linux 12 (bookworm) (default)
           id: e849-6.1.0-48-amd64.conf
       source: /boot/efi/loader/entries/e849-6.1.0-48-amd64.conf
      version: 6.1.0-48-amd64
        linux: /e849/6.1.0-48-amd64/linux
      options: root=UUID=1 ro quiet
"""


def asked(folder: Path, variables: dict[str, str], *, line: str = "ro\n", conf: str = "", back: str = "1") -> FirstBoot:
    programs = folder / "bin"
    for place in (programs, folder / "efivars", folder / "loader"):
        place.mkdir()
    for name, value in {"LoaderInfo": "systemd-boot 252.39-1~deb12u2", **variables}.items():
        (folder / f"efivars/{name}-{VENDOR}").write_bytes(b"\7\0\0\0" + f"{value}\0".encode("utf-16-le"))
    (folder / "cmdline").write_text(line)
    (folder / "loader/loader.conf").write_text(conf)
    (folder / "listing").write_text(LISTING)
    answers = {
        "bootctl": f'[ "$1" = --print-esp-path ] && echo {folder} || cat {folder}/listing',
        "systemd-detect-virt": "exit 1",
        "systemctl": "echo 1min",
        "tail": '[ -p /dev/stdin ] && exec /usr/bin/tail "$1" "$2"',  # as with efivarfs, in which it cannot seek
    }
    for name, script in answers.items():
        (programs / name).write_text(f"#!/bin/sh\n{script}\n")
        (programs / name).chmod(0o755)
    script = FIRST_BOOT.script.replace(VARIABLES, f"{folder}/efivars").replace(
        "/etc/kernel/cmdline", f"{folder}/cmdline"
    )
    ran = subprocess.run(
        ["sh", "-c", f"PATH={programs}:$PATH\nback={back}\n{script}"], capture_output=True, text=True, check=True
    )
    assert ran.stderr == ""
    return FIRST_BOOT.parse(Output(ran.stdout))


def test_a_host_that_can(tmp_path: Path) -> None:
    assert asked(tmp_path, {}) == FirstBoot(loader="systemd-boot", watchdog=True)


@pytest.mark.parametrize(("one_shot", "counted"), [("", "back"), (FIRST_ENTRY, "once"), ("other.conf", "back")])
def test_what_is_counted(tmp_path: Path, one_shot: str, counted: str) -> None:
    found = asked(tmp_path, {"LoaderEntryDefault": KEPT_ENTRY, "LoaderEntryOneShot": one_shot})
    assert (found.counted, found.why_not) == (counted, "")


def test_a_host_that_cannot(tmp_path: Path) -> None:
    assert "/etc/kernel/cmdline" in asked(tmp_path, {}, line=" \n").why_not


def test_the_default_that_was_chosen_last(tmp_path: Path) -> None:
    assert "@saved" in asked(tmp_path, {}, conf="timeout 3\ndefault   @saved\n").why_not
