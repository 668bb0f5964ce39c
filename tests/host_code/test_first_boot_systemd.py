"""Boot counting with systemd-boot, on a folder that looks like such a host. What starts next is chosen as its boot.c
does it.

The format of `bootctl list` is that of https://github.com/systemd/systemd/pull/22041 and, since 255, of its own
manual's era."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from fnmatch import fnmatch
from importlib import reload
from pathlib import Path
from typing import Any

import pytest

from gpuprov.host_code import first_boot_grub, first_boot_judge, first_boot_systemd, first_boot_tools
from tests.host_code.test_first_boot import NEW, OLD, PARTS, PROGRAMS, Host
from tests.rows import run_each

ESP = "/boot/efi"
MACHINE = "e84907d099904117b355a99c98378dca"
INITRD = rf"initrd=\{MACHINE}\{OLD}\initrd.img-{OLD}"
LINE = f"{INITRD} root=UUID=1 ro quiet"
FIRST, KEPT = first_boot_systemd.FIRST_ENTRY, first_boot_systemd.KEPT_ENTRY


class Efi(Host):
    """A host that systemd-boot has started, with its ESP below /boot/efi."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(root, monkeypatch)
        self.steps = 10**6
        """How many changes are made until the run is killed."""
        self.partition = ""
        for name in ("vmlinuz", "initrd.img"):
            (root / f"boot/{name}-{OLD}").unlink()
        self.write("/etc/kernel/cmdline", "root=UUID=1 ro quiet\n")
        self.write(f"{ESP}/loader/loader.conf", "#timeout 3\n")
        self.firmware("LoaderInfo", "systemd-boot 252.39-1~deb12u2")
        self.entry(OLD)
        for path in (root / f"boot/efi/{MACHINE}/{OLD}").iterdir():
            os.utime(path, (1, 1))
        self.selected(f"{MACHINE}-{OLD}.conf", "first", LINE)
        whole = first_boot_tools.write
        monkeypatch.setattr(first_boot_tools, "write", lambda *words: self.step(lambda: whole(*words)))

    def step(self, act: Any) -> None:
        if self.steps == 0:
            raise KeyboardInterrupt
        self.steps -= 1
        act()

    def entry(self, kernel: str, content: str = "as it was", name: str = "") -> None:
        """As kernel-install of Debian 12 writes it."""
        for file in ("linux", f"initrd.img-{kernel}"):
            self.write(f"{ESP}/{MACHINE}/{kernel}/{file}", f"{file} {content}")
        self.write(
            f"{ESP}/loader/entries/{name or f'{MACHINE}-{kernel}.conf'}",
            "# Boot Loader Specification type#1 entry\ntitle      Debian GNU/Linux 12 (bookworm)\nversion    "
            f"{kernel}\n"
            f"machine-id {MACHINE}\nsort-key   debian\noptions    root=UUID=1 ro quiet\n"
            f"linux      /{MACHINE}/{kernel}/linux\ninitrd     /{MACHINE}/{kernel}/initrd.img-{kernel}\n",
        )

    def gone(self, kernel: str) -> None:
        shutil.rmtree(self.root / f"boot/efi/{MACHINE}/{kernel}")
        (self.entries / f"{MACHINE}-{kernel}.conf").unlink()

    def firmware(self, name: str, value: str) -> None:
        place = self.root / f"sys/firmware/efi/efivars/{name}-{first_boot_systemd.VENDOR}"
        place.parent.mkdir(parents=True, exist_ok=True)
        if value:
            place.write_bytes(b"\x07\0\0\0" + f"{value}\0".encode("utf-16-le"))
        else:
            place.unlink()

    def selected(self, name: str, boot_id: str, line: str) -> None:
        self.firmware("LoaderEntrySelected", name)
        self.boots(boot_id, line)

    @property
    def entries(self) -> Path:
        return self.root / "boot/efi/loader/entries"

    @property
    def ours(self) -> list[str]:
        return sorted(path.name for path in self.entries.iterdir() if path.name.startswith("_-"))

    def menu(self) -> list[str]:
        """Newest first, and those without a sort-key last; only what is there to be started."""
        known = {path.name: path.read_text() for path in self.entries.iterdir() if path.suffix == ".conf"}
        there = [
            name for name, text in known.items()
            if (self.root / f"boot/efi{text.partition(chr(10) + 'linux')[2].split()[0]}").exists()
        ]  # fmt: skip
        return sorted(sorted(there, reverse=True), key=lambda name: "sort-key" not in known[name])

    def default(self) -> str:
        values = [first_boot_systemd.variable(name) for name in ("LoaderEntryOneShot", "LoaderEntryDefault")]
        config = [
            line.split()[1]
            for line in self.read(f"{ESP}/loader/loader.conf").splitlines()
            if line.startswith("default")
        ]
        for pattern in (*values, *config):
            for name in self.menu():
                if fnmatch(name, pattern):
                    return name
        return self.menu()[0]

    def starts(self) -> str:
        """systemd-boot: the command line that it starts."""
        chosen = self.default()
        if first_boot_systemd.variable("LoaderEntryOneShot"):
            self.firmware("LoaderEntryOneShot", "")
        text = (self.entries / chosen).read_text()
        line = " ".join(row.partition(" ")[2].strip() for row in text.splitlines() if row.startswith("options"))
        initrd = next(row.split()[1] for row in text.splitlines() if row.startswith("initrd")).replace("/", "\\")
        self.selected(chosen, f"{chosen} {os.urandom(4).hex()}", f"initrd={initrd} {line}")
        return chosen

    def listing(self) -> str:
        shown = ["Boot Loader Entries:"]
        for name in self.menu():
            rows = [row.split(None, 1) for row in (self.entries / name).read_text().splitlines() if row[0] != "#"]
            keys = {key: value for key, value in rows if key != "options"}
            mark = " (default)" if name == self.default() else ""
            shown += [
                f"        title: {keys['title']}{mark}",
                f"           id: {name}",
                f"       source: {ESP}/{self.partition and '/'}loader/entries/{name}{self.partition}",
                *(f"      version: {keys['version']}" for _ in keys if _ == "version"),
                f"        linux: {keys['linux']}",
                "",
            ]
        return "\n".join(
            [*shown, "        title: Reboot Into Firmware Interface", "           id: auto-reboot-to-firmware-setup"]
        )

    def program(self, words: Sequence[str], limit: float = 0) -> subprocess.CompletedProcess[str]:
        answer = ""
        match list(words):
            case ["bootctl", "list", "--no-pager"]:
                answer = self.listing()
            case ["bootctl", "--print-esp-path"]:
                answer = ESP
            case ["bootctl", "set-oneshot", value]:
                self.step(lambda: self.firmware("LoaderEntryOneShot", value))
            case ["bootctl", "set-default", value]:
                self.step(lambda: self.firmware("LoaderEntryDefault", value))
            case ["grub-editenv" | "grub-probe" | "update-grub", *_]:
                raise AssertionError("this host has no GRUB")
            case _:
                return super().program(words, limit)
        return subprocess.CompletedProcess(words, 0, answer, "")

    @property
    def counted(self) -> str:
        return first_boot_systemd.counted()

    def changed(self, *, driver: str = "535.1 AAA", kernel: str = "") -> None:
        assert self.code.keep("r1") == ""
        self.entry(OLD, "made anew")
        self.module = driver
        if kernel:
            self.entry(kernel, "new")
        assert self.code.count(PROGRAMS, "/usr/bin/python3") == ""


