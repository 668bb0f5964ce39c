"""The program that loads the eRDMA driver and sets the MTU, run on trees of files; the installer's archive, judged."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

from gpuprov import assets
from gpuprov.simulate.standins import erdma as standins_erdma
from tests.probe.erdma_tree import run, tree, write

FILES = assets.root() / "roles/rdma/files"
WANTED = "parameter compat_mode Y\nparameter default_cc -1\nmtu 8500\n"
NONE = {"find": "exit 0"}
IP = 'echo "$*" >> {0}/ip; [ "$1 $2" = "link set" ] && echo "$6" > {0}/sys/class/net/$4/mtu'


def program(root: Path, *words: str, settings: str = WANTED, **programs: str) -> subprocess.CompletedProcess[str]:
    write(root, {"etc/gpuprov/erdma.conf": f"# managed\n{settings}"})
    text = (FILES / "erdma.sh").read_text(encoding="utf-8")
    return run(
        root, text, *words, stdin=settings, **({"ip": IP.format(root), "ls": 'exec /bin/ls "$@"'} | NONE | programs)
    )


def lonely(root: Path, **more: str) -> None:
    """A tree whose module nobody holds."""
    tree(root, **more)  # type: ignore[arg-type]
    (root / "sys/module/erdma/holders/smc/x").unlink()
    (root / "sys/module/erdma/holders/smc").rmdir()


def test_the_mtu_is_set_and_read_back(tmp_path: Path) -> None:
    lonely(tmp_path)
    done = program(tmp_path, "apply")
    assert (done.returncode, done.stdout) == (0, "eth1 mtu 1500 -> 8500\n"), done.stderr
    assert (tmp_path / "ip").read_text() == "link set dev eth1 mtu 8500\n"
    assert program(tmp_path, "apply").stdout == "", "a second run changes nothing"


def test_an_mtu_that_is_not_taken(tmp_path: Path) -> None:
    lonely(tmp_path)
    done = program(tmp_path, "apply", ip="echo 'RTNETLINK answers: Invalid argument' >&2; exit 2")
    assert done.returncode == 1
    assert "erdma: eth1 stays at MTU 1500, asked for is 8500: RTNETLINK answers: Invalid argument" in done.stderr
    assert "the MTU is not as asked for: mtu eth1 1500 8500" in done.stderr


LOAD = 'echo "$*" >> {0}/loads; mkdir -p {0}/sys/module/erdma/parameters; echo Y > {0}/sys/module/erdma/parameters/compat_mode; '
LOAD += "echo -1 > {0}/sys/module/erdma/parameters/default_cc; echo ABC > {0}/sys/module/erdma/srcversion"


def test_the_wrong_mode_is_loaded_anew(tmp_path: Path) -> None:
    lonely(tmp_path, mode="N")
    done = program(tmp_path, "apply", modprobe=LOAD.format(tmp_path), rmmod=f"rm -r {tmp_path}/sys/module/erdma")
    assert done.returncode == 0, done.stderr
    assert "loaded anew for parameter compat_mode N Y" in done.stdout
    assert (tmp_path / "loads").read_text() == "erdma\n"


def test_a_driver_that_is_held_is_left_alone(tmp_path: Path) -> None:
    tree(tmp_path, mode="N")
    done = program(tmp_path, "apply", rmmod=f"touch {tmp_path}/unloaded")
    assert done.returncode == 1
    assert "read-only while it is loaded (parameter compat_mode N Y;), and it is held by: module smc" in done.stderr
    assert not (tmp_path / "unloaded").exists()


def test_a_driver_that_does_not_take_the_mode(tmp_path: Path) -> None:
    lonely(tmp_path, mode="N")
    kernels = f"mkdir -p {tmp_path}/sys/module/erdma"
    done = program(tmp_path, "apply", modprobe=kernels, rmmod=f"rm -r {tmp_path}/sys/module/erdma")
    assert done.returncode == 1
    assert "does not take parameter compat_mode none Y" in done.stderr


def test_what_cannot_be_loaded_and_what_does_not_come(tmp_path: Path) -> None:
    lonely(tmp_path)
    subprocess.run(["rm", "-r", str(tmp_path / "sys/module/erdma")], check=True)
    done = program(tmp_path, "apply", modprobe="echo 'Unknown symbol in module' >&2; exit 1")
    assert done.stderr == "erdma: the driver cannot be loaded: Unknown symbol in module\n"
    lonely_again = tmp_path / "again"
    lonely(lonely_again)
    (lonely_again / "sys/class/infiniband/erdma_0/device").unlink()
    done = program(lonely_again, "apply", "1", sleep="exit 0")
    assert "not every eRDMA function has a device with a network interface" in done.stderr
    assert "0000:00:06.0" in done.stderr


def test_usage(tmp_path: Path) -> None:
    done = program(tmp_path, "boot")
    assert (done.returncode, "usage: erdma.sh apply" in done.stderr) == (1, True)


# DKMS of Debian 12: it refuses to build what it has built, and forgets the source of what is built for no kernel any more.
DKMS = """
tree={0}/var/lib/dkms/erdma/1.0.2; built=$tree/6.1.0-47-amd64/x86_64/module/erdma.ko
case $1 in
  status) echo 'erdma/1.0.2, 6.1.0-47-amd64, x86_64: installed' ;;
  remove) rm -rf {0}/installed $tree ;;
  add) mkdir -p $tree/source ;;
  install)
    [ ! -e $built ] || exec cp $built {0}/installed
    mkdir -p $tree/build; echo 'cma.c:7: error: no MAD' >$tree/build/make.log; echo 'Error! Bad return status'; exit 10 ;;
