"""Boot counting, on a folder that looks like a host with GRUB: what GRUB is told, and what is made of the boot that
comes."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Sequence
from importlib import reload
from pathlib import Path
from typing import Any

import pytest

from gpuprov.facts.probes.base import Output
from gpuprov.facts.probes.kernel.boot import COMMAND_LINE
from gpuprov.host_code import (
    first_boot,
    first_boot_grub,
    first_boot_judge,
    first_boot_systemd,
    first_boot_tools,
    reasons,
)

OLD, NEW = "6.1.0-47-amd64", "6.1.0-48-amd64"
PARTS = (first_boot_tools, first_boot_grub, first_boot_systemd, first_boot_judge, first_boot)
"""In the order that they need each other."""
PROGRAMS = {"first_boot_judge": "# the program"}
LINE = f"BOOT_IMAGE=/vmlinuz-{OLD} root=UUID=1 ro quiet"


class Host:
    """A host's files below a folder, and what its programs answer. `calls`: those that changed something."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root, self.calls = root, list[str]()
        self.layers, self.system, self.container, self.running = "", "ext2", False, "running"
        self.smi, self.module, self.serves = True, "535.1 AAA", False
        self.code, self.judge = first_boot, first_boot_judge
        monkeypatch.setattr(first_boot_tools, "run", self.program)
        monkeypatch.setattr("shutil.which", lambda name: f"/usr/sbin/{name}")
        monkeypatch.setattr(reasons, "FOLDER", f"{root}/run/reasons")
        monkeypatch.setattr("os.sync", lambda: None)
        monkeypatch.setattr("time.sleep", lambda _: None)
        monkeypatch.setattr(self.judge, "PATIENCE", 0.05)
        self.write("/boot/grub/grub.cfg", "menu")
        self.write("/boot/grub/grubenv", "")
        self.write("/proc/uptime", "100.0 1.0")
        self.write("/proc/sys/kernel/osrelease", OLD)
        self.write("/proc/sys/kernel/panic", "0")
        self.write("/sys/module/nvidia/version", "535.1")
        self.write("/sys/module/nvidia/srcversion", "AAA")
        self.boots("first", LINE)
        for name in ("vmlinuz", "initrd.img"):
            self.write(f"/boot/{name}-{OLD}", f"{name} as it was")
            os.utime(root / f"boot/{name}-{OLD}", (1, 1))

    def boots(self, boot_id: str, line: str) -> None:
        self.write("/proc/sys/kernel/random/boot_id", boot_id)
        self.write("/proc/cmdline", line)

    def write(self, path: str, text: str) -> None:
        place = self.root / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)

    def read(self, path: str) -> str:
        return (self.root / path.lstrip("/")).read_text()

    @property
    def counted(self) -> str:
        return self.read("/boot/grub/grubenv").strip().removeprefix("gpuprov_boot=")

    @property
    def state(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.read("/var/lib/gpuprov/first_boot.json"))
        return found

    def program(self, words: Sequence[str], limit: float = 0) -> subprocess.CompletedProcess[str]:
        assert limit >= 0
        answer, status = "", 0
        match list(words):
            case ["systemd-detect-virt", *_]:
                status = int(not self.container)
            case ["grub-probe", "--target=abstraction", _]:
                answer = self.layers
            case ["grub-probe", *_]:
                answer = self.system
            case ["grub-editenv", _, "list"]:
                there = (self.root / "boot/grub/grubenv").exists()
                answer, status = (self.read("/boot/grub/grubenv"), 0) if there else ("", 1)
            case ["grub-editenv", _, "set", pair]:
                self.write("/boot/grub/grubenv", f"{pair}\n")
            case ["grub-editenv", _, "unset", _]:
                self.write("/boot/grub/grubenv", "")
            case ["modinfo", _, _, "-F", field, "nvidia"]:
                answer = self.module.split()[field == "srcversion"]
            case ["systemctl", "is-system-running"]:
                answer = self.running
            case ["systemctl", "is-active", *_, unit]:
                status = 0 if unit == "default.target" and self.serves else 3
            case ["nvidia-smi", "-L"]:
                status = int(not self.smi)
            case ["update-grub"]:
                self.calls.append("update-grub")
                self.write("/boot/grub/grub.cfg", "source $prefix/gpuprov/boot.cfg")
            case _:
                self.calls.append(" ".join(words))
        return subprocess.CompletedProcess(words, status, answer, "")

    def changed(self, *, driver: str = "535.1 AAA", kernel: str = "") -> None:
        """What an apply does until its reboot."""
        assert self.code.keep("r1") == ""
        self.write(f"/boot/initrd.img-{OLD}", "made anew")
        self.module = driver
        if kernel:
            self.write(f"/boot/vmlinuz-{kernel}", "new")
        assert self.code.count(PROGRAMS, "/usr/bin/python3") == ""


