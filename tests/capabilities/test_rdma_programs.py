"""The program that makes software devices at boot, run on folders that look like sysfs: what they do and refuse."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from gpuprov.capabilities.gpudirect_rdma import desired as gpudirect
from gpuprov.capabilities.pcie import desired as pcie
from gpuprov.capabilities.rdma import soft
from gpuprov.capabilities.rdma.erdma import desired as erdma
from gpuprov.capabilities.rdma.roce import desired as roce
from gpuprov.catalog import rdma as catalogue
from tests.capabilities import at_boot
from tests.rows import run_each

# `rdma link add NAME type TYPE netdev IF` and `rdma link delete NAME` on a folder that looks like
# /sys/class/infiniband. udev's renaming: the device is called otherwise than it was asked for.
RDMA = """case "$1 $2" in
  "link add")
    [ -e ROOT/refused ] && { cat ROOT/refused >&2; exit 1; }
    d=ROOT/class/roce_$7; mkdir -p $d
    case $5 in rxe) echo "$7" >$d/parent; echo "1: CA" >$d/node_type ;; *) echo "4: RNIC" >$d/node_type ;; esac
    echo "$7" >$d/net; : >$d/fw_ver; echo "added $7" >>ROOT/log ;;
  "link delete") rm -r ROOT/class/$3; echo "deleted $3" >>ROOT/log ;;
  "link show") for d in ROOT/class/*; do
    [ -e $d/net ] && echo "link ${d##*/}/1 state ACTIVE physical_state LINK_UP netdev $(cat $d/net) "; done ;;
