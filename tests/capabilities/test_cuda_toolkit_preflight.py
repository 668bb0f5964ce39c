"""cuda_toolkit before anything is changed: the repositories, the driver, metapackages that bring one, the place,
room."""

from __future__ import annotations

from typing import Any

from gpuprov.capabilities import cuda_toolkit
from gpuprov.capabilities.base import Context
from gpuprov.capabilities.cuda_toolkit.fragment import CudaToolkit
from gpuprov.capabilities.nvidia_driver.fragment import NvidiaDriver
from gpuprov.spec.model import GpuSpec, HostSpec
from tests.capabilities.asking import CHECKS, Row, facts, judge
from tests.capabilities.asking import GOOD as OTHERS
from tests.capabilities.cuda_host import GOOD
from tests.capabilities.test_cuda_toolkit import BOTH, ROCKY, kits, row, with_packages
from tests.rows import run_each

SLES = {
    "os_release": 'ID="sles"\nID_LIKE="suse"\nVERSION_ID="15.7"\nPRETTY_NAME="SUSE Linux Enterprise Server 15 SP7"\n'
}
BARE = {"cuda_packages": ""}
OLD = {"driver_libraries": "/usr/lib/libcuda.so.535.261.03\n"}
CUDA_12_4 = CudaToolkit(versions=("12.4",))


def only(**fields: Any) -> CudaToolkit:
    return CudaToolkit(versions=("12.4",), **fields)