def readonly(*_: object) -> None:
    raise OSError("Read-only file system")


@pytest.fixture(name="host")
def _host(tmp_path: Path) -> Iterator[Host]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GPUPROV_ROOT", str(tmp_path))
        for part in PARTS:
            reload(part)
        yield Host(tmp_path, patch)
    for part in PARTS:
        reload(part)


def test_the_program_of_earlier_versions_goes(host: Host) -> None:
    host.write("/usr/local/lib/gpuprov/first_boot_judge.py", "# alone")
    host.changed()
    assert not (host.root / "usr/local/lib/gpuprov/first_boot_judge.py").exists()
    assert (host.root / "usr/local/lib/gpuprov/first_boot/gpuprov_boot/first_boot_judge.py").exists()


def test_what_the_host_ran_by_is_kept_and_the_sites_default_stays(host: Host) -> None:
    host.changed(kernel=NEW)
    entry = host.read("/boot/grub/gpuprov/boot.cfg")
    assert host.read(f"/boot/grub/gpuprov/initrd.img-{OLD}") == "initrd.img as it was"
    assert f"linux $prefix/gpuprov/vmlinuz-{OLD} 'root=UUID=1' 'ro' 'quiet' 'gpuprov.kept'\n" in entry
    assert "BOOT_IMAGE" not in entry
    assert "blacklist" not in entry, "the driver is the one that it was"
    assert 'set gpuprov_first="gpuprov.first panic=30"' in entry
    assert host.counted == "once"
    assert host.state["tried"] == NEW
    assert not any(call.startswith("grub-set-default") for call in host.calls)
    again = host.calls.count("update-grub")
    host.code.count(PROGRAMS, "/usr/bin/python3")
    assert host.calls.count("update-grub") == again, "GRUB's menu has it once for all"


def test_a_good_first_boot_is_counted_no_more(host: Host) -> None:
    host.changed()
    host.write("/boot/grub/grubenv", "gpuprov_boot=back\n")  # as GRUB does
    host.boots("second", f"{LINE} gpuprov.first panic=30")
    host.write("/proc/sys/kernel/panic", "30")
    assert host.judge.judge() == "a good first boot"
    assert host.counted == ""
    assert host.read("/proc/sys/kernel/panic") == "0", "as the site had it"
    assert not (host.root / "boot/grub/gpuprov").exists(), "/boot has its room again"
    assert host.code.came_up() == ""
    for name in ("vmlinuz", "initrd.img"):
        os.utime(host.root / f"boot/{name}-{OLD}", (1, 1))
    assert host.code.keep("r2") == ""
    assert host.state["words"] == ["root=UUID=1", "ro", "quiet"], "what is for the first boot is not kept"


