"""cuda_toolkit: what the role brings about; what waits for a package source; what is refused."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from gpuprov.capabilities.base import Context
from gpuprov.capabilities.cuda_toolkit.desired import PROFILE
from gpuprov.capabilities.cuda_toolkit.desired import make as make_values
from gpuprov.capabilities.cuda_toolkit.fragment import CudaToolkit
from gpuprov.capabilities.nvidia_driver.fragment import NvidiaDriver
from gpuprov.facts.probes.base import Output, ProbeFailed
from gpuprov.play.preflight.judging import judge, waiting
from gpuprov.spec.model import HostSpec
from gpuprov.spec.repository import Repository
from tests.capabilities import contexts
from tests.capabilities.asking import CHECKS, facts, good
from tests.capabilities.cuda_host import CUDNN, GOOD, packages, toolkits
from tests.capabilities.test_cuda_toolkit import REQUIRES
from tests.capabilities.test_cuda_toolkit_preflight import SLES
from tests.rows import run_each

make: Callable[..., Any] = make_values


NO_TOOLKIT = toolkits(link="", libraries=(), header="", profile=False)
BARE: dict[str, Any] = {"cuda_packages": "", "cuda_toolkits": NO_TOOLKIT}
ONE = CudaToolkit(versions=("12.4",))
MIRROR = Repository(url="https://mirror.example/cuda", key_url="https://mirror.example/k", fingerprint="A" * 40)
SET = ["update-alternatives", "--set", "cuda", "/usr/local/cuda-12.4"]


def argvs(made: dict[str, Any]) -> list[list[str]]:
    """Return the commands that the role runs."""
    return [one["argv"] for one in made["tasks"]["command"]]


def context(block: CudaToolkit = ONE, driver: NvidiaDriver | None = None, **changed: Any) -> Context[CudaToolkit]:
    host = contexts.spec(nvidia_driver=driver, cuda_toolkit=block)
    return contexts.context("cuda_toolkit", host, {**GOOD, "cuda_requires": REQUIRES, **changed})


def test_a_bare_host_gets_every_component_in_its_version_and_the_default_by_hand() -> None:
    made = make(context(**BARE))
    assert made["install"] == ["cuda-toolkit-12-4=12.4.1-1", "cuda-compiler-12-4=12.4.1-1", "cuda-nvcc-12-4=12.4.131-1"]
    assert (made["remove"], made["hold"], made["release"], made["later"]) == ([], [], [], {})
    register = ["update-alternatives", "--install", "/usr/local/cuda", "cuda", "/usr/local/cuda-12.4", "124"]
    assert argvs(made) == [register, SET, ["ldconfig"]]
    assert made["of"] == "the CUDA toolkit 12.4"
    assert made["problem"] == "", "what is not installed yet says nothing"


def test_a_host_that_is_right_stays_as_it_is() -> None:
    made = make(context(cuda_packages=packages(cuda_compiler_12_4="12.4.1-1")))
    assert (made["install"], made["remove"], argvs(made), made["problem"]) == ([], [], [], "")
    assert {"cuda-toolkit-12-4", "cuda-nvcc-12-4", "libcublas-12-4"} <= set(made["hold"])
    assert not {"cuda-toolkit-13-0", "libnccl2"} & set(made["hold"]), "others are nobody's business"
    unheld = CudaToolkit(versions=("12.4",), hold=False)
    freed = make(context(unheld, cuda_packages=packages(cuda_compiler_12_4="12.4.1-1")))
    assert (freed["hold"], freed["release"]) == ([], made["hold"])


@run_each(
    ("state", "commands"),
    [
        ({"mode": "auto mode"}, [SET, ["ldconfig"]]),
        ({"link": "alternatives /usr/local/cuda-13.0"}, [SET, ["ldconfig"]]),
        ({}, []),
    ],
)
def test_the_default_is_set_by_hand(state: dict[str, Any], commands: list[list[str]]) -> None:
    assert argvs(make(context(cuda_toolkits=toolkits(**state)))) == commands


def test_the_file_for_login_shells() -> None:
    assert make(context())["files"] == {"/etc/profile.d/gpuprov-cuda.sh": PROFILE}
    assert PROFILE.endswith('export PATH="/usr/local/cuda/bin${PATH:+:$PATH}"\n')
    without = make(context(CudaToolkit(versions=("12.4",), path=False)))
    assert (without["files"], without["absent"]) == ({}, ["/etc/profile.d/gpuprov-cuda.sh"])


@run_each(
    ("nvcc", "said"), [("", "says nothing. Fix"), ("13.0 13.0.88", "says release 13.0. Fix"), ("12.4 12.4.99", "")]
)
def test_a_compiler_that_does_not_say_its_release_is_refused(nvcc: str, said: str) -> None:
    told = make(context(cuda_toolkits=toolkits(nvcc=nvcc)))["problem"]
    assert (said in told) if said else told == ""
    libraries = packages(part="libraries")
    without = context(
        CudaToolkit(versions=("12.4",), parts="libraries"), cuda_packages=libraries, cuda_toolkits=NO_TOOLKIT
    )
    assert make(without)["problem"] == ""


def test_what_else_is_there_leaves_with_only() -> None:
    block = CudaToolkit(versions=("12.4",), only=True)
    made = make(context(block, cuda_packages=packages("ii ", cuda="13.0.2-1")))
    assert {"cuda-toolkit-13-0", "cuda-nvcc-13-0", "cuda"} <= set(made["remove"])
    assert "cuda-toolkit-12-4" not in made["remove"]


def test_no_transaction_may_touch_a_driver() -> None:
    refuse = make(context())["refuse"]
    names = ("cuda-drivers", "libcuda1", "nvidia-kernel-dkms", "kmod-nvidia-open-dkms")
    assert all(any(re.fullmatch(pattern, name) for pattern in refuse["patterns"]) for name in names)
    assert (refuse["why"], refuse["fix"][:16]) == (
        "the driver is nvidia_driver's alone, and no toolkit brings, moves or removes one",
        "look on the host",
    )


def test_components_that_cannot_be_read_are_not_left_to_chance() -> None:
    with pytest.raises(ProbeFailed, match=r"what cuda-toolkit-12-4 12\.4\.1-1 depends on cannot be read"):
        make(context(**BARE, cuda_requires=""))
    assert make(context(cuda_requires=""))["install"] == [], "nothing is to be installed"


def test_what_the_drivers_source_brings_waits_for_it() -> None:
    mirror = NvidiaDriver(version="580", source="mirror", repository=MIRROR)
    made = make(context(ONE, mirror, **BARE, cuda_index=""))
    assert made["later"]["told"] == "CUDA toolkit 12.4 is resolved when apply has added https://mirror.example/cuda"
    assert made["later"]["problem"].startswith("the host's repositories have no cuda-toolkit-12-4 12.4. Fix: enable")
    assert (made["install"], argvs(made)) == ([], [])
    assert waiting({"cuda_toolkit": made, "kernel": {}}) == {"cuda_toolkit": made["later"]}
    assert make(context(ONE, mirror))["later"] == {}, "what is there needs no source"


def test_the_driver_that_was_resolved_decides_which_toolkit_is_the_newest() -> None:
    old = {
        **BARE,
        "driver_libraries": "/usr/lib/libcuda.so.570.211.01\n",
        "cuda_requires": "@cuda-toolkit-13-0|13.0.2-1\n",
    }
    made = make(context(CudaToolkit(), NvidiaDriver(version="580.95.05"), **old))
    assert made["install"] == ["cuda-toolkit-13-0=13.0.2-1"]


def test_another_package_manager_at_work_is_told() -> None:
    busy = Output("", 200, "Existing lock: locked by 77")
    outcome = CHECKS["cuda_toolkit.resolvable"].run(context(**BARE, cuda_index=busy))
    assert outcome.status == "fail"
    assert "another package manager is at work" in outcome.found


def test_sles_is_refused_before_anything_is_worked_out() -> None:
    texts = {**good(), **GOOD, **BARE, "cuda_requires": "", "login": "", **SLES}
    spec = HostSpec(name="gpu1", capabilities={"cuda_toolkit": ONE})
    verdict = judge(spec, facts(**texts), ["cuda_toolkit"], preflight=True)
    assert [line for line in verdict.refusals if "Fix: zypper install cuda-toolkit-" in line]
    assert verdict.desired == {}


def test_what_is_released_from_a_hold_is_cudnns_too() -> None:
    made = make(context(CudaToolkit(versions=("12.4",), cudnn="9", hold=False)))
    assert f"libcudnn9-cuda-12={CUDNN}" not in made["install"]
    assert {"libcudnn9-cuda-12", "libcudnn9-dev-cuda-12"} <= set(made["release"])
