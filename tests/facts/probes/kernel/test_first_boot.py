"""What a host that systemd-boot has started says of counted boots: the probe's script, and the firmware's variables as
files."""

from __future__ import annotations

from pathlib import Path

from gpuprov.facts.probes.kernel.first_boot import FIRST_BOOT, FirstBoot
from gpuprov.host_code.first_boot_systemd import FIRST_ENTRY, KEPT_ENTRY, VARIABLES, VENDOR
from tests.facts.probes import run_well
from tests.rows import run_each

LISTING = """Boot Loader Entries:
        title: Debian GNU/Linux 12 (bookworm) (default)
           id: e849-6.1.0-48-amd64.conf
       source: /boot/efi/loader/entries/e849-6.1.0-48-amd64.conf
      version: 6.1.0-48-amd64
        linux: /e849/6.1.0-48-amd64/linux
      options: root=UUID=1 ro quiet
"""


def asked(folder: Path, variables: dict[str, str], *, line: str = "ro\n", conf: str = "", back: str = "1") -> FirstBoot:
    for place in ("efivars", "loader"):
        (folder / place).mkdir()
    for name, value in {"LoaderInfo": "systemd-boot 252.39-1~deb12u2", **variables}.items():
        (folder / f"efivars/{name}-{VENDOR}").write_bytes(b"\7\0\0\0" + f"{value}\0".encode("utf-16-le"))
    (folder / "cmdline").write_text(line)
    (folder / "loader/loader.conf").write_text(conf)
    (folder / "listing").write_text(LISTING)
    answers = {
        "bootctl": f'[ "$1" = --print-esp-path ] && echo {folder} || cat {folder}/listing',
        "systemd-detect-virt": "exit 1",
        "systemctl": "echo RuntimeWatchdogUSec=1min",
        "tail": '[ -p /dev/stdin ] && exec /usr/bin/tail "$1" "$2"',  # as with efivarfs, in which it cannot seek
    }
    script = FIRST_BOOT.script.replace(VARIABLES, f"{folder}/efivars").replace("/etc/kernel/", f"{folder}/")
    output = run_well(f"back={back}\n{script}", folder, answers)
    assert output.error == ""
    return FIRST_BOOT.parse(output)


def test_a_host_that_can(tmp_path: Path) -> None:
    assert asked(tmp_path, {}) == FirstBoot(loader="systemd-boot", watchdog=True)


@run_each(("one_shot", "counted"), [("", "back"), (FIRST_ENTRY, "once"), ("other.conf", "back")])
def test_what_is_counted(tmp_path: Path, one_shot: str, counted: str) -> None:
    found = asked(tmp_path, {"LoaderEntryDefault": KEPT_ENTRY, "LoaderEntryOneShot": one_shot})
    assert (found.counted, found.why_not) == (counted, "")


def test_a_host_that_cannot(tmp_path: Path) -> None:
    assert "/etc/kernel/cmdline" in asked(tmp_path, {}, line=" \n").why_not


def test_the_default_that_was_chosen_last(tmp_path: Path) -> None:
    assert "@saved" in asked(tmp_path, {}, conf="timeout 3\ndefault   @saved\n").why_not