esac
true"""
SLEEP = "import subprocess, time; time.sleep = lambda seconds: subprocess.check_call(['sleep', str(seconds)])"
TAKEN = """echo 'UNCONN 0 0 0.0.0.0:4791 0.0.0.0:* users:(("gunicorn",pid=612,fd=3))'"""


def host(
    root: Path, *netdevs: str, default: str = "", loaded: tuple[str, ...] = ("rdma_rxe", "rdma_ucm", "ib_uverbs")
) -> None:
    for number, name in enumerate(netdevs):
        (root / "net" / name).mkdir(parents=True)
        (root / "net" / name / "address").write_text(f"52:54:00:00:00:0{number}\n")
        (root / "net" / name / "type").write_text("1\n")
    for name in loaded:
        (root / "module" / name).mkdir(parents=True)
    (root / "class").mkdir()
    (root / "route").write_text(f"default via 10.0.2.2 dev {default} proto static\n" if default else "")


def run(root: Path, *words: str, lines: str = "rxe ens4\n", **programs: str) -> subprocess.CompletedProcess[str]:
    commands = {
        "rdma": RDMA.replace("ROOT", str(root)),
        "modprobe": f"mkdir -p {root}/module/$1",
        "ip": f"[ $1 = -4 ] && cat {root}/route; true",
        "ss": "true",
        "udevadm": "true",
        "sleep": f"echo slept >>{root}/log",
        **programs,
    }
    (root / "rdma-soft.conf").write_text(f"# managed\n{lines}")
    env = at_boot.stand_in(root / "bin", commands)
    return at_boot.run(root, "rdma", soft.MODULES, lambda text: here(root, text), *words, env=env, before=SLEEP)


def here(root: Path, text: str) -> str:
    for place, there in (
        ("/sys/class/infiniband", "class"), ("/sys/class/net", "net"), ("/sys/module", "module"),
        ("/proc/net/vlan", "vlan"),
        ("/etc/gpuprov", "."), ("/run/gpuprov", "run"),
    ):  # fmt: skip
        text = text.replace(place, f"{root}/{there}")
    return text


def log(root: Path) -> list[str]:
    return (root / "log").read_text().splitlines() if (root / "log").exists() else []


@pytest.mark.install
def test_it_makes_what_is_missing_and_nothing_twice(tmp_path: Path) -> None:
    host(tmp_path, "ens3", "ens4", default="ens3")
    lines = "rxe default\nrxe 52:54:00:00:00:01\n"
    done = run(tmp_path, "apply", lines=lines)
    assert (done.returncode, done.stderr) == (0, "")
    assert log(tmp_path) == ["added ens3", "added ens4"]
    assert run(tmp_path, "apply", lines=lines).stdout == "", "found by interface, whatever it is called"
    assert len(log(tmp_path)) == 2


@pytest.mark.install
def test_what_is_not_asked_for_any_more_goes_if_it_was_made_here(tmp_path: Path) -> None:
    host(tmp_path, "ens3", "ens4", "ens5")
    assert run(tmp_path, "apply", lines="rxe ens3\nrxe ens4\n").returncode == 0
    (tmp_path / "class/mine").mkdir()
    for name, text in {"parent": "ens5", "net": "ens5", "node_type": "1: CA"}.items():
        (tmp_path / "class/mine" / name).write_text(f"{text}\n")
    assert run(tmp_path, "apply", lines="rxe ens4\n").stdout == "ens3: roce_ens3 removed\n"
    assert run(tmp_path, "remove").returncode == 0
    assert sorted(path.name for path in (tmp_path / "class").iterdir()) == ["mine"]
    assert run(tmp_path, "remove").returncode == 0, "a second time, there is nothing to remove"


@pytest.mark.install
def test_what_was_made_before_a_failure_is_known_as_made_here(tmp_path: Path) -> None:
    """The spec is corrected then, and the device that the first run made must not stay."""
    host(tmp_path, "ens3", "ens4")
    done = run(tmp_path, "apply", lines="rxe ens3\nrxe ens9\n")
    assert (done.returncode, done.stderr) == (1, "rdma-soft: no network interface ens9\n")
    done = run(tmp_path, "apply", lines="rxe ens4\n")
    assert (done.returncode, done.stdout.splitlines()) == (0, ["ens4: rxe device made", "ens3: roce_ens3 removed"])
    assert run(tmp_path, "remove").stdout == "ens4: roce_ens4 removed\n"


@pytest.mark.install
def test_a_device_that_is_in_use_is_tried_again(tmp_path: Path) -> None:
    host(tmp_path, "ens3", "ens4")
    assert run(tmp_path, "apply", lines="rxe ens3\nrxe ens4\n").returncode == 0
    busy = 'case "$2" in delete) echo busy >&2; exit 1 ;; esac\n' + RDMA.replace("ROOT", str(tmp_path))
    assert run(tmp_path, "apply", rdma=busy).stdout == "ens3: roce_ens3 stays: busy\n"
    assert run(tmp_path, "remove", rdma=busy).returncode == 0
    assert run(tmp_path, "remove").stdout == "ens4: roce_ens4 removed\nens3: roce_ens3 removed\n"


def test_hardware_on_the_same_interface_is_no_software_device(tmp_path: Path) -> None:
    host(tmp_path, "ens4")
    for name, kind, firmware in (("mlx5_0", "1: CA", "28.39"), ("iwp1", "4: RNIC", "1.60")):
        (tmp_path / "class" / name).mkdir()
        for file, text in {"net": "ens4", "node_type": kind, "fw_ver": firmware}.items():
            (tmp_path / "class" / name / file).write_text(f"{text}\n")
    assert run(tmp_path, "apply").stdout == "ens4: rxe device made\n"


@pytest.mark.install
def test_siw_beside_rxe(tmp_path: Path) -> None:
    host(tmp_path, "ens4")
    assert run(tmp_path, "apply", lines="siw ens4\n").returncode == 0
    assert (tmp_path / "module/siw").exists()
    assert run(tmp_path, "apply").stdout.splitlines()[0] == "ens4: rxe device made"


@pytest.mark.install
def test_it_waits_for_interfaces_and_then_gives_up(tmp_path: Path) -> None:
    host(tmp_path)
    done = run(tmp_path, "apply", "3")
    assert (done.returncode, done.stderr) == (1, "rdma-soft: no network interface ens4\n")
    assert log(tmp_path) == ["slept"] * 3
    late = run(tmp_path, "apply", "3", sleep=f"mkdir -p {tmp_path}/net/ens4; echo 1 >{tmp_path}/net/ens4/type")
    assert late.returncode == 0


@pytest.mark.install
def test_a_port_that_another_holds_is_named(tmp_path: Path) -> None:
    host(tmp_path, "ens4", loaded=())
    done = run(tmp_path, "apply", modprobe="echo 'could not insert: Address already in use' >&2; exit 1", ss=TAKEN)
    assert done.returncode == 1
    assert done.stderr.startswith("rdma-soft: modprobe rdma_rxe: UDP port 4791 is held by gunicorn")
    (tmp_path / "module/rdma_rxe").mkdir(parents=True)
    (tmp_path / "refused").write_text("error: Address already in use\n")
    done = run(tmp_path, "apply", ss=TAKEN)
    assert (
        "rdma link add rxe_ens4 type rxe netdev ens4: error: Address already in use; UDP port 4791: gunicorn"
        in done.stderr
    )


def test_a_kernel_without_the_module(tmp_path: Path) -> None:
    host(tmp_path, "ens4", loaded=())
    done = run(tmp_path, "apply", modprobe="echo 'FATAL: Module rdma_rxe not found' >&2; exit 1")
    assert (done.returncode, done.stderr) == (1, "rdma-soft: modprobe rdma_rxe: FATAL: Module rdma_rxe not found\n")


@pytest.mark.install
@pytest.mark.parametrize(("lines", "said"), [("", "names no interface"), ("erdma ens4\n", "names no interface")])
def test_a_configuration_that_says_nothing(tmp_path: Path, lines: str, said: str) -> None:
    host(tmp_path, "ens4")
    assert said in run(tmp_path, "apply", lines=lines).stderr
    assert "usage" in run(tmp_path, "make").stderr


UNITS = {
    "soft": soft.UNIT,
    "roce": roce.UNIT,
    "erdma": erdma.UNIT,
    "pcie": pcie.UNIT,
    "gpudirect_rdma": gpudirect.unit("nvidia_peermem"),
}
"""The units that set devices at boot."""


@run_each("unit", UNITS)
def test_boot_units_are_done_before_jobs_start(unit: str) -> None:
    """A job opens the devices once, as it starts, and keeps what it found."""
    lines = [line for line in UNITS[unit].splitlines() if line.startswith("Before=")]
    before = " ".join(line.partition("=")[2] for line in lines).split()
    kubernetes = {f"{one}.service" for one in ("k3s", "k3s-agent", "rke2-server", "rke2-agent")}
    assert {*(row.key for row in catalogue.read_rdma_file().daemons), *kubernetes} <= set(before)


@run_each("unit", ["roce", "pcie"])
def test_every_adapter_is_there_before_any_is_set(unit: str) -> None:
    """rdma-hw.target is reached with the first one, and a spec without a count takes those that there are."""
    assert "\nExecStartPre=-/usr/bin/env udevadm settle --timeout=60\n" in UNITS[unit]


def test_the_network_manager_has_set_its_mtu_before_roce_does() -> None:
    """network.target says only that it was started: it sets addresses, and the MTU that DHCP names, until
    network-online.target."""
    after = next(line for line in roce.UNIT.splitlines() if line.startswith("After="))
    assert "network-online.target" in after.partition("=")[2].split()


def test_the_devices_that_are_in_use_outlive_a_change_of_the_spec() -> None:
    """ExecStop removes every device; a reload makes and removes what differs."""
    assert "\nExecReload=@PYTHON@ -B -m rdma.soft apply 30\n" in soft.UNIT
