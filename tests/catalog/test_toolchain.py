"""Which packages of the CUDA toolkit a host shall have: names, releases and their components, what a transaction touches."""

from __future__ import annotations

import re
from typing import Any

import pytest

from gpuprov.catalog import toolkits
from gpuprov.shared import toolchain
from gpuprov.simulate.standins import extras_cuda

REQUIRES = """\
@cuda-toolkit-12-4|12.4.1-1
cuda-compiler-12-4 (>= 12.4.1)
cuda-tools-12-4 (>= 12.4.1)
libc6 (>= 2.27)
@cuda-toolkit-12-4|12.4.0-1
cuda-compiler-12-4 (>= 12.4.0)
@cuda-compiler-12-4|12.4.1-1
cuda-nvcc-12-4 >= 12.4.131
@cuda-compiler-12-4|12.4.0-1
cuda-nvcc-12-4 >= 12.4.99
@cuda-nvcc-12-4|12.4.131-1
cuda-compiler-12-4 (>= 12.4.1)
@cuda-nvcc-12-4|12.4.99-1
"""
TOOLKIT = "cuda-toolkit-12-4"


@pytest.mark.parametrize(
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
    assert toolchain.toolkit_of(name) == toolkit


def test_an_older_release_gets_the_components_it_was_made_with() -> None:
    newest = toolchain.components(REQUIRES, {TOOLKIT: "12.4.1-1"}, {})
    assert newest == {TOOLKIT: "12.4.1-1", "cuda-compiler-12-4": "12.4.1-1", "cuda-nvcc-12-4": "12.4.131-1"}
    older = toolchain.components(REQUIRES, {TOOLKIT: "12.4.0-1"}, newest)
    assert older == {TOOLKIT: "12.4.0-1", "cuda-compiler-12-4": "12.4.0-1", "cuda-nvcc-12-4": "12.4.99-1"}
    assert toolchain.arguments(older, newest) == [f"{name}={version}" for name, version in older.items()]
    assert toolchain.arguments(older, older) == []


def test_what_a_mirror_has_no_more() -> None:
    pruned = REQUIRES.replace("@cuda-nvcc-12-4|12.4.99-1\n", "")
    asked = {TOOLKIT: "12.4.0-1"}
    assert toolchain.components(pruned, asked, {})["cuda-nvcc-12-4"] == "12.4.131-1"
    assert toolchain.components(pruned, asked, {"cuda-nvcc-12-4": "12.4.105-1"})["cuda-nvcc-12-4"] == "12.4.105-1"
    assert toolchain.components("", asked, {}) == asked


@pytest.mark.parametrize(
    "name",
    "cuda-drivers cuda-drivers-570 cuda cuda-12-4 cuda-runtime-13-0 nvidia-driver-570-server nvidia-kernel-dkms nvidia-open "
    "libnvidia-compute-570 libcuda1 firmware-nvidia-gsp kmod-nvidia-open-dkms xserver-xorg-video-nvidia".split(),
)
def test_what_is_of_a_driver_is_not_touched(name: str) -> None:
    patterns = toolkits.tables()["driver_patterns"]
    assert toolchain.matching([name, "cuda-toolkit-12-4"], patterns) == [name]


def test_a_toolkit_touches_no_driver() -> None:
    names = "cuda-toolkit-12-4 cuda-nvcc-12-4 libcublas-12-4 nvidia-gds-12-4 libcudnn9-cuda-12 libnccl2 cuda-driver-dev-12-4".split()
    assert toolchain.matching(names, toolkits.tables()["driver_patterns"]) == []


def wanted(**fields: Any) -> dict[str, Any]:
    return {"versions": ["12.4"], "default": "", "parts": "toolkit", "cudnn": "", "nccl": "", "only": False} | fields


def decide(index: dict[str, list[str]], installed: dict[str, str] | None = None, **fields: Any) -> dict[str, Any]:
    return toolchain.decide(
        wanted(**fields), toolkits.tables(), "debian", {TOOLKIT: ["12.4.1-1"]} | index, installed or {}
    )


def test_one_cudnn_is_on_a_host() -> None:
    index = {name: ["9.20.0.48-1"] for name in ("libcudnn9-cuda-12", "libcudnn9-dev-cuda-12")}
    there = {
        "libcudnn9-cuda-13": "9.20.0.48-1",
        "libcudnn9-dev-cuda-13": "9.20.0.48-1",
        "libnccl2": "2.28.9-1+cuda13.0",
    }
    found = decide(index, there, cudnn="9")
    assert (found["problem"], found["remove"]) == ("", ["libcudnn9-cuda-13", "libcudnn9-dev-cuda-13"])
    assert decide(index, there)["remove"] == []


def test_a_version_that_the_parts_of_a_library_do_not_share_is_none() -> None:
    found = decide({"libnccl2": ["2.21.5-1+cuda12.4"], "libnccl-dev": ["2.20.5-1+cuda12.4"]}, nccl="2")
    assert found["problem"] == "the host's repositories have no nccl 2 for CUDA 12 (libnccl2 libnccl-dev)"
    assert found["packages"] == {}


def test_names_to_ask_the_index_for() -> None:
    table = toolkits.tables()
    assert toolchain.names(wanted(nccl="2"), table, "redhat") == [TOOLKIT, "libnccl", "libnccl-devel"]
    everything = toolchain.names(wanted(versions=[]), table, "debian")
    assert {"cuda-toolkit-12-4", "cuda-toolkit-13-0"} <= set(everything)


def test_what_the_catalogue_says() -> None:
    known = toolkits.toolkits_file()
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
    assert toolkits.compiler("12.4.0") == "12.4.99"
    assert toolkits.dropped("13.0", "Volta")
    assert not toolkits.dropped("12.9", "Volta")
    assert not toolkits.dropped("13.0", "Turing")


@pytest.mark.parametrize(
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
    assert toolchain.runtime(version) == soname


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