ROWS = [
    row("all is there", "resolvable", None, {}, "pass",
        "cuda-toolkit-12-4 12.4.1-1, cuda-toolkit-13-0 13.0.2-1, libcudnn9-cuda-12"),
    row("the newest release", "resolvable", CUDA_12_4, BARE, "pass", "cuda-toolkit-12-4 12.4.1-1",
        change="package cuda-toolkit-12-4:  -> 12.4.1-1"),
    row("an installed release stays", "resolvable", CUDA_12_4, with_packages(cuda_toolkit_12_4="12.4.0-1"), "pass",
        "12.4.0-1"),
    row("an older one, by name", "resolvable", CudaToolkit(versions=("12.4.0",)), {}, "pass", "12.4.0-1",
        change="package cuda-toolkit-12-4: 12.4.1-1 -> 12.4.0-1"),
    row("a release that is not there", "resolvable", CudaToolkit(versions=("12.4.2",)), {}, "fail",
        "no cuda-toolkit-12-4 12.4.2",
        "there are: 12.4.1, 12.4.0"),
    row("a toolkit that is not there", "resolvable", CudaToolkit(versions=("12.6",)), {}, "fail",
        "no cuda-toolkit-12-6 12.6",
        "toolkits that are there: 12.4, 12.8, 13.0"),
    row("no repository", "resolvable", CUDA_12_4, {**BARE, "cuda_index": ""}, "fail", "no cuda-toolkit-12-4",
        "CUDA repository"),
    row("without versions, what is installed", "resolvable", CudaToolkit(), {}, "pass",
        "12.4.1-1, cuda-toolkit-13-0 13.0.2-1"),
    row("without versions, the newest", "resolvable", CudaToolkit(), BARE, "pass", "cuda-toolkit-13-0 13.0.2-1"),
    row("the newest that the driver runs", "resolvable", CudaToolkit(), {**BARE, **OLD}, "pass", "cuda-toolkit-12-8"),
    row("without versions or repository", "resolvable", CudaToolkit(), {**BARE, "cuda_index": ""}, "fail",
        "no cuda-toolkit-X-Y"),
    row("the newest cuDNN, with its headers", "resolvable", only(cudnn="9"), BARE, "pass",
        "libcudnn9-headers-cuda-12 9.8.0.87-1"),
    row("an older cuDNN had none", "resolvable", only(cudnn="9.5.1"), BARE, "pass", "libcudnn9-dev-cuda-12 9.5.1.17-1"),
    row("cuDNN 8 of the default's major", "resolvable", only(cudnn="8"), BARE, "pass", "libcudnn8 8.9.7.29-1+cuda12.2"),
    row("to run only", "resolvable", CudaToolkit(versions=("12.4",), parts="libraries", cudnn="9.8"), BARE, "pass",
        "cuda-libraries-12-4 12.4.1-1, libcudnn9-cuda-12 9.8.0.87-1"),

    row("cuDNN that is not there", "resolvable", only(cudnn="9.9"), BARE, "fail", "no cudnn 9.9 for CUDA 12",
        "there are: 9.8.0.87"),
    row("NCCL of the default's major", "resolvable", only(nccl="2"), BARE, "pass",
        "libnccl2 2.28.3-1+cuda12.9, libnccl-dev"),
    row("NCCL built for the newest minor", "resolvable", only(nccl="2.21.5"), BARE, "pass",
        "libnccl2 2.21.5-1+cuda12.5"),
    row("NCCL for no such major", "resolvable", CudaToolkit(versions=("13.0",), nccl="2.21"), BARE, "fail",
        "no nccl 2.21 for CUDA 13",
        "there are: 2.28.3"),
    row("others go", "resolvable", only(only=True), {}, "pass", change="package cuda-toolkit-13-0: 13.0.2-1 -> "),
    row("SLES", "resolvable", only(), {**BARE, **SLES}, "fail", "is not read from zypper yet", "zypper install"),
    row("Rocky has other names", "resolvable", only(nccl="2"), {**BARE, **ROCKY}, "fail", "(libnccl libnccl-devel)",
        "mirror"),
    row("it runs them", "driver", None, {}, "pass", "driver 580.95.05 runs 12.4, 13.0"),
    row("too old", "driver", None, OLD, "fail", "driver 535.261.03", 'nvidia_driver: {cuda: "13.0"}'),
    row("just below the floor", "driver", BOTH, {"driver_libraries": "/usr/lib/libcuda.so.580.64.01\n"}, "fail",
        "driver 580.64.01"),
    row("none", "driver", None, {"driver_libraries": ""}, "skip", "no driver is installed"),
    row("none of them", "metapackages", None, {}, "pass", "no NVIDIA metapackage"),
    row("cuda", "metapackages", None, with_packages(cuda="12.8.1-1"), "fail", "cuda brings the newest driver",
        "apt-get remove cuda"),
    row("cuda-12-4", "metapackages", None, with_packages(cuda_12_4="12.4.1-1"), "fail", "cuda-12-4 brings a driver",
        "only: true"),
    row("cuda-runtime-12-4", "metapackages", None, with_packages(cuda_runtime_12_4="12.4.1-1"), "fail",
        "cuda-runtime-12-4 brings"),
    row("cuda-toolkit", "metapackages", None, with_packages(cuda_toolkit="13.0.2-1"), "fail",
        "follows the newest toolkit"),
    row("apply removes it", "metapackages", CudaToolkit(only=True), with_packages(cuda="12.8.1-1"), "pass",
        "removed by apply: cuda"),
    row("the distribution's own", "metapackages", CudaToolkit(only=True),
        with_packages(nvidia_cuda_toolkit="11.8.89-5"), "fail",
        "nvidia-cuda-toolkit is the distribution's own", "apt-get remove nvidia-cuda-toolkit"),
    row("of the alternatives", "place", None, {}, "pass", "a link of the alternatives"),
    row("free", "place", None, kits(link=""), "pass", "free"),
    row("a runfile's directory", "place", None, kits(link="directory /usr/local/cuda"), "fail", "a directory",
        "mv /usr/local/cuda"),
    row("a link by hand", "place", None, kits(link="link /opt/cuda"), "fail", "a link by hand to /opt/cuda",
        "rm /usr/local/cuda"),
    row("room", "space", None, BARE, "pass", "40000 MiB free"),
    row("no room for two", "space", None, {**BARE, **kits(free=15_000)}, "fail", "15000 MiB free in /usr/local",
        "minimal-build"),
    row("nothing is needed", "space", None, kits(free=10), "pass", "10 MiB free"),
]  # fmt: skip


@run_each("question", ROWS)
def test_preflight(question: Row) -> None:
    judge(question)


@run_each(
    ("asked", "status", "told"),
    [
        (NvidiaDriver(version="580", cuda="13.0"), "pass", "driver 580.65.06 runs"),
        (NvidiaDriver(cuda="13.0"), "pass", "driver 580.65.06 runs"),
        (NvidiaDriver(cuda="12.4"), "fail", "driver 535.261.03"),
        ("535", "fail", "driver 535"),
        ("580.95.05", "pass", "driver 580.95.05 runs 12.4, 13.0"),
        ("580", "skip", "its release decides whether it runs CUDA 13.0, which needs 580.65.06"),
        ("any", "fail", "driver 535.261.03"),
    ],
)
def test_the_driver_that_the_spec_names_decides(asked: str | NvidiaDriver, status: str, told: str) -> None:
    block = NvidiaDriver(version=asked) if isinstance(asked, str) else asked
    host = HostSpec(name="gpu1", capabilities={"nvidia_driver": block})
    texts = {**OTHERS, **GOOD, **OLD}
    outcome = CHECKS["cuda_toolkit.driver"].run(Context(host, BOTH, facts(**texts)))
    assert outcome.status == status
    assert told in outcome.found


