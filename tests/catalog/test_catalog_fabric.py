"""NVSwitch boards: what the catalogue says of hardware, names and settings."""

from __future__ import annotations

from gpuprov.catalog import fabric
from gpuprov.catalog.gpus import find_gpu, list_gpus
from gpuprov.rules.resolve import fitting
from tests.rows import run_each


def test_the_generations() -> None:
    assert fabric.list_switches() == {"10de:1ac2": 1, "10de:1af1": 2, "10de:22a3": 3}
    assert fabric.find_generation(["10de:2330", "10de:22a3"], bridged=False) == 3
    assert fabric.find_generation(["10de:2901"], bridged=True) == fabric.BRIDGED_GENERATION
    assert fabric.find_generation(["10de:2331"], bridged=False) == 0


def test_every_gpu_is_judged() -> None:
    for gpu in list_gpus():
        possible = gpu.fabric_manager.needed == "nvswitch-boards"
        assert bool(fabric.explain_absence(gpu)) != possible, gpu.key
    gb200 = find_gpu("GB200")
    assert gb200
    assert "nvidia-imex" in fabric.explain_absence(gb200)


def test_names_change_with_the_branch_and_the_distribution() -> None:
    def name(os_id: str, version: str, branch: str) -> list[str]:
        return list(fitting(fabric.build_rules(os_id, version), branch))

    assert name("debian", "13", "575") == ["nvidia-fabricmanager-575"]
    assert name("debian", "13", "580") == ["nvidia-fabricmanager"]
    assert name("rhel", "9.4", "575") == ["nvidia-fabric-manager"]
    assert name("rhel", "10", "580") == ["nvidia-fabricmanager"]
    assert name("ubuntu", "24.04", "580") == ["nvidia-fabricmanager-580", "nvidia-fabricmanager"]
    assert fabric.build_rules("arch", "") == ()
    assert {"nvidia-fabricmanager-535", "nvidia-fabricmanager"} <= set(fabric.list_names("debian", "12"))


def test_the_modes_are_those_of_the_file() -> None:
    assert tuple(fabric.MODES.values()) == fabric.list_settings()["FABRIC_MODE"].choices


@run_each("key", [key for key, entry in fabric.list_settings().items() if entry.default])
def test_defaults_are_allowed(key: str) -> None:
    entry = fabric.list_settings()[key]
    assert entry.kind
    if entry.kind != "unit":
        assert fabric.explain_refusal(entry, entry.default) == ""


@run_each(
    ("key", "value", "allowed"),
    [
        ("STARTING_TCP_PORT", "65536", "a whole number from 0 to 65535"),
        ("LOG_FILE_MAX_SIZE", "-1", "a whole number from 0"),
        ("PARTITION_RAIL_POLICY", "1", "greedy or symmetric"),
        ("UNIX_SOCKET_PATH", "run/fm.sock", "an absolute path of at most 255 characters, or empty"),
        ("UNIX_SOCKET_PATH", "", ""),
        ("BIND_INTERFACE_IP", "::1", "an IPv4 address"),
    ],
)
def test_values(key: str, value: str, allowed: str) -> None:
    assert fabric.explain_refusal(fabric.list_settings()[key], value) == allowed


def test_names_of_imex_change_with_the_branch() -> None:
    def name(os_id: str, version: str, branch: str) -> list[str]:
        return list(fitting(fabric.build_rules(os_id, version, "imex"), branch))

    assert name("debian", "12", "535") == []
    assert name("debian", "12", "570") == ["nvidia-imex-570"]
    assert name("debian", "12", "580") == ["nvidia-imex"]
    assert name("rhel", "9.4", "570") == ["nvidia-imex-570"]
    assert name("rhel", "10", "580") == ["nvidia-imex"]
    assert set(name("ubuntu", "24.04", "580")) == {"nvidia-imex-580", "nvidia-imex"}
    assert set(name("ubuntu", "26.04", "595")) == {"nvidia-imex-595", "nvidia-imex"}
    assert "nvidia-imex" in fabric.list_names("debian", "12", "imex")
