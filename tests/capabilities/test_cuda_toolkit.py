"""cuda_toolkit: two exact toolkits beside each other, the default, cuDNN and NCCL, held; export; which versions are
chosen."""

from __future__ import annotations

from typing import Any

import pytest

from gpuprov.capabilities import cuda_toolkit
from gpuprov.capabilities.cuda_toolkit.decision import Decision, There, components, decide, space_needed
from gpuprov.capabilities.cuda_toolkit.fragment import CudaToolkit
from gpuprov.facts.probes.base import Output
from gpuprov.facts.probes.driver.cuda_toolkit import parse_requires
from tests.capabilities.asking import CHECKS, Row, facts, judge
from tests.capabilities.asking import GOOD as OTHERS
from tests.capabilities.cuda_host import CUDNN, GOOD, NCCL, packages, rpms, toolkits
from tests.facts.probes import captured
from tests.rows import run_each

NOTHING = "space 40960000 /usr/local\nspace 40960000 /var\n"
BOTH = CudaToolkit(versions=("12.4", "13.0.2"), default="12.4", cudnn="9", nccl="2.21")
ROCKY = {"os_release": 'ID="rocky"\nVERSION_ID="9.4"\nID_LIKE="rhel centos fedora"\nPRETTY_NAME="Rocky Linux 9.4"\n'}

EL = ROCKY | {"cuda_packages": rpms()}
ELEVEN = {"cuda_packages": "hi |cuda-toolkit-11-8|11.8.0-1|cuda\n"}
TEN = {"cuda_packages": "hi |cuda-toolkit-10-2|10.2.89-1|cuda\n"}


def row(
    name: str, check: str, block: CudaToolkit | None, changed: dict[str, Any], status: str, *told: str, change: str = ""
) -> Any:
    """A row about the good host with two toolkits; `told`: found, fix."""
    identifier = f"cuda_toolkit.{check}"
    base = {probe.name: GOOD[probe.name] for probe in CHECKS[identifier].probes if probe.name in GOOD}
    found, fix = (*told, "", "")[:2]
    asked = Row(name, identifier, block or BOTH, {**base, **changed}, status, found, fix, change=change)
    return pytest.param(asked, id=f"{check}: {name}")


def with_packages(**changed: str | None) -> dict[str, str]:
    return {"cuda_packages": packages("hi ", "toolkit", **changed)}


def kits(**changed: Any) -> dict[str, str]:
    return {"cuda_toolkits": toolkits(**changed)}


