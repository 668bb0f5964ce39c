"""The program that loads the eRDMA driver and sets the MTU, run on trees of files."""

from __future__ import annotations

import subprocess
from pathlib import Path

from gpuprov.capabilities.rdma.erdma.desired import MODULES
from tests.capabilities import at_boot
from tests.facts.probes.rdma.erdma_tree import environment, here, tree, write

WANTED = "parameter compat_mode Y\nparameter default_cc -1\nmtu 8500\n"
NONE = {"find": "exit 0"}
IP = 'echo "$*" >> {0}/ip; [ "$1 $2" = "link set" ] && echo "$6" > {0}/sys/class/net/$4/mtu'


def program(root: Path, *words: str, settings: str = WANTED, **programs: str) -> subprocess.CompletedProcess[str]:
    write(root, {"etc/gpuprov/erdma.conf": f"# managed\n{settings}"})
    env = environment(root, **({"ip": IP.format(root), "ls": 'exec /bin/ls "$@"'} | NONE | programs))
    return at_boot.run(root, "rdma", MODULES, lambda text: here(root, text), *words, env=env)


def lonely(root: Path, **more: str) -> None:
    """A tree whose module nobody holds."""
    tree(root, **more)  # type: ignore[arg-type]
    (root / "sys/module/erdma/holders/smc/x").unlink()
    (root / "sys/module/erdma/holders/smc").rmdir()


def test_the_mtu_is_set_and_read_back(tmp_path: Path) -> None:
    lonely(tmp_path)
    done = program(tmp_path, "apply")
    assert (done.returncode, done.stdout) == (0, "MTU of eth1: 1500 -> 8500\n"), done.stderr
    assert (tmp_path / "ip").read_text() == "link set dev eth1 mtu 8500\n"
    assert program(tmp_path, "apply").stdout == "", "a second run changes nothing"


def test_an_mtu_that_is_not_taken(tmp_path: Path) -> None:
    lonely(tmp_path)
    done = program(tmp_path, "apply", ip="echo 'RTNETLINK answers: Invalid argument' >&2; exit 2")
    assert done.returncode == 1
    assert done.stderr == "erdma: MTU of eth1: 1500 -> 8500 (RTNETLINK answers: Invalid argument)\n"


LOAD = 'echo "$*" >> {0}/loads; mkdir -p {0}/sys/module/erdma/parameters; echo Y > {0}/sys/module/erdma/parameters/compat_mode; '
LOAD += "echo -1 > {0}/sys/module/erdma/parameters/default_cc; echo ABC > {0}/sys/module/erdma/srcversion"


def test_the_wrong_mode_is_loaded_anew(tmp_path: Path) -> None:
    lonely(tmp_path, mode="N")
    done = program(tmp_path, "apply", modprobe=LOAD.format(tmp_path), rmmod=f"rm -r {tmp_path}/sys/module/erdma")
    assert done.returncode == 0, done.stderr
    assert "loaded anew for compat_mode: N -> Y" in done.stdout
    assert (tmp_path / "loads").read_text() == "erdma\n"


def test_a_driver_that_is_held_is_left_alone(tmp_path: Path) -> None:
    tree(tmp_path, mode="N")
    done = program(tmp_path, "apply", rmmod=f"touch {tmp_path}/unloaded")
    assert done.returncode == 1
    assert "read-only while it is loaded (compat_mode: N -> Y), and it is held by: module smc" in done.stderr
    assert not (tmp_path / "unloaded").exists()


def test_a_driver_that_does_not_take_the_mode(tmp_path: Path) -> None:
    lonely(tmp_path, mode="N")
    kernels = f"mkdir -p {tmp_path}/sys/module/erdma"
    done = program(tmp_path, "apply", modprobe=kernels, rmmod=f"rm -r {tmp_path}/sys/module/erdma")
    assert done.returncode == 1
    assert "does not take compat_mode: none -> Y" in done.stderr


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
    assert (done.returncode, "usage: erdma apply" in done.stderr) == (1, True)