@pytest.fixture(name="host")
def _host(tmp_path: Path) -> Iterator[Efi]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GPUPROV_ROOT", str(tmp_path))
        for part in PARTS:
            reload(part)
        yield Efi(tmp_path, patch)
    for part in PARTS:
        reload(part)


def test_what_the_host_ran_by_is_kept_in_an_entry_of_its_own(host: Efi) -> None:
    host.changed(kernel=NEW)
    assert (host.entries / KEPT).read_text() == (
        f"title as before run r1 of gpuprov ({OLD})\nlinux /gpuprov/vmlinuz-{OLD}\ninitrd /gpuprov/initrd-0-{OLD}\n"
        "options root=UUID=1 ro quiet gpuprov.kept\n"
    ), "without the initramfs as a word, and without a sort-key"
    assert host.read(f"{ESP}/gpuprov/initrd-0-{OLD}") == f"initrd.img-{OLD} as it was"
    assert host.read(f"{ESP}/gpuprov/vmlinuz-{OLD}") == "linux as it was"
    assert (host.counted, host.state["tried"]) == ("once", NEW)
    assert host.starts() == FIRST
    assert host.read("/proc/cmdline") == (
        rf"initrd=\{MACHINE}\{NEW}\initrd.img-{NEW} root=UUID=1 ro quiet gpuprov.first panic=30"
    ), "what the site's default is, with two words more"
    assert host.counted == "back"
    assert host.starts() == KEPT