ROWS = [
    row("as asked", "packages", None, {}, "pass", "12.4.1, 13.0.2"),
    row("without versions, any", "packages", CudaToolkit(), {}, "pass", "12.4.1, 13.0.2"),
    row("nothing", "packages", None, {"cuda_packages": ""}, "fail", "not installed", "gpuprov apply"),
    row("nothing, without versions", "packages", CudaToolkit(), {"cuda_packages": ""}, "fail", "not installed"),
    row("one is missing", "packages", None, with_packages(cuda_toolkit_13_0=None), "fail",
        "cuda-toolkit-12-4 12.4.1-1"),
    row("another release", "packages", CudaToolkit(versions=("12.4.0",)), {}, "fail", "cuda-toolkit-12-4 12.4.1-1",
        "plan"),
    row("another part", "packages", CudaToolkit(versions=("12.4",), parts="libraries"), {}, "fail", "not installed"),
    row("half installed", "packages", None, {"cuda_packages": packages(state="iU ")}, "fail", "incomplete: cuda",
        "dpkg --configure"),
    row("another cuDNN", "packages", CudaToolkit(versions=("12.4",), cudnn="9.8"), {}, "fail",
        f"libcudnn9-cuda-12 {CUDNN}"),
    row("Rocky", "packages", CudaToolkit(versions=("12.4.1",)), {"cuda_packages": rpms(), **ROCKY}, "pass", "12.4.1"),
    row("the driver runs them", "runs", None, {}, "pass", "driver 580.95.05 runs 12.4, 13.0"),
    row("no driver", "runs", None, {"driver_libraries": ""}, "skip", "no driver is installed"),
    row("an old driver", "runs", None, {"driver_libraries": "/usr/lib/libcuda.so.570.124.06\n"}, "fail",
        "driver 570.124.06", 'nvidia_driver: {cuda: "13.0"}, or an older toolkit: branch 570 is of CUDA 12.8'),
    row("only loaded", "runs", None, {"driver_libraries": "",
                                      "loaded_driver": captured("loaded_driver", "proprietary")}, "fail"),
    row("each says its release", "compilers", None, {}, "pass", "12.4: nvcc 12.4.131, 13.0: nvcc 13.0.88"),
    row("no compiler", "compilers", None, kits(nvcc=""), "fail", "no /usr/local/cuda-12.4/bin/nvcc",
        "--reinstall cuda-nvcc"),
    row(
        "a compiler that does not start", "compilers", None,
        {"cuda_toolkits": toolkits().replace("nvcc 12.4 12.4.131", "complaint nvcc: cannot execute")}, "fail",
        "cannot execute",
    ),
    row("a compiler of another toolkit", "compilers", None, kits(nvcc="13.0 13.0.88"), "fail", "nvcc 13.0.88"),
    row("the compiler of a later release than the one asked for", "compilers",
        CudaToolkit(versions=("12.4.0", "13.0")), with_packages(cuda_toolkit_12_4="12.4.0-1"), "fail", "nvcc 12.4.131"),
    row("the release that is asked for", "compilers", CudaToolkit(versions=("12.4.1",)), {}, "pass",
        "12.4: nvcc 12.4.131"),
    row("no runtime", "compilers", None, kits(cudart=""), "fail", "no such file",
        "apt-get install --reinstall cuda-nvcc-12-4 cuda-cudart-12-4"),
    row("no runtime on EL", "compilers", CudaToolkit(versions=("12.4",)), EL | kits(cudart=""), "fail", "no such file",
        "dnf reinstall cuda-nvcc-12-4 cuda-cudart-12-4"),
    row("a runtime of another version", "compilers", None, kits(cudart="12.4.99"), "fail", "libcudart.so.12.4.99"),
    row("libraries have no compiler", "compilers", CudaToolkit(versions=("12.4",), parts="libraries"), kits(nvcc=""),
        "pass", "12.4: libcudart 12.4.127"),
    row("no toolkit at all", "compilers", CudaToolkit(), {"cuda_packages": "", "cuda_toolkits": NOTHING}, "fail",
        "none is installed"),
    row("set by hand", "default", None, {}, "pass", "/usr/local/cuda-12.4"),
    row("taken by a newer one", "default", None, kits(link="alternatives /usr/local/cuda-13.0", mode="auto mode"),
        "fail", "/usr/local/cuda-13.0", "update-alternatives --set cuda /usr/local/cuda-12.4",
        change="setting /usr/local/cuda: /usr/local/cuda-13.0 auto -> /usr/local/cuda-12.4 manual"),
    row("right, but by itself", "default", None, kits(mode="auto mode"), "fail", "auto mode"),
    row("right as alternatives of EL say it", "default", None, kits(mode="status is manual."), "pass"),
    row("a link by hand", "default", None, kits(link="link /usr/local/cuda-12.4"), "fail", "by link",
        "rm /usr/local/cuda; then gpuprov apply"),
    row("no link", "default", None, kits(link=""), "fail", "not there"),
    row("the newest without a word", "default", CudaToolkit(versions=("12.4", "13.0")), {}, "fail",
        "/usr/local/cuda-12.4"),
    row("nothing to lead to", "default", CudaToolkit(), {"cuda_packages": "", **kits(link="")}, "fail", "no toolkit"),
    row("all are found", "libraries", None, {}, "pass",
        "libcudart.so.12, libcudart.so.13, cudnn 9.5.1.17, nccl 2.21.5"),
    row("a runtime is not in the cache", "libraries", None, kits(libraries=("cudart.so.12.4.127",)), "fail",
        "not in the linker's cache", "ldconfig"),
    row("the runtime of 11 is 11.0", "libraries", CudaToolkit(versions=("11.8",)),
        ELEVEN | kits(libraries=("cudart.so.11.0",)), "pass", "libcudart.so.11.0"),
    row("the runtime of another minor than 10.2", "libraries", CudaToolkit(versions=("10.2",)),
        TEN | kits(libraries=("cudart.so.10.1",)), "fail", "not in the linker's cache"),
    row("the runtime of 10.2", "libraries", CudaToolkit(versions=("10.2",)), TEN | kits(libraries=("cudart.so.10.2",)),
        "pass"),
    row("no cuDNN", "libraries", None, with_packages(libcudnn9_cuda_12=None, libcudnn9_dev_cuda_12=None), "fail",
        "not installed"),
    row("another NCCL", "libraries", CudaToolkit(versions=("12.4",), nccl="2.28"), {}, "fail", NCCL),
    row("another cuDNN comes first", "libraries", None,
        kits(libraries=("cudart.so.12.4.127", "cudart.so.13.0.96", "cudnn.so.9.1.0")), "fail", "libcudnn.so.9.1.0",
        "another copy comes first"),
    row("a header of another", "libraries", None, kits(header="8 9 7"), "fail", "8.9.7"),
    row("no header is needed to run", "libraries", CudaToolkit(versions=("12.4",), parts="libraries", cudnn="9.5.1.17"),
        kits(header=""), "pass", "cudnn 9.5.1.17"),
    row("held", "held", None, {}, "pass", "12 packages held"),
    row("not held", "held", None, {"cuda_packages": packages(state="ii ")}, "fail", "not held: cuda-cudart-12-4",
        "apt-mark hold", change="hold cuda-nvcc-13-0: not held -> held"),
    row("Rocky, not held", "held", CudaToolkit(versions=("12.4",)), {"cuda_packages": rpms(), **ROCKY}, "fail",
        "not held", "dnf versionlock add"),
    row("held against the spec", "held", CudaToolkit(hold=False), {}, "fail", "held: cuda", "apt-mark unhold"),
    row("free, as asked", "held", CudaToolkit(hold=False), {"cuda_packages": packages(state="ii ")}, "pass",
        "not held"),
    row("nothing to hold", "held", None, {"cuda_packages": ""}, "fail", "no package"),
    row("another toolkit is left alone", "others", None, with_packages(libcublas_12_8="12.8.4.1-1"), "n/a",
        "left alone: 12.8"),
    row("none beside", "others", CudaToolkit(only=True), {}, "pass", "no other toolkit"),
    row("another against the spec", "others", CudaToolkit(versions=("12.4",), only=True), {}, "fail",
        "installed: cuda-cudart-13-0", "gpuprov apply", change="package cuda-toolkit-13-0: 13.0.2-1 -> "),
]  # fmt: skip


