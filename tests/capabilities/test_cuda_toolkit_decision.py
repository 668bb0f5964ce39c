"""Which packages of the CUDA toolkit a host should have: releases and their components, cuDNN and NCCL beside them."""

from __future__ import annotations

from typing import Any

import pytest

from gpuprov.capabilities.cuda_toolkit.decision import Decision, There, components, decide, space_needed
from gpuprov.capabilities.cuda_toolkit.fragment import CudaToolkit
from gpuprov.facts.probes.base import Output
from gpuprov.facts.probes.driver.cuda_toolkit import parse_requires

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


def whole(text: str, chosen: dict[str, str], installed: dict[str, str]) -> dict[str, str]:
    return components(parse_requires(Output(text)), chosen, installed)


def test_an_older_release_gets_the_components_it_was_made_with() -> None:
    newest = whole(REQUIRES, {TOOLKIT: "12.4.1-1"}, {})
    assert newest == {TOOLKIT: "12.4.1-1", "cuda-compiler-12-4": "12.4.1-1", "cuda-nvcc-12-4": "12.4.131-1"}
    older = whole(REQUIRES, {TOOLKIT: "12.4.0-1"}, newest)
    assert older == {TOOLKIT: "12.4.0-1", "cuda-compiler-12-4": "12.4.0-1", "cuda-nvcc-12-4": "12.4.99-1"}


def test_what_a_mirror_has_no_more() -> None:
    pruned = REQUIRES.replace("@cuda-nvcc-12-4|12.4.99-1\n", "")
    asked = {TOOLKIT: "12.4.0-1"}
    assert whole(pruned, asked, {})["cuda-nvcc-12-4"] == "12.4.131-1"
    assert whole(pruned, asked, {"cuda-nvcc-12-4": "12.4.105-1"})["cuda-nvcc-12-4"] == "12.4.105-1"
    assert whole("", asked, {}) == asked


def decided(
    offered: dict[str, list[str]], installed: dict[str, str] | None = None, driver: str = "", **fields: Any
) -> Decision:
    there = There("debian", {TOOLKIT: ["12.4.1-1"]} | offered, installed or {}, driver)
    return decide(CudaToolkit(**({"versions": ("12.4",)} | fields)), there)


def test_one_cudnn_is_on_a_host() -> None:
    offered = {name: ["9.20.0.48-1"] for name in ("libcudnn9-cuda-12", "libcudnn9-dev-cuda-12")}
    there = {
        "libcudnn9-cuda-13": "9.20.0.48-1",
        "libcudnn9-dev-cuda-13": "9.20.0.48-1",
        "libnccl2": "2.28.9-1+cuda13.0",
    }
    found = decided(offered, there, cudnn="9")
    assert (found.problem, found.remove) == ("", ("libcudnn9-cuda-13", "libcudnn9-dev-cuda-13"))
    assert decided(offered, there).remove == ()


def test_a_version_that_the_parts_of_a_library_do_not_share_is_none() -> None:
    found = decided({"libnccl2": ["2.21.5-1+cuda12.4"], "libnccl-dev": ["2.20.5-1+cuda12.4"]}, nccl="2")
    assert found.problem == "the host's repositories have no nccl 2 for CUDA 12 (libnccl2 libnccl-dev)"
    assert found.packages == {}


@pytest.mark.parametrize(
    ("driver", "toolkit"), [("", "13.0"), ("580.95.05", "13.0"), ("580.60.01", "12.4"), ("580", "12.4")]
)
def test_without_versions_the_newest_that_is_known_and_the_driver_runs(driver: str, toolkit: str) -> None:
    offered = {"cuda-toolkit-13-0": ["13.0.2-1"], "cuda-toolkit-19-9": ["19.9.0-1"]}
    assert decided(offered, driver=driver, versions=()).default == toolkit
    kept = decided(offered, {TOOLKIT: "12.4.0-1"}, driver, versions=())
    assert kept.packages == {TOOLKIT: "12.4.0-1"}, "an installed one stays"


def test_room_for_a_library_is_counted_once() -> None:
    names = ("libcudnn9-cuda-12", "libcudnn9-dev-cuda-12")
    offered = {name: ["9.20.0.48-1"] for name in names}
    there = There("debian", {TOOLKIT: ["12.4.1-1"]} | offered, {TOOLKIT: "12.4.1-1"})
    block = CudaToolkit(versions=("12.4",), cudnn="9")
    assert space_needed(decide(block, there), "toolkit", there) == {"installed": 2500, "archive": 1500}