@pytest.mark.parametrize(
    ("before", "running", "now", "after"),
    [
        (("", "0"), "", "30", "0"),
        (("", "5"), "", "30", "5"),
        (("", "0"), "", "10", "10"),
        (("", "0"), " panic=10", "30", "10"),
        (("", "0"), " panic=30", "30", "30"),
        ((" panic=10", "10"), "", "30", "0"),
    ],
    ids=[
        "as it was",
        "of the kernel's build",
        "a sysctl that was applied",
        "a word that was",
        "the same word",
        "a word that went",
    ],
)
def test_what_a_panic_does_is_the_sites_again(
    host: Host, before: tuple[str, str], running: str, now: str, after: str
) -> None:
    host.boots("first", LINE + before[0])
    host.write("/proc/sys/kernel/panic", before[1])
    host.changed()
    host.write("/boot/grub/grubenv", "gpuprov_boot=back\n")
    host.boots("second", f"{LINE}{running} gpuprov.first panic=30")
    host.write("/proc/sys/kernel/panic", now)
    assert host.judge.judge() == "a good first boot"
    assert host.read("/proc/sys/kernel/panic") == after
    assert any("systemd-sysctl --prefix=/kernel/panic" in call for call in host.calls) == (now == "30")


def test_the_command_line_of_a_first_boot_is_what_the_site_has() -> None:
    line = "BOOT_IMAGE=/vmlinuz root=LABEL=a panic=10 gpuprov.first panic=30 quiet"
    assert COMMAND_LINE.parse(Output(line)) == {"BOOT_IMAGE": "/vmlinuz", "root": "LABEL=a", "panic": "10", "quiet": ""}
    assert COMMAND_LINE.parse(Output("panic=30 quiet")) == {"panic": "30", "quiet": ""}, "no first boot"
    assert COMMAND_LINE.parse(Output("gpuprov.first quiet")) == {"quiet": ""}, (
        "somebody took the other word away at the console"
    )


def test_a_host_that_is_back_says_so_and_stays_back(host: Host) -> None:
    host.changed(driver="550.1 BBB", kernel=NEW)
    assert "module_blacklist=nvidia,nvidia_uvm," in host.read("/boot/grub/gpuprov/boot.cfg"), (
        "it is another driver's now"
    )
    host.write("/boot/grub/grubenv", "gpuprov_boot=back\n")
    host.boots("third", "root=UUID=1 ro quiet gpuprov.kept module_blacklist=nvidia")
    assert "did not come up" in host.judge.judge()
    assert host.counted == "back"
    told = host.code.came_up()
    assert NEW in told
    assert "without the NVIDIA driver" in told
    assert "gpuprov rollback" in told
    assert host.code.keep("r2") == ""
    assert "without the NVIDIA driver" in host.read("/run/reasons/host"), "only a reboot brings the driver back"
    assert host.state["run"] == "r1", "what is not known to be good is not kept in the place of what is"
    host.judge.drop()
    assert host.state["run"] == "r1"


@pytest.mark.parametrize("damaged", ["", "{", "[]", '{"found": "x"}'])
def test_a_host_that_is_back_says_so_though_its_record_is_damaged(host: Host, damaged: str) -> None:
    host.changed(driver="550.1 BBB", kernel=NEW)
    host.write("/var/lib/gpuprov/first_boot.json", damaged)
    host.write("/boot/grub/grubenv", "gpuprov_boot=back\n")
    host.boots("third", "root=UUID=1 ro quiet gpuprov.kept module_blacklist=nvidia")
    assert "with the kernel that was kept" in host.code.came_up()
    assert host.code.count(PROGRAMS, "/usr/bin/python3") == "what the host ran by was not kept"
    host.boots("fourth", f"{LINE} gpuprov.first panic=30")
    assert "the next one starts what was before" in host.code.came_up().casefold()


def test_a_rollback_stays_with_the_kernel_that_works(host: Host) -> None:
    host.changed(driver="550.1 BBB", kernel=NEW)
    host.write("/boot/grub/grubenv", "gpuprov_boot=back\n")
    host.boots("third", "root=UUID=1 ro quiet gpuprov.kept module_blacklist=nvidia")
    host.write("/var/lib/gpuprov/checkpoints/target.json", "{}")
    host.module = "535.1 AAA"
    host.code.count(PROGRAMS, "/usr/bin/python3")
    assert host.counted == "back"
    assert "blacklist" not in host.read("/boot/grub/gpuprov/boot.cfg")
    host.boots("fourth", "root=UUID=1 ro quiet gpuprov.kept")
    assert host.code.came_up() == "", "that is where it was to go"
    assert (host.counted, host.state["settled"]) == ("back", True)
    assert "started as it was before" in host.judge.judge()
    (host.root / f"boot/vmlinuz-{NEW}").unlink()
    assert "is gone" in host.judge.judge()
    assert host.counted == "once", "what was never booted is tried once"