@pytest.mark.install
@pytest.mark.parametrize("default", ["", f"{MACHINE}-{OLD}.conf", f"{MACHINE}-*"])
def test_a_good_first_boot_brings_the_sites_default_back(host: Efi, default: str) -> None:
    if default:
        host.firmware("LoaderEntryDefault", default)
    host.changed(kernel=NEW)
    assert host.starts() == FIRST
    host.write("/proc/sys/kernel/panic", "30")
    assert host.judge.judge() == "a good first boot"
    assert host.counted == ""
    assert first_boot_systemd.variable("LoaderEntryDefault") == default
    assert host.ours == []
    assert not (host.root / "boot/efi/gpuprov").exists(), "the ESP has its room again"
    assert host.code.came_up() == ""
    running = OLD if default.endswith(f"{OLD}.conf") else NEW
    host.write("/proc/sys/kernel/osrelease", running)
    for path in (host.root / f"boot/efi/{MACHINE}/{running}").iterdir():
        os.utime(path, (1, 1))
    assert host.code.keep("r2") == "", "the entry that it was started by is gone; that of its kernel is known"
    assert host.state["words"] == ["root=UUID=1", "ro", "quiet"]
    host.code.no_reboot()
    assert host.starts() == f"{MACHINE}-{running}.conf"


def test_a_host_that_is_back_says_so_and_rollback_tries_the_default_again(host: Efi) -> None:
    host.firmware("LoaderEntryDefault", f"{MACHINE}-{OLD}.conf")
    host.changed(driver="550.1 BBB")
    assert "gpuprov.kept module_blacklist=nvidia,nvidia_uvm," in (host.entries / KEPT).read_text()
    assert [host.starts(), host.starts()] == [FIRST, KEPT]
    assert "did not come up" in host.judge.judge()
    assert "systemd-boot has started it again as it was before" in host.code.came_up()
    assert host.code.keep("r2") == ""
    assert host.state["run"] == "r1", "what is not known to be good is not kept in the place of what is"
    host.write("/var/lib/gpuprov/checkpoints/target.json", "{}")
    host.module = "535.1 AAA"
    assert host.code.count(PROGRAMS, "/usr/bin/python3") == ""
    assert host.counted == "once"
    assert "blacklist" not in (host.entries / KEPT).read_text()
    assert host.starts() == FIRST
    assert host.judge.judge() == "a good first boot"
    assert first_boot_systemd.variable("LoaderEntryDefault") == f"{MACHINE}-{OLD}.conf", "as the site has it"


def test_a_rollback_stays_with_the_kernel_that_works(host: Efi) -> None:
    host.changed(driver="550.1 BBB", kernel=NEW)
    assert [host.starts(), host.starts()] == [FIRST, KEPT]
    host.write("/var/lib/gpuprov/checkpoints/target.json", "{}")
    host.module = "535.1 AAA"
    assert host.code.count(PROGRAMS, "/usr/bin/python3") == ""
    assert host.starts() == KEPT
    assert host.code.came_up() == "", "that is where it was to go"
    assert (host.counted, host.state["settled"]) == ("back", True)
    assert "started as it was before" in host.judge.judge()
    host.gone(NEW)
    assert "is gone: the next boot starts systemd-boot's own default" in host.judge.judge()
    assert host.starts() == FIRST
    assert OLD in host.read("/proc/cmdline")
    assert host.judge.judge() == "a good first boot"
    assert host.starts() == f"{MACHINE}-{OLD}.conf"


