"""The program of the boot unit, run on a sysfs tree: what it writes with setpci, and what it refuses."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from gpuprov.capabilities.pcie.desired import MODULES, POLICY
from tests.capabilities import at_boot
from tests.capabilities.pcie_host import CONTROL, GPU, HCA, LEFT, ON, RIGHT, ROOT_PORT, UPSTREAM, space, tree

pytestmark = pytest.mark.install  # programs, started again and again

# The two expressions that the program gives to setpci(8), on a file of the tree; the register lies where space() puts
# it.
SETPCI = """#!/bin/sh
[ "$1" = -s ] || exit 9
file=@/sys/bus/pci/devices/$2/config value=${3##*=} mask=${3##*=}
case $3 in ECAP_ACS+6.w=*) at=$((0xF24 + 6)) ;; CAP_EXP+8.w=*) at=$((0x68 + 8)) ;; *) exit 9 ;; esac
case $value in *:*) mask=${value#*:} value=${value%:*} ;; *) mask=ffff ;; esac
old=$(od -An -tu2 -j$at -N2 "$file")
new=$((old & ~0x$mask | 0x$value & 0x$mask))
printf "\\\\$(printf %03o $((new & 255)))\\\\$(printf %03o $((new >> 8)))" |
  dd of="$file" bs=1 seek=$at conv=notrunc 2>/dev/null
"""


def run(
    root: Path, action: str, settings: str | None = "acs disabled\n", setpci: str = SETPCI, contained: bool = False
) -> subprocess.CompletedProcess[str]:
    detect = f"exit {int(not contained)}"
    env = at_boot.stand_in(root / "bin", {"setpci": setpci.replace("@", str(root)), "systemd-detect-virt": detect})
    (root / "pcie.conf").unlink(missing_ok=True)
    if settings is not None:
        (root / "pcie.conf").write_text(settings)
    return at_boot.run(root, "pcie", MODULES, lambda text: here(root, text), action, env=env)


def here(root: Path, text: str) -> str:
    for place in ("/sys/bus/pci", "/proc/irq"):
        text = text.replace(place, f"{root}{place}")
    return text.replace("/etc/gpuprov", str(root))


def has(root: Path, address: str) -> tuple[int, int]:
    """DevCtl and ACSCtl."""
    raw = (root / "sys/bus/pci/devices" / address / "config").read_bytes()
    return int.from_bytes(raw[0x70:0x72], "little"), int.from_bytes(raw[0xF2A:0xF2C], "little")


def test_acs_of_all_that_is_above_is_cleared(tmp_path: Path) -> None:
    tree(tmp_path, acs=ON)
    done = run(tmp_path, "apply")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [f"{one} acs 001d -> 0000" for one in (ROOT_PORT, LEFT, RIGHT)]
    assert [has(tmp_path, one) for one in (ROOT_PORT, LEFT, RIGHT)] == [(CONTROL, 0)] * 3
    assert run(tmp_path, "apply").stdout == "", "a second run changes nothing"
    assert has(tmp_path, "0000:18:00.1")[1] == ON, "a virtual function is its physical function's"


def test_only_the_bits_that_are_asked_for_change(tmp_path: Path) -> None:
    tree(tmp_path)
    settings = "# managed\nmax_read_request 4096\ngpu_max_read_request 1024\nrelaxed_ordering disabled\n"
    done = run(tmp_path, "apply", settings)
    assert f"{HCA} max_read_request 512 -> 4096" in done.stdout, done.stderr
    assert has(tmp_path, HCA)[0] == CONTROL & ~0x7010 | 0x5000
    assert has(tmp_path, GPU)[0] == CONTROL & ~0x7010 | 0x3000
    assert has(tmp_path, UPSTREAM)[0] == CONTROL, "bridges are left alone"
    run(tmp_path, "apply", "relaxed_ordering enabled\n")
    assert has(tmp_path, HCA)[0] == CONTROL & ~0x7000 | 0x5000


def test_interrupts_go_to_the_own_node_and_good_ones_stay(tmp_path: Path) -> None:
    tree(tmp_path)
    done = run(tmp_path, "apply", "affinity local\n")
    assert done.stdout == f"{HCA} irq 101 0-31 -> 0-15\n", done.stderr
    irq = tmp_path / "proc/irq"
    assert [(irq / str(n) / "smp_affinity_list").read_text().strip() for n in (101, 102)] == ["0-15", "8-9"]


def test_in_a_container_interrupts_are_the_machines(tmp_path: Path) -> None:
    tree(tmp_path)
    done = run(tmp_path, "apply", "affinity local\n", contained=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize(
    ("setpci", "said"),
    [
        ("#!/bin/sh\nexit 0\n", f"pcie: {ROOT_PORT} acs stays 001d, expected 0000; {LEFT} acs stays 001d"),
        (
            "#!/bin/sh\necho 'setpci: Operation not permitted'; exit 1\n",
            "expected 0000 (setpci: Operation not permitted)",
        ),
    ],
)
def test_what_is_not_taken_is_found_by_reading_back(tmp_path: Path, setpci: str, said: str) -> None:
    tree(tmp_path, acs=ON)
    done = run(tmp_path, "apply", setpci=setpci)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert said in line


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ("# nothing\n", "has no settings"),
        ("acs disabled now\n", "has lines that are not settings"),
        ("max_read_request 4096\n", "there is no HCA"),
        ("affinity local\n", "there is no HCA"),
        ("gpu_max_read_request 4096\n", "there is no GPU and no HCA"),
        ("acs disabled\n", "there is no GPU and no HCA"),
    ],
)
def test_refusals(tmp_path: Path, settings: str, said: str) -> None:
    done = run(tmp_path, "apply", settings)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("pcie: ")
    assert said in line


def test_configuration_space_that_is_hidden(tmp_path: Path) -> None:
    tree(tmp_path)
    (tmp_path / "sys/bus/pci/devices" / HCA / "config").write_bytes(space("15b3:1021", size=64))
    done = run(tmp_path, "apply", "relaxed_ordering enabled\n")
    assert (done.returncode, done.stderr) == (1, f"pcie: the configuration space of {HCA} cannot be read (root can)\n")


def test_a_function_that_fell_off_the_bus_is_told_and_the_others_are_set(tmp_path: Path) -> None:
    """It answers every read with ones, in which no capability can be found: nothing to set is not the same as set."""
    tree(tmp_path, acs=ON)
    (tmp_path / "sys/bus/pci/devices" / GPU / "config").write_bytes(b"\xff" * 4096)
    settings = "acs disabled\nmax_read_request 4096\ngpu_max_read_request 4096\nrelaxed_ordering disabled\n"
    done = run(tmp_path, "apply", settings, setpci=SETPCI.replace("case $3", f"[ $2 = {GPU} ] && exit\ncase $3", 1))
    assert done.returncode == 1
    told = ("acs stays unreadable", "max_read_request stays unreadable", "relaxed_ordering stays unreadable")
    assert all(f"{GPU} {one}" in done.stderr for one in told), done.stderr
    assert has(tmp_path, HCA)[0] == CONTROL & ~0x7010 | 0x5000
    assert has(tmp_path, LEFT)[1] == 0


def test_usage_and_a_missing_file(tmp_path: Path) -> None:
    assert run(tmp_path, "boot").stderr == "pcie: usage: pcie apply\n"
    done = run(tmp_path, "apply", settings=None)
    assert done.stderr == f"pcie: {tmp_path}/pcie.conf cannot be read: No such file or directory\n"


@pytest.mark.skipif(shutil.which("setpci") is None, reason="needs pciutils")
def test_the_real_setpci_finds_the_registers(tmp_path: Path) -> None:
    tree(tmp_path, acs=ON)
    real = f'#!/bin/sh\nexec {shutil.which("setpci")} -A linux-sysfs -O sysfs.path=@/sys/bus/pci "$@"\n'
    done = run(tmp_path, "apply", "acs disabled\nmax_read_request 4096\n", setpci=real)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert (has(tmp_path, LEFT)[1], has(tmp_path, HCA)[0]) == (0, CONTROL & ~0x7000 | 0x5000)


def test_irqbalance_is_told_to_leave_hcas_alone(tmp_path: Path) -> None:
    tree(tmp_path)
    told = [
        subprocess.run(
            ["sh", "-c", POLICY, "policy", tmp_path / "sys/bus/pci/devices" / one, "101"],
            capture_output=True,
            text=True,
            check=True,
        )
        for one in (HCA, GPU)
    ]
    assert [done.stdout for done in told] == ["ban=true\n", ""]
