"""The program that makes the scratch file system at boot, on a folder that looks like a host: disks are files of zeros,
and mdadm, mkfs, mount and wipefs are stand-ins that keep what they were told beside them. What a disk holds is never
changed."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from gpuprov.capabilities.scratch.desired import MODULES
from gpuprov.host_code.at_boot.scratch_state import ENDS, READER, parse
from tests.capabilities import at_boot
from tests.capabilities.scratch_host import ARRAY

pytestmark = pytest.mark.install  # the program is started again and again

SIZE = 4 * ENDS
LESS_TO_READ = ("\nENDS = 1 << 20\n", "\nENDS = 1 << 14\n")
"""Of a disk's ends, in whose stead a few KiB are read here: a MiB in sectors takes longer than all the rest."""
SETTINGS = (
    "# managed\nmount {0}/scratch\nfilesystem ext4\nmode 1777\ncount 0\ndisk nvme-QEMU_*\nremote Amazon "
    "Elastic Block Store\n"
)
MDADM = """echo "mdadm $*" >>{0}/log
for a; do case $a in --uuid=*) u=${{a#--uuid=}} ;; esac; done
n=9:127; m={0}/class/block/md127; mkdir -p $m; echo $n >$m/dev; echo 16384 >$m/size; mkdir -p {0}/dev/block
ln -sfn ../../devices/virtual/block/md127 {0}/sys/dev/block/9:127
[ -e {0}/dev/md127 ] || truncate -s 8388608 {0}/dev/md127
for a; do case $a in */nvme*)
  mkdir -p {0}/class/block/${{a##*/}}/holders/md127
  echo "0x1000,$u,gpu1:gpuprov-scratch,linux_raid_member" >$a.signature ;; esac; done"""
MKFS = 'echo "mkfs.ext4 $*" >>{0}/log; echo "0x438,$3,,ext4" >"$4".signature'
MOUNT = """echo "mount $*" >>{0}/log
n=$(cat {0}/class/block/${{5##*/}}/dev)
  echo "36 25 $n / $6 rw,noatime shared:1 - $2 $5 rw" >>{0}/proc/self/mountinfo"""
WIPEFS = 'f="$3".signature; [ ! -e "$f" ] || { echo "# offset,uuid,label,type"; cat "$f"; }'

SLEEP = "import subprocess, time; time.sleep = lambda seconds: subprocess.check_call(['sleep', str(seconds)])"