def test_a_kernel_that_went_before_its_first_boot_leaves_what_was_kept(host: Efi) -> None:
    """systemd-boot lists no entry whose kernel is not there."""
    host.changed(kernel=NEW)
    host.gone(NEW)
    assert host.starts() == KEPT


@pytest.mark.install
@pytest.mark.parametrize("default", ["", f"{MACHINE}-{OLD}.conf"])
@pytest.mark.parametrize("steps", range(12))
def test_a_run_that_is_killed_leaves_a_host_that_boots_what_the_site_has(host: Efi, steps: int, default: str) -> None:
    if default:
        host.firmware("LoaderEntryDefault", default)
    host.entry(NEW, "new")
    site = host.default()
    assert host.code.keep("r1") == ""
    host.steps = steps
    try:
        host.code.count(PROGRAMS, "/usr/bin/python3")
        assert host.counted == "once"
    except KeyboardInterrupt:
        assert host.counted == "", "the last step counts"
    host.steps = 10**6
    assert host.starts() in (site, FIRST)
    assert (OLD if default else NEW) in host.read("/proc/cmdline")
    host.judge.judge()
    assert host.counted == ""
    assert host.starts() == site
    host.judge.drop()
    assert host.ours == []
    assert first_boot_systemd.variable("LoaderEntryDefault") == default


@pytest.mark.parametrize("steps", range(3))
def test_a_judge_that_is_killed_loses_nothing_of_the_site(host: Efi, steps: int) -> None:
    host.firmware("LoaderEntryDefault", f"{MACHINE}-*")
    host.changed(kernel=NEW)
    host.starts()
    host.steps = steps
    try:
        host.judge.judge()
    except KeyboardInterrupt:
        host.steps = 10**6
        assert host.starts() == KEPT
        assert host.state["site"] == f"{MACHINE}-*"
    else:
        assert first_boot_systemd.variable("LoaderEntryDefault") == f"{MACHINE}-*"


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda host: setattr(host, "container", True), "a container has no bootloader"),
        (lambda host: (host.root / "etc/kernel/cmdline").unlink(), "the site's belongs into /etc/kernel/cmdline"),
        (lambda host: host.write(f"{ESP}/loader/loader.conf", "default @saved\n"), "default is @saved"),
        (lambda host: host.firmware("LoaderEntryDefault", "@saved"), "default is @saved"),
        (lambda host: host.gone(OLD), "bootctl lists no default entry"),
        (lambda host: os.utime(host.root / f"boot/efi/{MACHINE}/{OLD}/initrd.img-{OLD}"),
         "was made anew since the host was started"),
        (lambda host: host.boots("first", f"{LINE} a=\xe4"), "an entry cannot hold as it is: 'a=\\xe4'"),
        (lambda host: (host.selected("other.efi", "first", LINE), host.write("/proc/sys/kernel/osrelease", "5.4")),
         "bootctl lists no entry that the host was started by (other.efi)"),
    ],
    ids=["container", "no command line", "saved", "saved by a variable", "no entry", "initramfs", "odd word",
         "other entry"],
)  # fmt: skip
def test_a_host_that_cannot_go_back_is_left_alone(host: Efi, change: Any, told: str) -> None:
    if told.startswith("bootctl lists no default"):
        host.menu = list  # type: ignore[method-assign]
        host.default = lambda: ""  # type: ignore[method-assign]
    else:
        change(host)
    assert told in host.code.keep("r1")
    assert host.code.count(PROGRAMS, "/usr/bin/python3") == "what the host ran by was not kept"
    assert host.calls == []
    assert host.ours == []
    assert host.counted == ""


def test_an_esp_that_is_full_is_left_alone(host: Efi) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("shutil.disk_usage", lambda _: shutil._ntuple_diskusage(100, 90, 10))
        assert host.code.keep("r1") == f"{host.root}{ESP} has no room for a second kernel and initramfs"