def test_a_rollback_on_the_same_kernel_starts_the_sites_default_again(host: Host) -> None:
    host.changed(driver="550.1 BBB")
    host.write("/boot/grub/grubenv", "gpuprov_boot=back\n")
    host.boots("third", "root=UUID=1 ro quiet gpuprov.kept module_blacklist=nvidia")
    host.write("/var/lib/gpuprov/checkpoints/target.json", "{}")
    host.module = "535.1 AAA"
    host.code.count(PROGRAMS, "/usr/bin/python3")
    assert host.counted == "once"


def test_a_rollback_without_a_reboot_has_the_next_boot_counted(host: Host) -> None:
    """It took back what was written: the kept state runs already."""
    host.changed()
    host.write("/boot/grub/grubenv", "gpuprov_boot=back\n")
    host.boots("third", "root=UUID=1 ro quiet gpuprov.kept")
    host.code.no_reboot()
    assert host.counted == "back", "an apply takes nothing back"
    host.write("/var/lib/gpuprov/checkpoints/target.json", "{}")
    host.code.no_reboot()
    assert host.counted == "once"
    host.write("/boot/grub/grubenv", "gpuprov_boot=back\n")
    host.boots("fourth", f"{LINE} gpuprov.first panic=30")
    assert host.judge.judge() == "a good first boot"
    assert host.counted == ""


def test_a_driver_that_answers_no_more_is_no_good_boot(host: Host) -> None:
    host.changed()
    host.write("/boot/grub/grubenv", "gpuprov_boot=back\n")
    host.boots("second", f"{LINE} gpuprov.first panic=30")
    host.smi = False
    assert "nvidia-smi" in host.judge.judge()
    assert host.counted == "back"
    assert "nvidia-smi, which answered before the reboot, does not" in host.code.came_up()
    assert not any("reboot" in call for call in host.calls), "it can be looked at: nobody reboots it"