class Host:
    """A host's disks in a folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for folder in ("class/block", "dev/disk/by-id", "proc/self", "kept", "sys/dev/block", "scratch"):
            (root / folder).mkdir(parents=True)
        (root / "proc/self/mountinfo").write_text("25 1 259:9 / / rw - ext4 /dev/nvme9n1p1 rw\n")
        (root / "proc/swaps").write_text("Filename Type Size Used Priority\n")

    def add(self, name: str, signature: str = "", data: bytes = b"", serial: str = "") -> None:
        """A blank NVMe disk, in place of one with this name. data: at its very end."""
        block, device = self.root / "class/block" / name, self.root / "dev" / name
        (block / "device").mkdir(parents=True, exist_ok=True)
        (block / "holders").mkdir(exist_ok=True)
        number = f"259:{name[4]}"
        for path, text in (("size", SIZE // 512), ("dev", number), ("device/model", "QEMU NVMe Ctrl  "),
                           ("device/transport", "pcie"),
                           ("device/serial", serial or name)):  # fmt: skip
            (block / path).write_text(f"{text}\n")
        device.write_bytes(b"\0" * (SIZE - len(data)) + data)
        (self.root / f"dev/{name}.signature").unlink(missing_ok=True)
        if signature:
            (self.root / f"dev/{name}.signature").write_text(f"0x0,{signature}\n")
        (self.root / f"dev/disk/by-id/nvme-QEMU_{name}").unlink(missing_ok=True)
        (self.root / f"dev/disk/by-id/nvme-QEMU_{name}").symlink_to(device)
        (self.root / f"sys/dev/block/{number}").unlink(missing_ok=True)
        (self.root / f"sys/dev/block/{number}").symlink_to(f"../../devices/{name}")

    def stop(self) -> None:
        """Start the host anew with blank disks, as after a stop of an instance; the record is on the root disk."""
        self.boot()
        for name in ("nvme1n1", "nvme2n1"):
            self.add(name)
            for holder in (self.root / "class/block" / name / "holders").iterdir():
                holder.rmdir()
        (self.root / "dev/md127.signature").unlink()

    def boot(self) -> None:
        (self.root / "proc/self/mountinfo").write_text("")
        (self.root / "log").unlink(missing_ok=True)

    def run(self, *words: str, **programs: str) -> subprocess.CompletedProcess[str]:
        given = {"mdadm": MDADM, "mkfs.ext4": MKFS, "mount": MOUNT, **programs}
        commands = {name: text.format(self.root) for name, text in given.items()}
        commands = {
            "wipefs": WIPEFS,
            **commands,
            "udevadm": "true",
            "systemd-detect-virt": "exit 1",
            "restorecon": "true",
        }
        (self.root / "scratch.conf").write_text(SETTINGS.format(self.root))
        env = at_boot.stand_in(self.root / "bin", commands)
        return at_boot.run(self.root, "scratch", MODULES, self.place, *(words or ("apply", "0")), env=env, before=SLEEP)

    def place(self, text: str) -> str:
        for old, new in (
            ("/sys/class/block", "/class/block"), ("/sys/dev/block", "/sys/dev/block"), ("/proc/", "/proc/"),
            ("/var/lib/gpuprov", "/kept"), ("/etc/gpuprov", ""), ("/dev/disk", "/dev/disk"), ("/dev/nvme", "/dev/nvme"),
        ):  # fmt: skip
            text = text.replace(old, f"\v{new}")
        text = text.replace(*LESS_TO_READ)
        for old in ("d=/dev/$1", 'f"/dev/{'):
            text = text.replace(old, old.replace("/dev/", "\v/dev/"))
        return text.replace("\v", str(self.root)).replace('[ -b "$d" ]', '[ -e "$d" ]')

    @property
    def log(self) -> list[str]:
        path = self.root / "log"
        return [line.replace(str(self.root), "") for line in path.read_text().splitlines()] if path.exists() else []

    @property
    def record(self) -> dict[str, str]:
        lines = (self.root / "kept/scratch").read_text().splitlines()
        return dict(line.split() for line in lines)

    def sums(self) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in (self.root / "dev").glob("nvme*")}


@pytest.fixture(name="host")
def _host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_blank_disks_become_an_array_that_is_mounted_and_kept(host: Host) -> None:
    host.add("nvme1n1")
    host.add("nvme2n1")
    done = host.run()
    assert (done.returncode, done.stderr) == (0, "")
    made, formatted, mounted = host.log
    own = host.record
    assert made == (
        "mdadm --create /dev/md/gpuprov-scratch --run --level=0 --metadata=1.2 --name=gpuprov-scratch "
        f"--uuid={own['array']} --raid-devices=2 /dev/nvme1n1 /dev/nvme2n1"
    )
    assert formatted == f"mkfs.ext4 -q -U {own['filesystem']} /dev/md127"
    assert mounted == "mount -t ext4 -o noatime /dev/md127 /scratch"
    assert (host.root / "scratch").stat().st_mode & 0o7777 == 0o1777
    assert host.run().stdout == "", "a second run changes nothing"
    host.boot()
    assert host.run().returncode == 0
    assert host.log == [mounted], "after a reboot it is mounted, and nothing is made"
    assert host.record == own


def test_disks_that_came_back_blank_get_a_new_one(host: Host) -> None:
    host.add("nvme1n1")
    host.add("nvme2n1")
    host.run()
    before = host.record
    host.stop()
    assert host.run().returncode == 0
    assert [line.split()[0] for line in host.log] == ["mdadm", "mkfs.ext4", "mount"]
    assert host.record["array"] != before["array"]


def test_it_waits_for_disks_that_come_late(host: Host) -> None:
    """As many as its array had before: without a count, it would else make one of those that are there already."""
    host.add("nvme1n1")
    host.add("nvme2n1")
    host.run()
    host.stop()
    late = [host.root / "class/block/nvme2n1", host.root / "late"]
    late[0].rename(late[1])
    done = host.run("apply", "20", sleep="mv {0}/late {0}/class/block/nvme2n1")
    assert done.returncode == 0, done.stderr
    assert "--raid-devices=2" in host.log[0]


def test_one_disk_is_no_array(host: Host) -> None:
    host.add("nvme1n1")
    assert host.run().returncode == 0
    assert host.log == [
        f"mkfs.ext4 -q -U {host.record['filesystem']} /dev/nvme1n1",
        "mount -t ext4 -o noatime /dev/nvme1n1 /scratch",
    ]
    assert not host.run().stdout


@pytest.mark.parametrize(
    ("signature", "data", "found"),
    [
        (",,gpt", b"", "gpt"),
        ("1111-22,home,ext4", b"", 'ext4 "home" 1111-22'),
        ("a-b,kubernetes,linux_raid_member", b"", "linux_raid_member"),
        ("", b"raw database", "data without a signature"),
    ],
)
def test_a_disk_that_holds_something_is_left_alone(host: Host, signature: str, data: bytes, found: str) -> None:
    host.add("nvme1n1")
    host.add("nvme2n1", signature, data)
    before = host.sums()
    done = host.run()
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("scratch: ")
    assert found in line
    assert "nvme2n1 (4 MiB, QEMU NVMe Ctrl, nvme2n1)" in line
    assert "if nothing of it is needed any more: wipefs -a" in line
    assert (host.log, host.sums()) == ([], before)
    assert not (host.root / "kept/scratch").exists()


def test_the_array_of_another_host_is_left_alone(host: Host) -> None:
    host.add("nvme1n1")
    host.add("nvme2n1")
    host.run()
    (host.root / "kept/scratch").unlink()
    host.boot()
    assert "linux_raid_member" in host.run().stderr
    assert host.log == []


def test_what_was_begun_is_finished(host: Host) -> None:
    """A kill between the array and its file system leaves an array that is known to be gpuprov's."""
    host.add("nvme1n1")
    host.add("nvme2n1")
    done = host.run(**{"mkfs.ext4": "echo no space; exit 1"})
    assert done.returncode == 1
    assert "mkfs.ext4 -q -U" in done.stderr
    assert done.stderr.endswith(": no space\n")
    host.boot()
    assert host.run().returncode == 0
    assert [line.split()[0] for line in host.log] == ["mkfs.ext4", "mount"]