def problems(block: CudaToolkit, driver: str = "", gpu: str = "", wanted: str = "") -> list[tuple[str, str, str]]:
    host = HostSpec(
        name="gpu1",
        gpu=GpuSpec(model=gpu) if gpu else None,
        capabilities={"nvidia_driver": NvidiaDriver(version=driver, cuda=wanted)} if driver else {},
    )
    return [(problem.severity, problem.message, problem.fix) for problem in cuda_toolkit.rules(host, block)]


@run_each(
    ("block", "driver", "gpu", "severity", "message", "fix"),
    [
        (only(default="13.0"), "", "", "error", '"13.0", which is not in versions', "one of: 12.4"),
        (CudaToolkit(default="13.0"), "", "", "error", "and versions is empty", 'versions: ["13.0"]'),
        (CudaToolkit(versions=("12.4", "12.4.1")), "", "", "error", "has 12.4 twice", "take one out"),
        (CudaToolkit(versions=("19.4",)), "", "", "error", "CUDA 19.4 is not in the catalogue",
            'the nearest is "13.4"'),
        (CudaToolkit(versions=("12.44",)), "", "", "error", "CUDA 12.44 is not in the catalogue",
            'the nearest is "12.9"'),
        (CudaToolkit(versions=("12.7.1",)), "580", "", "error", 'has "12.7.1": CUDA 12.7 is not',
            'the nearest is "12.'),
        (only(cudnn="7"), "", "", "error", 'cudnn is "7", whose packages are not known', "9, 8"),
        (only(nccl="3.1"), "", "", "error", 'nccl is "3.1"', "majors that are known: 2"),
        (BOTH, "570", "", "error", "driver 570 does not run CUDA 13.0.2",
            'nvidia_driver: {version: "580", cuda: "13.0"} (or a newer'),
        (BOTH, "570.124.06", "", "error", "driver 570.124.06 does not run CUDA 13.0.2", "older toolkit"),
        (BOTH, "580", "", "warning", "depends on its release",
            '{version: "580", cuda: "13.0"} (or a newer branch) takes 580.65.06'),
        (CudaToolkit(versions=("13.0",)), "", "V100-SXM2", "error", "CUDA 13.0 compiles no more for", "12.x"),
        (BOTH, "", "V100-SXM2", "warning", "CUDA 13.0.2 compiles no more for", "12.x"),
        (CudaToolkit(versions=("12.4", "12.8")), "", "B200", "warning", "CUDA 12.4 compiles no code for B200",
         "12.8 or newer"),
        (CudaToolkit(versions=("12.6",)), "", "RTX-PRO-6000-SE", "warning", "CUDA 12.6 compiles no code for",
         "12.8 or newer"),
        (CudaToolkit(versions=("11.4", "11.8")), "", "H100-PCIE", "warning", "CUDA 11.4 compiles no code for",
         "11.8 or newer"),
    ],
)  # fmt: skip
def test_rules(block: CudaToolkit, driver: str, gpu: str, severity: str, message: str, fix: str) -> None:
    [found] = problems(block, driver, gpu)
    assert found[0] == severity
    assert message in found[1]
    assert fix in found[2]


def test_what_can_work_is_no_problem() -> None:
    assert problems(BOTH, "580.95.05", "H100-SXM5-80GB") == []
    assert problems(CudaToolkit(), "535") == []
    assert problems(BOTH, "580", wanted="13.0") == []
    assert problems(BOTH, "any", wanted="13.0") == []
    assert problems(CudaToolkit(versions=("12.4",)), "535", wanted="12.8") == []


def test_a_cuda_of_the_driver_that_is_older_than_the_toolkit() -> None:
    [(severity, message, fix)] = problems(BOTH, "any", wanted="12.8")
    assert severity == "warning"
    assert "from 525.60.13 on, may not run CUDA 13.0.2" in message
    assert 'nvidia_driver: {cuda: "13.0"}' in fix
