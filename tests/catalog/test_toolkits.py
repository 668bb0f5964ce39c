"""Packages of the CUDA toolkit by their names and versions; which of them are of a driver."""

from __future__ import annotations

import re

import pytest

from gpuprov.catalog.cuda import packages
from gpuprov.simulate.standins import extras_cuda
from tests.rows import run_each


@run_each(
    ("name", "toolkit"),
    [
        ("cuda-toolkit-12-4", "12.4"),
        ("cuda-toolkit-12-4-config-common", "12.4"),
        ("cuda-toolkit-12-config-common", ""),
        ("cuda-toolkit-config-common", ""),
        ("cuda-command-line-tools-13-0", "13.0"),
        ("libcublas-dev-12-8", "12.8"),
        ("libnpp-12-8", "12.8"),
        ("libnvjitlink-dev-12-8", "12.8"),
        ("gds-tools-12-8", "12.8"),
        ("cuda-drivers-570", ""),
        ("cuda-drivers", ""),
        ("libnvidia-compute-570", ""),
        ("libcudnn9-cuda-12", ""),
        ("libnccl2", ""),
    ],
)
def test_the_toolkit_of_a_name(name: str, toolkit: str) -> None:
    assert packages.find_toolkit(name) == toolkit


@run_each(
    "name",
    "cuda-drivers cuda-drivers-570 cuda cuda-12-4 cuda-runtime-13-0 nvidia-driver-570-server nvidia-kernel-dkms "
    "nvidia-open libnvidia-compute-570 libcuda1 firmware-nvidia-gsp kmod-nvidia-open-dkms "
    "xserver-xorg-video-nvidia".split(),
)
def test_what_is_of_a_driver_is_not_touched(name: str) -> None:
    patterns = [entry.pattern for entry in packages.read_toolkits_file().driver_patterns]
    assert packages.select_matching([name, "cuda-toolkit-12-4"], patterns) == [name]


def test_a_toolkit_touches_no_driver() -> None:
    names = (
        "cuda-toolkit-12-4 cuda-nvcc-12-4 libcublas-12-4 nvidia-gds-12-4 libcudnn9-cuda-12 libnccl2 "
        "cuda-driver-dev-12-4"
    ).split()
    patterns = [entry.pattern for entry in packages.read_toolkits_file().driver_patterns]
    assert packages.select_matching(names, patterns) == []


def test_what_the_catalogue_says() -> None:
    known = packages.read_toolkits_file()
    facts = [
        *known.parts,
        *known.metapackages,
        *known.foreign,
        *known.driver_patterns,
        *known.libraries,
        *known.compilers,
    ]
    facts += [*known.architectures, *known.notes]
    assert all(key in known.sources for fact in facts for key in fact.source)
    for pattern in (*known.metapackages, *known.foreign, *known.driver_patterns):
        re.compile(pattern.pattern)
    assert packages.find_compiler("12.4.0") == "12.4.99"
    assert packages.is_dropped("13.0", "Volta")
    assert not packages.is_dropped("12.9", "Volta")
    assert not packages.is_dropped("13.0", "Turing")


@run_each(
    ("version", "soname"),
    [
        ("9.2", "libcudart.so.9.2"),
        ("10.0.130", "libcudart.so.10.0"),
        ("10.1", "libcudart.so.10.1"),
        ("10.2.89", "libcudart.so.10.2"),
        ("11.0.3", "libcudart.so.11.0"),
        ("11.8", "libcudart.so.11.0"),
        ("12.4.1", "libcudart.so.12"),
        ("13.0", "libcudart.so.13"),
    ],
)
def test_runtime(version: str, soname: str) -> None:
    """https://github.com/sony/nnabla/issues/1063 lists the files of 11.4."""
    assert packages.derive_runtime(version) == soname


def test_a_stand_ins_runtime_has_the_real_soname(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def library(soname: str) -> bytes:
        asked.append(soname)
        return b""

    monkeypatch.setitem(extras_cuda.RELEASES, "11.8.0", ("11.8.89", "11.8.89", "11.11.3.6"))
    monkeypatch.setitem(extras_cuda.DRIVERS, "11.8.0", "520.61.05")
    monkeypatch.setitem(extras_cuda.LINKER, "11", "989_cuda-11.conf")
    monkeypatch.setattr(extras_cuda, "library", library)
    made = next(extra for extra in extras_cuda.release("11.8.0") if extra.name == "cuda-cudart-11-8")
    assert callable(made.files)
    assert [name.rpartition("/")[2] for name in made.files("deb")] == ["libcudart.so.11.8.89"]
    assert asked == ["libcudart.so.11.0"]
