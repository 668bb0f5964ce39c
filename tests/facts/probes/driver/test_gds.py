"""What gdscheck prints in its releases, and how the scripts of GPUDirect Storage read a host."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from gpuprov.capabilities.cuda_toolkit.fragment import CudaToolkit
from gpuprov.capabilities.gds.fragment import Gds
from gpuprov.facts.probes.base import Facts, Output, ProbeFailed
from gpuprov.facts.probes.driver import gds
from gpuprov.spec.model import Fragment, HostSpec
from tests.rows import run_each

REAL = Path(__file__).parents[3] / "real"


def check(name: str) -> gds.GdsCheck:
    text = "".join(f"said|{line}\n" for line in (REAL / f"gdscheck-{name}" / "gdscheck.txt").read_text().splitlines())
    return Facts({"gds_check": Output(text)}).get(gds.CHECK)


def test_modes_of_1_16() -> None:
    said = check("1.16-nvfs-l4")
    assert (said.release, said.module, said.verified, said.iommu) == ("1.16.0.49", "2.27", True, "disabled")
    assert said.modes["NVMe"] == ("nvfs", "compat")
    assert said.direct("NVMe") == ("nvfs",)
    assert said.direct("NVMeOF") == ()
    assert said.direct("FSx Lustre") == ("supported",)
    assert said.direct("WekaFS") == ("dmabuf",)
    assert "--DmaBuf support" not in said.modes
    assert said.settings["properties.use_compat_mode"] == "true"
    assert said.settings["fs.lustre.posix_gds_min_kb"] == "0"
    assert said.gpus == (gds.CheckedGpu("NVIDIA L4", True, "Disabled"),)


def test_p2pdma_in_a_row_of_its_own_and_no_nvidia_fs() -> None:
    said = check("1.15-p2pdma-l40s")
    assert said.direct("NVMe P2PDMA") == ("supported",)
    assert said.modes["NVMe"] == ()
    assert said.module == ""
    assert said.verified


def test_an_iommu_that_is_on() -> None:
    said = check("1.11-a6000-iommu")
    assert said.iommu == "Pass-through or enabled"
    assert [gpu.iommu for gpu in said.gpus] == ["Pass-through or Enabled"] * 4
    assert said.warnings == (
        "WARN: GDS is not guaranteed to work functionally or in a performant way with iommu=on/pt",
    )


def test_without_a_gpu() -> None:
    said = check("1.18-no-gpu")
    assert (said.gpus, said.verified, said.module) == ((), False, "")
    assert said.modes["NVMe"] == ("compat",)


def test_switches_with_acs() -> None:
    said = gds.parse_check(Output("said| Found ACS enabled for switch 86:10.0\n"))
    assert said.warnings == ("Found ACS enabled for switch 86:10.0",)


def test_a_program_that_ends_with_an_error() -> None:
    said = gds.parse_check(Output("said|error while loading shared libraries: libcuda.so.1\n"))
    assert (said.installed, said.modes, said.last) == (True, {}, "error while loading shared libraries: libcuda.so.1")


def test_no_program() -> None:
    assert not Facts({"gds_check": Output("none|\n")}).get(gds.CHECK).installed


def test_silence_is_no_answer() -> None:
    with pytest.raises(ProbeFailed):
        Facts({"gds": Output("")}).get(gds.GDS)


@run_each(
    ("own", "cuda", "found"),
    [
        (Gds(), None, ""),
        (Gds(toolkit="12.8"), CudaToolkit(versions=("13.0.2",)), "12.8"),
        (Gds(), CudaToolkit(versions=("12.4.1", "12.10", "12.8"), default="12.8"), "12.8"),
        (Gds(), CudaToolkit(versions=("12.4.1", "12.10", "12.8")), "12.10"),
        (Gds(), CudaToolkit(), ""),
    ],
)
def test_the_release(own: Gds, cuda: CudaToolkit | None, found: str) -> None:
    blocks: dict[str, Fragment] = {"cuda_toolkit": cuda} if cuda else {}
    assert gds.toolkit(HostSpec(name="gpu1", capabilities=blocks), own) == found


def test_the_script_runs_the_tool_of_the_release_and_lets_it_write_no_log(tmp_path: Path) -> None:
    tool = tmp_path / "usr/local/cuda-12.8/gds/tools/gdscheck"
    tool.parent.mkdir(parents=True)
    lines = ("GDS release version: 1.13.1.3", "DRIVER CONFIGURATION:", "NVMe : $CUFILE_LOGFILE_PATH")
    tool.write_text("#!/bin/sh\n" + "".join(f'echo "{line}"\n' for line in lines) + "pwd\n")
    tool.chmod(0o755)
    host = HostSpec(name="gpu1", capabilities={"gds": Gds(toolkit="12.8")})
    script = gds.CHECK.of(host).script.replace("/usr/local/cuda", f"{tmp_path}/usr/local/cuda")
    done = subprocess.run(["sh", "-c", script], check=True, capture_output=True, text=True, env=dict(os.environ))
    said = gds.parse_check(Output(done.stdout))
    assert (said.release, said.modes["NVMe"], said.last) == ("1.13.1.3", ("/dev/null",), "/")


def test_the_host_script_runs_here() -> None:
    done = subprocess.run(["sh", "-c", gds.GDS.script], check=True, capture_output=True, text=True)
    state = gds.parse(Output(done.stdout))
    assert state.kernel == os.uname().release


def test_a_host_as_its_script_prints_it() -> None:
    text = (
        "kernel|6.8.0-79-generic\nid|ubuntu\nlink|/usr/local/cuda-12.8/gds/cufile.json\nmodule|2.25.7\non_disk|2.25.7\n"
    )
    state = gds.parse(Output(f"{text}licence|Dual MIT/GPL\np2pdma|yes\nmultipath|Y\n"))
    assert (state.ubuntu, state.is_open, state.p2pdma, state.multipath) == (True, True, True, "Y")
    assert gds.parse(Output("kernel|x\nlicence|NVIDIA\n")).is_open is False
    assert gds.parse(Output("kernel|x\n")).is_open is None
