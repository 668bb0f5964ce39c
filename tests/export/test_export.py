"""What a host is, written as a spec: the expected one, without problems, and true of the host it was read from."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import yaml

import gpuprov.export as export_module
from gpuprov.capabilities import BY_NAME, CAPABILITIES
from gpuprov.capabilities.base import Context
from gpuprov.export import probes, spec_of
from gpuprov.facts.probes.base import Facts, Output
from gpuprov.fleet.specs import judge
from gpuprov.spec.model import RawHost
from tests.capabilities import cgpu_host, contents_host
from tests.capabilities.asking import B200, BARE, FABRIC_MANAGER, H100, OPEN, facts, good, packages, units
from tests.facts.probes import captured
from tests.rows import run_each

PARAMETER = "options nvidia-current NVreg_RestrictProfilingToAdminUsers=1\n"
CONFIGURED = f"blacklist nouveau\nblacklist nova_core\noptions nouveau modeset=0\n{PARAMETER}"
WHOLE_GPU: dict[str, Output | str] = {"gpu_functions": "", "gridd": "", "cgpu": cgpu_host.ABSENT, "mps": BARE["mps"]}
"""The good host's GPU without the vGPU and its licence, and shared by nobody's daemon or module."""
FULL: dict[str, Output | str] = {
    **WHOLE_GPU,
    "modprobe_config": CONFIGURED + PARAMETER.replace("-current", "") + PARAMETER.replace("-current", "-current-open"),
}
WITHOUT: dict[str, Output | str] = {
    **WHOLE_GPU,
    "packages": "",
    "readings": BARE["readings"],
    "cuda_packages": "",
    "dcgm_packages": "",
    "gpudirect": BARE["gpudirect"],
    "rdma_devices": "",
    "modprobe_config": "",
    "units": units(("inactive", "")),
    "sysctl_files": "",
}


def host(**changed: Output | str) -> Facts:
    texts: dict[str, Output | str] = {**good(), **changed}
    return facts(**texts)


def exported(**changed: Output | str) -> tuple[dict[str, Any], list[str]]:
    names = {probe.name for probe in probes()}
    texts = {name: text for name, text in {**good(), **changed}.items() if name in names}
    return spec_of(facts(**texts))


def test_the_good_host() -> None:
    spec, unread = exported(**FULL)
    assert unread == []
    assert spec == {
        "gpu": {"model": "H100-SXM5-80GB", "count": 1},
        "kernel": {"sysctl": {"vm.swappiness": 60}, "limits": {"memlock": "unlimited"}},
        "nouveau": {},
        "nvidia_driver": {
            "version": "535.261.03",
            "kernel_modules": "proprietary",
            "module_parameters": {"NVreg_RestrictProfilingToAdminUsers": "1"},
        },
        "persistence": {"mode": "daemon"},
        "readings": {},
        "cuda_toolkit": {"versions": ["12.4.1"], "default": "12.4", "cudnn": "9.5.1.17", "nccl": "2.21.5"},
        "rdma": {"count": 2, "rate": 400, "opensm": {"elsewhere": True}},
        "fabric_manager": {"query_library": "never"},
        "gpudirect_rdma": {"method": "nvidia_peermem"},
        "container_toolkit": {
            "version": "1.20.1",
            "runtimes": ["docker", "containerd", "crio", "podman"],
            "rootless": ["gpuuser"],
        },
        "dcgm": {"version": "4.4.2"},
    }


def test_a_bare_host_with_a_gpu() -> None:
    assert exported(**WITHOUT, login_limits="") == ({"gpu": {"model": "H100-SXM5-80GB", "count": 1}}, [])


def test_a_host_without_a_gpu() -> None:
    assert exported(**WITHOUT, login_limits="", nvidia_functions="") == ({}, [])


def test_only_what_differs_from_the_defaults_is_written() -> None:
    spec, _ = exported(
        modprobe_config="blacklist nouveau\noptions nouveau modeset=0\n", packages=packages(OPEN, state="ii ")
    )
    assert spec["nouveau"] == {"modules": ["nouveau"]}
    assert spec["nvidia_driver"] == {"version": "535.261.03", "kernel_modules": "open", "hold": False}


@run_each(
    ("functions", "message"),
    [
        (H100 + B200, "gpu: 2 GPUs of several or unknown models; a spec names one"),
        (
            "0000:01:00.0 0x10de 0xffff 0x10de 0x0 0x030000 \n",
            "gpu: 1 GPU of several or unknown models; a spec names one",
        ),
        ("damaged\n", "gpu: nvidia_functions cannot be read"),
    ],
)
def test_gpus_that_a_spec_cannot_name_are_told(functions: str, message: str) -> None:
    spec, unread = exported(nvidia_functions=functions)
    assert "gpu" not in spec
    assert unread[0].startswith(message)


def test_what_cannot_be_read_is_told_and_the_rest_is_written() -> None:
    anolis = 'ID="anolis"\nVERSION_ID="8.9"\nPRETTY_NAME="Anolis OS 8.9"\n'
    spec, unread = exported(**WHOLE_GPU, os_release=anolis)
    assert unread == ["nvidia_driver: no driver package names are known for Anolis OS 8.9"]
    assert "nvidia_driver" not in spec
    assert {"gpu", "kernel", "nouveau", "persistence", "fabric_manager", "container_toolkit"} <= set(spec)


@run_each(
    "changed",
    [
        FULL,
        WITHOUT,
        {**FULL, "packages": packages(state="ii "), "fabric_packages": FABRIC_MANAGER.replace("hi ", "ii ")},
        {**WHOLE_GPU, "modprobe_config": "blacklist nouveau\noptions nouveau modeset=0\n"},
        {**WHOLE_GPU, "modprobe_config": captured("modprobe_config", "driver_installed")},
        {
            **WHOLE_GPU,
            "units": units(("inactive", "disabled"), ("active", "enabled")),
            "contents": contents_host.nothing()
            + contents_host.unit("nvidia-persistenced.service", "inactive", "disabled")
            + contents_host.unit("gpuprov-persistence.service", "active", "enabled"),
        },
    ],
)
def test_round_trip(changed: dict[str, Output | str]) -> None:
    """An exported spec has no problems, survives YAML, and every check of it passes on the same host."""
    spec, unread = exported(**changed)
    assert unread == []
    written = yaml.safe_load(yaml.safe_dump(spec))
    assert written == spec
    ((_, typed),) = judge([RawHost(name="a", values=written)]).pairs
    told = host(**changed)
    for name, fragment in typed.capabilities.items():
        for check in BY_NAME[name].checks:
            outcome = check.run(Context(typed, fragment, told))
            assert outcome.status in ("pass", "skip", "n/a"), (check.id, outcome)


def test_what_check_would_refuse_is_told_and_not_written() -> None:
    spec, unread = exported(sysctl_files="vm.swappiness = 1\x1b]0;OWNED\x07\n")
    assert "kernel" not in spec
    assert unread == ['kernel: sysctl.vm.swappiness is "1\\u001b]0;OWNED\\u0007"']
    spec, unread = exported(**{**FULL, "modprobe_config": CONFIGURED + "options nvidia-current NVreg_X=a\x9b2J\n"})
    assert "nvidia_driver" not in spec
    assert unread == ['nvidia_driver: nvidia_driver.module_parameters.NVreg_X is "a\\u009b2J"']
    assert "container_toolkit" in spec


def test_what_a_host_makes_up_costs_one_block_at_most() -> None:
    """Names that no program has: of an engine, of a GPU's setting, of a module's parameter."""
    whole, unread = exported(**FULL)
    assert unread == []
    engines = str(good()["container_engines"]).replace("@engine docker", "@engine {{ x }}", 1)
    assert engines != good()["container_engines"]
    spec, unread = exported(**FULL, container_engines=engines)
    assert {key: value for key, value in whole.items() if key != "container_toolkit"} == spec
    said = "container_toolkit: container_engines cannot be read (there is no engine and no unit '{{ x }}' of an engine)"
    assert unread[0].startswith(said)
    shared = {**FULL, "cgpu": cgpu_host.said()}
    made_up = {**shared, "cgpu": cgpu_host.said(more="node|0|{{ x }}|1")}
    assert exported(**made_up) == exported(**shared)
    peer = str(good()["gpudirect"])
    assert "parameter|persistent_api_support" in peer
    assert exported(**FULL, gpudirect=f"{peer}parameter|method|1\n") == (whole, [])


def test_a_bug_in_one_export_is_told_and_costs_its_block(monkeypatch: pytest.MonkeyPatch) -> None:
    whole, _ = exported(**FULL)

    def falls(_facts: Facts) -> None:
        raise KeyError("{{ x }}")

    broken = [dataclasses.replace(one, export=falls) if one.name == "dcgm" else one for one in CAPABILITIES]
    monkeypatch.setattr(export_module, "CAPABILITIES", broken)
    spec, unread = exported(**FULL)
    assert len(unread) == 1
    assert unread[0].startswith("dcgm: the export of dcgm broke: KeyError: '{{ x }}' at export/__init__.py:")
    assert "; a defect of gpuprov, not of the host: report it with this line (gpuprov " in unread[0]
    assert spec == {key: value for key, value in whole.items() if key != "dcgm"}
