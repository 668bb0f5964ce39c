"""nvidia_driver: GSP firmware cannot be switched off in open kernel modules, which show the parameter all the same."""

from __future__ import annotations

import pytest

from gpuprov.capabilities import nvidia_driver
from gpuprov.capabilities.nvidia_driver.fragment import NvidiaDriver
from gpuprov.capabilities.nvidia_driver.gsp import KEY
from gpuprov.spec.kernel import Scalar
from gpuprov.spec.model import GpuSpec, HostSpec
from tests.capabilities.asking import OPEN, ask, packages

A100, B200, V100 = "A100-SXM4-80GB", "B200", "V100-SXM2-32GB"


def refused(gpu: str, value: Scalar = 0, **fields: str) -> bool:
    driver = NvidiaDriver(module_parameters={KEY: value}, **fields)  # type: ignore[arg-type]
    host = HostSpec(name="h", gpu=GpuSpec(model=gpu) if gpu else None, capabilities={"nvidia_driver": driver})
    return any(KEY in one.message and one.severity == "error" for one in nvidia_driver.rules(host, driver))


@pytest.mark.parametrize(
    ("gpu", "fields", "wrong"),
    [
        (A100, {"version": "580"}, True),
        (A100, {"version": "580", "kernel_modules": "open"}, True),
        (A100, {"version": "580", "kernel_modules": "proprietary"}, False),
        (A100, {"version": "550"}, False),
        (A100, {}, False),
        (B200, {}, True),
        (V100, {"version": "580"}, False),
        ("", {"version": "580"}, False),
        ("", {"version": "580", "kernel_modules": "open"}, True),
    ],
)
def test_where_the_modules_will_be_open(gpu: str, fields: dict[str, str], wrong: bool) -> None:
    assert refused(gpu, **fields) is wrong


@pytest.mark.parametrize(
    ("value", "off"), [(0, True), ("0x10", True), (False, True), (1, False), (18, False), ("2", False)]
)
def test_the_bits_that_switch_it_off(value: Scalar, off: bool) -> None:
    assert refused(B200, value) is off


@pytest.mark.parametrize(("flavour", "status"), [("open", "fail"), ("proprietary", "pass")])
def test_what_open_modules_show_is_not_in_force(flavour: str, status: str) -> None:
    """https://github.com/NVIDIA/open-gpu-kernel-modules/issues/820"""
    module = {"open": "nvidia_current_open", "proprietary": "nvidia_current"}[flavour]
    driver = NvidiaDriver(kernel_modules=flavour, module_parameters={KEY: 0})  # type: ignore[arg-type]
    there = {"packages": packages(OPEN)} if flavour == "open" else {}
    found = ask(
        "nvidia_driver.module_parameters",
        driver,
        modprobe_config=f"options {module} {KEY}=0\n",
        driver_parameters="EnableGpuFirmware: 0\n",
        **there,
    )
    assert found.status == status
    if status == "fail":
        assert found.found == f"{KEY} has no effect: open kernel modules always run with GSP firmware"
