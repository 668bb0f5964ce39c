"""What touches silicon, without any host: the stand-in modules' sources, the functions' files, what a container's boot
works out."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from gpuprov.facts.probes.base import Output
from gpuprov.facts.probes.driver import nvidia
from gpuprov.simulate.description import Description, Gpus
from gpuprov.simulate.devices import devices
from gpuprov.simulate.parts import silicon
from gpuprov.simulate.parts.silicon_files import silicon_container as program
from gpuprov.simulate.parts.silicon_files import sysfs

HGX = Description(gpu=Gpus(model="H100-SXM5-80GB", count=2), nvswitch=4, hcas=1)
FLAVOURS: tuple[silicon.Flavour, ...] = ("proprietary", "open")


def test_a_host_without_gpus_gets_nothing() -> None:
    assert silicon.part("plain", Description()).files == {}


def test_a_container_gets_the_tree_of_its_functions() -> None:
    files = silicon.part("hgx", HGX).files
    told = json.loads(files["/usr/lib/gpuprov-sim/sysfs.json"].content)  # type: ignore[arg-type]
    shown = {one["address"]: one["files"]["device"] for one in told["functions"] if one["role"] != "bridge"}
    assert shown == {d.address: f"0x{d.identifier[5:]}\n" for d in devices("hgx", HGX)}
    assert not any("initramfs" in path for path in files)


def test_a_machine_gets_its_functions_from_qemu_in_the_initramfs() -> None:
    files = silicon.part("hgx", Description(kind="machine", gpu=HGX.gpu)).files
    script = files["/etc/initramfs-tools/scripts/init-top/gpuprov-sim"]
    assert isinstance(script.content, Path)
    assert f"by_name/{silicon.FW_CFG}/raw" in script.content.read_text()
    assert script.mode == 0o755


def test_sources_of_the_pci_module_are_whole() -> None:
    sources = silicon.module_sources()
    objects = re.findall(rb"(\w+)\.o", sources["Kbuild"].partition(b"-y :=")[2])
    assert {f"{name.decode()}.c" for name in objects} == {name for name in sources if name.endswith(".c")}


@pytest.mark.parametrize(
    ("flavour", "license_", "name"), [("proprietary", "NVIDIA", "nvidia-current"), ("open", "Dual MIT/GPL", "nvidia-current-open")]
)  # fmt: skip
def test_dkms_source_is_named_as_debian_names_it(flavour: silicon.Flavour, license_: str, name: str) -> None:
    sources = silicon.dkms_source("550.163.01", flavour)
    conf = sources["dkms.conf"].decode()
    assert f'PACKAGE_NAME="{name}"\nPACKAGE_VERSION="550.163.01"\n' in conf
    assert re.findall(r'DEST_MODULE_NAME\[\d\]="(.*)"', conf) == [
        name + suffix for suffix in ("", "-modeset", "-drm", "-uvm", "-peermem")
    ]
    assert f'#define NV_LICENSE "{license_}"' in sources["stand-in.h"].decode()
    built = re.findall(r"(\S+)\.o", sources["Kbuild"].decode().partition("obj-m :=")[2].splitlines()[0])
    assert re.findall(r'BUILT_MODULE_NAME\[\d\]="(.*)"', conf) == built


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_every_stand_in_says_so(flavour: silicon.Flavour) -> None:
    sources = silicon.dkms_source("550.163.01", flavour)
    for name, content in sources.items():
        if name.endswith(".c"):
            assert b'MODULE_DESCRIPTION("gpuprov stand-in for ' in content, name


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_version_line_is_read_as_the_real_one(flavour: silicon.Flavour) -> None:
    header = silicon.dkms_source("580.95.05", flavour)["stand-in.h"].decode()
    line = re.search(r'NV_VERSION_LINE "(.*)"', header)
    assert line
    shown = nvidia.parse_loaded(Output(f"NVRM version: {line[1] % '580.95.05'}\n", 0))
    assert shown == nvidia.LoadedDriver("580.95.05", flavour == "open")


@pytest.mark.parametrize(("version", "has"), [("535.309.01", False), ("550.163.01", True)])
def test_parameters_follow_the_branch(version: str, has: bool) -> None:
    table = silicon.dkms_source(version, "open")["parameter-table.h"].decode()
    assert ("ImexChannelCount" in table) is has
    assert "X(RestrictProfilingToAdminUsers, RmProfilingAdminOnly, 1)" in table


def test_defaults_are_those_of_a_real_host() -> None:
    captured = (Path(__file__).parents[1] / "facts/probes/data/driver_parameters/535.txt").read_text(encoding="utf-8")
    real = dict(line.split(": ", 1) for line in captured.splitlines()) | {"RegistryDwords": '""'}
    assert _parameters("", "nvidia-current", "535.309.01") == real


@pytest.mark.parametrize(("version", "other"), [("535.309.01", "535.309.99"), ("580.99", "580.98")])
def test_the_other_version_is_another(version: str, other: str) -> None:
    assert silicon.other_version(version) == program.another(version) == other


def test_product_data_has_a_good_checksum_and_the_bridge_mark() -> None:
    bridge = next(d for d in devices("hgx", HGX) if d.role == "nvlink-bridge")
    data = sysfs.files(bridge)["vpd"]
    assert b"V3\x06SW_MNG" in data
    assert sum(data[: data.index(b"RV") + 4]) % 256 == 0
    assert "vpd" not in sysfs.files(next(d for d in devices("hgx", HGX) if d.role == "hca"))


def test_both_kinds_lay_the_configuration_space_out_alike() -> None:
    source = silicon.module_sources()["config_space.c"].decode()
    assert f"EXPRESS = {sysfs.EXPRESS:#x}, VPD = {sysfs.VPD:#x}" in source


@pytest.mark.parametrize(
    ("configuration", "modules", "driver", "version"),
    [
        ("", {}, "nouveau", ""),
        ("", {"nvidia-current": "535.309.01"}, "nouveau", "535.309.01"),
        ("alias pci:v000010DEd*sv*sd*bc03sc02i00* nvidia\n", {"nvidia-current": "535.309.01"}, "nvidia", "535.309.01"),
        ("alias pci:v000010DEd*sv*sd*bc03sc02i00* nvidia\n", {}, "nouveau", ""),
        ("blacklist nouveau\n", {}, "", ""),
        ("install nouveau /bin/false\n", {}, "", ""),
        ("blacklist nouveau\n", {"nvidia-current": "535.309.01"}, "nvidia", "535.309.01"),
        (
            "blacklist nouveau\ninstall nvidia modprobe -i nvidia-current-open $CMDLINE_OPTS\n",
            {"nvidia-current": "535.309.01", "nvidia-current-open": "550.163.01"},
            "nvidia",
            "550.163.01",
        ),
    ],
)
def test_a_boot_loads_what_is_on_disk(
    configuration: str, modules: dict[str, str], driver: str, version: str,
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
) -> None:  # fmt: skip
    (tmp_path / "6.1.0-56-amd64" / "build").mkdir(parents=True)

    def said(*command: str) -> str:
        if command[0] == "modprobe":
            return configuration
        return modules.get(command[-1], "") if command[-2] == "version" else "NVIDIA"

    monkeypatch.setattr(program, "said", said)
    monkeypatch.setattr(program, "MODULES", tmp_path)
    monkeypatch.setattr(program, "PROGRAMS", silicon.FOLDER / "nvidia")
    state = program.booted()
    assert (state["driver"], state["version"]) == (driver, version)
    assert json.loads(json.dumps(state)) == state


def test_options_reach_the_parameters_as_modprobe_hands_them() -> None:
    configuration = (
        "options nvidia_current NVreg_DeviceFileMode=0660 NVreg_EnableMSI=0 NVreg_RestrictProfilingToAdminUsers=0\n"
        'options nvidia NVreg_EnableMSI=1 NVreg_RegistryDwords="a=1;b=2" NVreg_ResmanDebugLevel=0x10\n'
        "options other NVreg_RmLogonRC=0\n"
    )
    shown = _parameters(configuration, "nvidia-current", "535.309.01")
    wanted = {"DeviceFileMode": "432", "EnableMSI": "1", "RmProfilingAdminOnly": "0", "RegistryDwords": '"a=1;b=2"'}
    wanted |= {"ResmanDebugLevel": "16", "RmLogonRC": "1"}
    assert {key: shown[key] for key in wanted} == wanted


def _parameters(configuration: str, name: str, version: str) -> dict[str, str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(program, "PROGRAMS", silicon.FOLDER / "nvidia")
        return program.parameters(configuration, name, version)


def test_minor_numbers_of_mig_are_the_drivers() -> None:
    """As public listings of /proc/driver/nvidia-caps/mig-minors have them."""
    number = {name: at for at, name in enumerate([*program.MIG, *program.minors()], start=1)}
    assert (number["config"], number["monitor"], number["gpu0/gi0/access"], number["gpu0/gi0/ci0/access"]) == (
        1,
        2,
        3,
        4,
    )
    assert (number["gpu0/gi9/access"], number["gpu3/gi3/ci3/access"], number["gpu6/gi11/ci7/access"]) == (84, 439, 920)


def test_a_reload_keeps_the_capabilities_and_a_new_module_begins_anew(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "proc").mkdir()
    monkeypatch.setattr(program, "PROC", tmp_path / "proc")
    monkeypatch.setattr(program, "CAPS", tmp_path / "caps")
    monkeypatch.setattr(os, "mknod", lambda path, *_: Path(path).touch())
    functions = [[d.role, str(d.index)] for d in devices("hgx", HGX)]

    def show(driver: str, *, again: bool) -> list[str]:
        program.show_capabilities(functions, {"driver": driver}, again=again)
        return sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file())

    base = ["caps/nvidia-cap1", "caps/nvidia-cap2", "proc/nvidia-caps/mig-minors",
            "proc/nvidia/capabilities/mig/config", "proc/nvidia/capabilities/mig/monitor"]  # fmt: skip
    assert show("nvidia", again=False) == base
    assert (tmp_path / "caps/nvidia-cap1").stat().st_mode & 0o777 == 0o400
    assert (tmp_path / "proc/nvidia/capabilities/mig/monitor").read_text().splitlines()[:2] == [
        "DeviceFileMinor: 2",
        "DeviceFileMode: 292",
    ]
    instance = tmp_path / "proc/nvidia/capabilities/gpu1/mig/gi1"
    instance.mkdir()
    (instance / "access").touch()
    assert len(show("nvidia", again=True)) == len(base) + 1
    assert not any(path.startswith("caps") for path in show("nouveau", again=True))