@run_each("question", ROWS)
def test_toolkits(question: Row) -> None:
    judge(question)


def test_export() -> None:
    found = cuda_toolkit.export(facts(**{**OTHERS, **GOOD}))
    assert found == CudaToolkit(versions=("12.4.1", "13.0.2"), default="12.4", cudnn="9.5.1.17", nccl="2.21.5")
    plain = {
        **OTHERS,
        **GOOD,
        "cuda_packages": packages("ii ", "libraries"),
        "cuda_toolkits": toolkits(mode="auto mode", profile=False),
    }
    wanted = CudaToolkit(versions=("12.4.1", "13.0.2"), parts="libraries", path=False, hold=False)
    assert cuda_toolkit.export(facts(**plain)) == wanted
    assert cuda_toolkit.export(facts(**{**OTHERS, **GOOD, "cuda_packages": ""})) is None


def test_an_exported_host_is_as_its_export_says() -> None:
    found = cuda_toolkit.export(facts(**{**OTHERS, **GOOD}))
    assert isinstance(found, CudaToolkit)
    for check in cuda_toolkit.CAPABILITY.checks:
        changed = {probe.name: GOOD[probe.name] for probe in check.probes if probe.name in GOOD}
        judge(Row(check.id, check.id, found, changed, "n/a" if check.id == "cuda_toolkit.others" else "pass"))


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


@run_each(("driver", "toolkit"), [("", "13.0"), ("580.95.05", "13.0"), ("580.60.01", "12.4"), ("580", "12.4")])
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