esac
"""


def test_a_driver_that_cannot_be_built_anew_stays(tmp_path: Path) -> None:
    """Without it, the next boot has no eRDMA at all."""
    text = (FILES / "erdma_build.sh").read_text(encoding="utf-8")
    old = "var/lib/dkms/erdma/1.0.2/6.1.0-47-amd64/x86_64/module/erdma.ko"
    write(tmp_path, {old: "without MAD", "installed": "without MAD", "var/lib/dkms/erdma/1.0.2/source/x": ""})
    done = run(tmp_path, text, "6.1.0-47-amd64", dkms=DKMS.format(tmp_path), modinfo="exit 1")
    assert done.returncode == 1
    assert "kernel 6.1.0-47-amd64: Error! Bad return status\ncma.c:7: error: no MAD\n" in done.stdout, done
    assert "the driver that was there is back" in done.stdout
    assert (tmp_path / "installed").read_text() == (tmp_path / old).read_text() == "without MAD"


def unpack(*words: str) -> subprocess.CompletedProcess[str]:
    text = (FILES / "erdma_unpack.sh").read_text(encoding="utf-8")
    return subprocess.run(
        ["sh", "-c", text, "erdma_unpack.sh", *words], capture_output=True, text=True, check=False, timeout=20
    )


def test_the_archive_is_judged_before_anything_of_it_runs(tmp_path: Path) -> None:
    file, digest = standins_erdma.write(tmp_path)
    assert file.name == "erdma_installer-1.5.7.tar.gz"
    done = unpack(str(file), digest, str(tmp_path / "out"))
    assert (done.returncode, done.stdout) == (0, f"{tmp_path}/out/erdma_installer/install.sh\n"), done.stderr
    assert b"stand-in" in (tmp_path / "out/erdma_installer/install.sh").read_bytes()
    assert unpack(str(file), digest, "").returncode == 0
    done = unpack(str(file), "0" * 64, str(tmp_path / "other"))
    assert (done.returncode, done.stderr) == (1, f"its SHA-256 is {digest}, and the spec says {'0' * 64}\n")
    assert not file.exists()
    assert not (tmp_path / "other").exists()
    assert unpack(str(file), digest, "").returncode == 3


def test_an_archive_without_installer(tmp_path: Path) -> None:
    subprocess.run(["tar", "-czf", str(tmp_path / "a.tar.gz"), "-C", "/etc", "hostname"], check=True)
    digest = hashlib.sha256((tmp_path / "a.tar.gz").read_bytes()).hexdigest()
    done = unpack(str(tmp_path / "a.tar.gz"), digest, str(tmp_path / "out"))
    assert (done.returncode, done.stderr) == (1, "it has no install.sh\n")
