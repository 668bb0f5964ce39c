"""What touches silicon, without any host: the stand-in modules' sources, the functions' files, what a container's boot
works out."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from gpuprov.facts.probes.base import Output
from gpuprov.facts.probes.driver import nvidia
from gpuprov.simulate.description import Description, Gpus
from gpuprov.simulate.devices import devices
from gpuprov.simulate.parts import silicon
from gpuprov.simulate.parts.silicon_files import silicon_container as program
from tests.rows import run_each

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


@run_each("flavour", FLAVOURS)
def test_every_stand_in_says_so(flavour: silicon.Flavour) -> None:
    sources = silicon.dkms_source("550.163.01", flavour)
    for name, content in sources.items():
        if name.endswith(".c"):
            assert b'MODULE_DESCRIPTION("gpuprov stand-in for ' in content, name


@run_each("flavour", FLAVOURS)
def test_version_line_is_read_as_the_real_one(flavour: silicon.Flavour) -> None:
    header = silicon.dkms_source("580.95.05", flavour)["stand-in.h"].decode()
    line = re.search(r'NV_VERSION_LINE "(.*)"', header)
    assert line
    shown = nvidia.parse_loaded(Output(f"NVRM version: {line[1] % '580.95.05'}\n", 0))
    assert shown == nvidia.LoadedDriver("580.95.05", flavour == "open")


def test_defaults_are_those_of_a_real_host() -> None:
    captured = (Path(__file__).parents[1] / "facts/probes/data/driver_parameters/535.txt").read_text(encoding="utf-8")
    real = dict(line.split(": ", 1) for line in captured.splitlines()) | {"RegistryDwords": '""'}
    assert _parameters("", "nvidia-current", "535.309.01") == real


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

    def read_output(*command: str) -> str:
        if command[0] == "modprobe":
            return configuration
        return modules.get(command[-1], "") if command[-2] == "version" else "NVIDIA"

    monkeypatch.setattr(program, "read_output", read_output)
    monkeypatch.setattr(program, "MODULES", tmp_path)
    monkeypatch.setattr(program, "PROGRAMS", silicon.FOLDER / "nvidia")
    state = program.booted()
    assert (state["driver"], state["version"]) == (driver, version)
    assert json.loads(json.dumps(state)) == state


def _parameters(configuration: str, name: str, version: str) -> dict[str, str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(program, "PROGRAMS", silicon.FOLDER / "nvidia")
        return program.parameters(configuration, name, version)