@pytest.mark.parametrize("words", [(), ("state",), ("apply", "soon")])
def test_usage(host: Host, words: tuple[str, ...]) -> None:
    done = host.run(*(words or ("",)))
    assert (done.returncode, done.stderr) == (1, "scratch: usage: scratch apply [SECONDS]\n")


def test_no_disk_is_told(host: Host) -> None:
    done = host.run()
    assert done.stderr.startswith("scratch: no NVMe disk has nvme-QEMU_*; there are: none")


SUPERBLOCK = (
    b"\xfc\x4e\x2b\xa9\x01\0\0\0"
    + b"\0" * 8
    + bytes.fromhex("407b8d224e9fed01aa2310cbf9554f3b")
    + b"gpu1:gpuprov-scratch"
)
"""The beginning of version 1.2, at 4 KiB:
https://github.com/torvalds/linux/blob/master/include/uapi/linux/raid/md_p.h"""


def test_the_real_wipefs_is_understood(host: Host) -> None:
    """A member of an array as mdadm lays it out, a swap area, and a blank disk."""
    for name in ("nvme1n1", "nvme2n1", "nvme3n1"):
        host.add(name)
    member = SUPERBLOCK.ljust(144, b"\0") + (8).to_bytes(8, "little")
    for name, place, data in (("nvme1n1", 4096, member), ("nvme2n1", 4086, b"SWAPSPACE2")):
        with (host.root / "dev" / name).open("r+b") as file:
            file.seek(place)
            file.write(data)
    state = parse(at_boot.shell(f"mount={host.root}/scratch\n{host.place(READER)}"))
    found = {disk.name: [str(signature) for signature in disk.signatures] or disk.blank for disk in state.disks}
    assert found["nvme1n1"] == [f'linux_raid_member "gpu1:gpuprov-scratch" {ARRAY}']
    assert found["nvme2n1"] is not True
    assert found["nvme3n1"] is True
