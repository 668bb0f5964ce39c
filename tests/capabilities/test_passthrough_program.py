"""The program that binds lent GPUs: its reader on a sysfs tree, and what it writes there."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuprov.facts.probes.host.pci import PASSTHROUGH
from gpuprov.facts.probes.host.pci import parse_passthrough as parse_probe
from gpuprov.host_code.at_boot import passthrough as program
from gpuprov.host_code.at_boot.passthrough import Config, Function, Move, State
from gpuprov.host_code.at_boot.program import Refused
from tests.capabilities.passthrough_host import FREE, HELD, NIC, PORT
from tests.facts.probes import run_well
from tests.rows import run_each

ALL = Config(("all",))


def plant(
    root: Path, address: str, ids: tuple[str, str, str], driver: str = "", override: str = "(null)", group: str = ""
) -> Path:
    """A function of a sysfs tree."""
    folder = root / "sys/bus/pci/devices" / address
    folder.mkdir(parents=True)
    for name, text in zip(("vendor", "device", "class"), ids, strict=True):
        (folder / name).write_text(f"0x{text}\n")
    (folder / "driver_override").write_text(f"{override}\n")
    (folder / "modalias").write_text("pci:v000010DEd00002330\n")
    if driver:
        home = root / "sys/bus/pci/drivers" / driver
        home.mkdir(parents=True, exist_ok=True)
        (folder / "driver").symlink_to(home)
    if group:
        home = root / "sys/kernel/iommu_groups" / group / "devices"
        home.mkdir(parents=True, exist_ok=True)
        (home / address).symlink_to(folder)
        (folder / "iommu_group").symlink_to(home.parent)
    return folder


def hold(root: Path, pid: str, name: str, path: str) -> None:
    """A program with a file of vfio's open."""
    (root / "proc" / pid / "fd").mkdir(parents=True)
    (root / "proc" / pid / "comm").write_text(f"{name}\n")
    (root / "proc" / pid / "fd" / "9").symlink_to(path)


def test_the_reader_names_groups_overrides_and_who_holds_what(tmp_path: Path) -> None:
    gpu = plant(tmp_path, HELD, ("10de", "2330", "030200"), "vfio-pci", "vfio-pci", "7")
    (gpu / "vfio-dev/vfio0").mkdir(parents=True)
    plant(tmp_path, NIC, ("15b3", "1021", "020000"), "mlx5_core", group="7")
    plant(tmp_path, PORT, ("8086", "352a", "060400"), "pcieport", group="9")
    plant(tmp_path, FREE, ("10de", "2330", "030200"), "nvidia")
    hold(tmp_path, "4242", "qemu|system\nx", "/dev/vfio/7")
    hold(tmp_path, "77", "cloud-hyperviso", "/dev/vfio/devices/vfio0")
    hold(tmp_path, "78", "idle", "/dev/vfio/vfio")
    (tmp_path / "run/gpuprov").mkdir(parents=True)
    (tmp_path / "run/gpuprov/passthrough").write_text(f"{HELD}\n")
    places = ("/sys/bus/pci", "/proc/[0-9]*", "/proc/$p", "/run/gpuprov", "/etc/gpuprov")
    script = PASSTHROUGH.script.replace("p=${p#/proc/}", f"p=${{p#{tmp_path}/proc/}}")
    found = parse_probe(run_well(script, tmp_path, {"systemctl": "exit 1"}, places))
    assert found.config is None
    assert found.state.taken == {HELD}
    assert {function.address: function for function in found.state.functions} == {
        HELD: Function(HELD, "10de:2330", "030200", "vfio-pci", "vfio-pci", "7",
                       ("qemu system x (pid 4242)", "cloud-hyperviso (pid 77)")),
        NIC: Function(NIC, "15b3:1021", "020000", "mlx5_core", "", "7", ("qemu system x (pid 4242)",)),
        FREE: Function(FREE, "10de:2330", "030200", "nvidia"),
    }  # fmt: skip


@pytest.fixture(name="root")
def _root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(program, "SYS", f"{tmp_path}/sys/bus/pci")
    monkeypatch.setattr(program, "PROC", f"{tmp_path}/proc/driver/nvidia/gpus")
    return tmp_path


def test_the_override_comes_before_the_old_driver_lets_go(root: Path) -> None:
    folder = plant(root, FREE, ("10de", "2330", "030200"), "nvidia")
    assert program.bind(Move(Function(FREE, "10de:2330", driver="nvidia"), "vfio-pci")) == ""
    assert (folder / "driver_override").read_text() == "vfio-pci\n"
    assert (folder / "driver/unbind").read_text() == f"{FREE}\n"


def test_a_gpu_that_nvidias_driver_does_not_let_go_stays_as_it_is(root: Path) -> None:
    folder = plant(root, FREE, ("10de", "2330", "030200"), "nvidia")
    lock = root / "proc/driver/nvidia/gpus" / FREE / "unbindLock"
    lock.parent.mkdir(parents=True)
    lock.symlink_to("/dev/null")
    assert "in use" in program.bind(Move(Function(FREE, "10de:2330", driver="nvidia"), "vfio-pci"))
    assert (folder / "driver_override").read_text().strip() == ""
    assert not (folder / "driver/unbind").exists()


def test_a_function_without_a_driver_is_probed(root: Path) -> None:
    folder = plant(root, FREE, ("10de", "2330", "030200"))
    assert program.bind(Move(Function(FREE, "10de:2330"), "vfio-pci")) == ""
    assert (folder / "driver_override").read_text() == "vfio-pci\n"
    assert (root / "sys/bus/pci/drivers_probe").read_text() == f"{FREE}\n"


LENT = Function(FREE, "10de:2330", driver="vfio-pci", override="vfio-pci", group="8", users=("qemu (pid 1)",))


@run_each(
    ("function", "config", "said"),
    [
        (LENT, ALL, []),
        (LENT._replace(driver="nvidia", group="", users=()), ALL, [f"no IOMMU group: {FREE}"]),
        (LENT, Config(), [f"a virtual machine has {FREE}: qemu (pid 1)"]),
        (LENT, Config(("all",), driver="nvgrace-gpu-vfio-pci"), [f"a virtual machine has {FREE}: qemu (pid 1)"]),
        (LENT._replace(override=""), ALL, []),
    ],
)
def test_what_keeps_it_from_moving_anything(function: Function, config: Config, said: list[str]) -> None:
    assert program.list_obstacles(State((function,), frozenset({FREE})), config) == said


def test_a_refusal_names_the_obstacle_and_moves_nothing(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = plant(root, FREE, ("10de", "2330", "030200"), "nvidia")
    (root / "conf").write_text("driver vfio-pci\ngpu all\n")
    monkeypatch.setattr(program, "CONFIG", str(root / "conf"))
    monkeypatch.setattr(program, "READER", f"echo 'function|{FREE}|10de:2330|030200|nvidia|||'")
    with pytest.raises(Refused, match=f"no IOMMU group: {FREE}"):
        program.apply(0)
    assert (folder / "driver_override").read_text() == "(null)\n"


def test_only_what_this_program_took_is_given_back() -> None:
    assert program.list_moves(State((LENT,)), Config()) == []
    (move,) = program.list_moves(State((LENT,), frozenset({FREE})), Config())
    assert str(move) == f"{FREE}: vfio-pci -> a driver of this host"