def test_what_cannot_be_counted_leaves_the_sites_default(host: Efi) -> None:
    assert host.code.keep("r1") == ""
    (host.entries / f"{MACHINE}-{OLD}.conf").write_text("title x\nefi /shellx64.efi\n")
    host.listing = lambda: LISTING  # type: ignore[method-assign]
    assert "starts no Linux" in host.code.count(PROGRAMS, "/usr/bin/python3")
    shutil.rmtree(host.root / "boot/efi/gpuprov")
    assert "is not in" in host.code.count(PROGRAMS, "/usr/bin/python3")
    assert (host.counted, host.ours) == ("", [])


LISTING = f"""        title: x (default)
           id: {MACHINE}-{OLD}.conf
       source: {ESP}/loader/entries/{MACHINE}-{OLD}.conf
"""
KNOWN: dict[str, Any] = {
    "container": False,
    "info": "systemd-boot 252.39-1~deb12u2",
    "program": True,
    "writable": True,
    "saved": False,
    "line": True,
}
UNIFIED = """         type: Boot Loader Specification Type #2 (.efi)
        title: Arch Linux (rolling) (default) (selected)
           id: archlinux.efi
       source: /boot//EFI/Linux/archlinux.efi (on the EFI System Partition)
     sort-key: arch
        linux: EFI/Linux/archlinux.efi
"""
"""https://github.com/systemd/systemd/issues/22580, with the partition that bootctl names since 255."""


@run_each(
    ("change", "told"),
    [
        ({"program": False}, "bootctl is not there"),
        ({"info": "systemd-boot 249.11-0ubuntu3"}, "boots are counted since 252"),
        ({"writable": False}, "the firmware's variables cannot be written"),
        ({"listing": UNIFIED.splitlines()}, "default, archlinux.efi, is no .conf entry"),
    ],
)
def test_what_is_told_of_what_is_known(change: dict[str, Any], told: str) -> None:
    assert told in first_boot_systemd.why_not(**{**KNOWN, "listing": [], **change})


def test_entries_of_bootctl_since_255(host: Efi) -> None:
    host.partition = " (on the EFI System Partition)"
    host.changed(kernel=NEW)
    assert [host.starts(), host.starts()] == [FIRST, KEPT]


def test_an_entry_that_systemd_counts_is_found(host: Efi) -> None:
    """kernel-install's /etc/kernel/tries: systemd-boot has taken one off the name as it started it."""
    host.gone(OLD)
    host.entry(OLD, name=f"{MACHINE}-{OLD}+2-1.conf")
    for path in (host.root / f"boot/efi/{MACHINE}/{OLD}").iterdir():
        os.utime(path, (1, 1))
    host.selected(f"{MACHINE}-{OLD}+3.conf", "first", LINE)
    host.changed()
    assert [host.starts(), host.starts()] == [FIRST, KEPT]


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="needs systemd's own order of names")
@run_each(
    "other",
    [
        f"{MACHINE}-{OLD}.conf",
        f"{'0ab'}{MACHINE}.conf",
        "arch.conf",
        "debian-6.1.conf",
        "Fedora.conf",
        "a.conf",
        "1.conf",
    ],
)
def test_our_entries_are_never_the_first_of_the_menu(other: str) -> None:
    for name in (FIRST, KEPT):
        words = ["systemd-analyze", "compare-versions", name, "lt", other.lower()]
        assert subprocess.run(words, check=False).returncode == 0


def test_the_judge_runs_as_the_program_that_the_unit_starts(host: Efi) -> None:
    parts = (first_boot_judge, first_boot_tools, first_boot_grub, first_boot_systemd)
    texts = {part.__name__.rpartition(".")[2]: Path(str(part.__file__)).read_text() for part in parts}
    assert host.code.keep("r1") == ""
    assert host.code.count(texts, sys.executable) == ""
    unit = host.read(f"/etc/systemd/system/{host.code.UNIT}").splitlines()
    (start,) = (line.partition("=")[2].split() for line in unit if line.startswith("ExecStart="))
    (path,) = (line.rpartition("=")[2] for line in unit if line.startswith("Environment=PYTHONPATH="))
    ran = subprocess.run(
        start,
        env={"GPUPROV_ROOT": str(host.root), "PYTHONPATH": f"{host.root}{path}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "this is not a first boot: somebody chose the entry\n", "")