def test_a_driver_that_was_removed_need_not_answer(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    assert host.code.keep("r1") == ""
    assert host.state["answers"]
    monkeypatch.setattr("shutil.which", lambda name: None if name == "nvidia-smi" else f"/usr/sbin/{name}")
    assert host.code.count(PROGRAMS, "/usr/bin/python3") == ""
    host.write("/boot/grub/grubenv", "gpuprov_boot=back\n")
    host.boots("second", f"{LINE} gpuprov.first panic=30")
    host.smi = False
    assert host.judge.judge() == "a good first boot"


def test_a_boot_that_does_not_end_is_ended(host: Host) -> None:
    """An emergency shell that waits for a password at a console."""
    host.changed()
    host.write("/boot/grub/grubenv", "gpuprov_boot=back\n")
    host.boots("second", f"{LINE} gpuprov.first panic=30")
    host.running = "maintenance"
    assert "maintenance" in host.judge.judge()
    assert host.counted == "back"
    assert "systemctl reboot --force" in host.calls
    host.boots("third", f"{LINE} gpuprov.kept")
    assert f"({OLD} was to start; it was not complete after 0.05 s (maintenance))" in host.code.came_up()


def test_a_host_in_service_is_judged_though_a_job_of_systemd_goes_on(host: Host) -> None:
    """cloud-init's scripts, or a mount without a time limit: users are on the host since long."""
    host.changed()
    host.write("/boot/grub/grubenv", "gpuprov_boot=back\n")
    host.boots("second", f"{LINE} gpuprov.first panic=30")
    host.running, host.serves = "starting", True
    assert host.judge.judge() == "a good first boot"
    assert host.counted == ""
    assert not any("reboot" in call for call in host.calls)


@pytest.mark.install
@pytest.mark.parametrize(
    ("cgroup", "left"),
    [
        ("0::/system.slice/slurmstepd.scope/job_1/step_0", True),
        ("0::/user.slice/user-1000.slice/session-1.scope", True),
        ("0::/system.slice/nvidia-persistenced.service", False),
        ("0::/system.slice/nvidia-dcgm.service", False),
    ],
)
def test_nobody_ends_a_boot_in_which_a_process_has_a_gpu(host: Host, cgroup: str, left: bool) -> None:
    """slurmd may have started, and given the host a job, while something else keeps the default target from being
    reached."""
    host.changed()
    host.write("/boot/grub/grubenv", "gpuprov_boot=back\n")
    host.boots("second", f"{LINE} gpuprov.first panic=30")
    host.running = "starting"
    host.write("/proc/77/cgroup", f"{cgroup}\n")
    host.write("/proc/77/comm", "python3\n")
    (host.root / "proc/77/fd").mkdir()
    (host.root / "proc/77/fd/5").symlink_to("/dev/nvidia0")
    said = host.judge.judge()
    assert ("left as it is for process 77 (python3)" in said) is left
    assert ("systemctl reboot --force" in host.calls) is not left
    assert host.counted == "back"


def test_a_boot_without_boot_and_var_is_ended_too(host: Host) -> None:
    """What does not mount may be where everything was noted; the command line says that it is a first boot."""
    host.changed()
    (host.root / "boot/grub/grubenv").unlink()
    (host.root / "var/lib/gpuprov/first_boot.json").unlink()
    host.boots("second", f"{LINE} gpuprov.first panic=30")
    host.running = "maintenance"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(first_boot_tools, "write", readonly)
        assert "maintenance" in host.judge.judge()
    assert "systemctl reboot --force" in host.calls
    unit = host.read(f"/etc/systemd/system/{host.code.UNIT}")
    assert "ConditionKernelCommandLine=|gpuprov.first\nConditionPathExists=|/var" in unit, "one of the two is enough"
    assert "ConditionPathExists=!/proc/vmcore\n" in unit, (
        "kdump has the words of the kernel that crashed, and takes its time"
    )


def test_a_later_boot_with_the_words_of_the_first_is_left_alone(host: Host) -> None:
    """kexec-tools start the next kernel with /proc/cmdline."""
    host.changed()
    host.write("/boot/grub/grubenv", "gpuprov_boot=back\n")
    host.boots("second", f"{LINE} gpuprov.first panic=30")
    assert host.judge.judge() == "a good first boot"
    host.boots("third", f"{LINE} gpuprov.first panic=30")
    host.running = "starting"
    assert host.judge.judge() == "no boot is counted"
    assert not any("reboot" in call for call in host.calls)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"container": True}, "a container has no bootloader"),
        ({"layers": "lvm"}, "GRUB cannot write to /boot, which is on lvm"),
        ({"system": "btrfs"}, "which is on btrfs"),
        ({"system": ""}, "does not know"),
    ],
)
def test_a_host_that_cannot_go_back_is_left_alone(host: Host, change: dict[str, Any], told: str) -> None:
    for name, value in change.items():
        setattr(host, name, value)
    assert told in host.code.keep("r1")
    assert host.code.count(PROGRAMS, "/usr/bin/python3") == "what the host ran by was not kept"
    assert host.calls == []
    assert host.counted == ""


def test_what_was_never_booted_is_not_kept(host: Host) -> None:
    os.utime(host.root / f"boot/initrd.img-{OLD}")
    assert "was made anew since the host was started" in host.code.keep("r1")


def test_a_second_apply_before_the_reboot_keeps_the_first_ones(host: Host) -> None:
    assert host.code.keep("r1") == ""
    host.write(f"/boot/initrd.img-{OLD}", "made anew")
    assert host.code.keep("r2") == ""
    assert host.state["run"] == "r1"
    host.judge.drop()
    assert not (host.root / "boot/grub/gpuprov").exists()


def test_a_word_that_grubs_menu_would_change_is_refused(host: Host) -> None:
    host.boots("first", f"{LINE} dyndbg='x$(reboot)'")
    assert "GRUB's menu cannot hold" in host.code.keep("r1")
