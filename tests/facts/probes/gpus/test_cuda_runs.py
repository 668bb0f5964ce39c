"""The program that runs CUDA on each device, with a stand-in libcuda and nvidia-smi's own words."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gpuprov.facts.probes.base import Output
from gpuprov.facts.probes.gpus.cuda_runs import READER, Run, Runs, parse

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no C compiler")
ME = pwd.getpwuid(os.geteuid()).pw_name
A100, H100 = "GPU-5b6a5a3c-0000-1111-2222-333344445555", "GPU-11111111-aaaa-bbbb-cccc-dddddddddddd"
MIG = ("MIG-c7a2a0b6-8a07-5f3c-9b0c-1f0d7c1f2b6e", "MIG-0d6ea4a4-5a4c-5f1f-8f7d-0c7d8d7a9b11")
SMI = f"""#!/bin/sh
case "$1" in
-L) cat <<'END'
GPU 0: NVIDIA H100 80GB HBM3 (UUID: {H100})
  MIG 3g.40gb     Device  0: (UUID: {MIG[0]})
  MIG 3g.40gb     Device  1: (UUID: {MIG[1]})
GPU 1: NVIDIA A100-SXM4-80GB (UUID: {A100})
END
;;
*) printf '%s\\n' '{H100}, 00000000:18:00.0, Enabled, Default' '{A100}, 00000000:2A:00.0, Disabled, Exclusive_Process';;
esac
"""
Ask = Callable[..., Runs]


@pytest.fixture(scope="module")
def ask(tmp_path_factory: pytest.TempPathFactory) -> Ask:
    """What the program says where libcuda says this; `smi`: nvidia-smi, `patience`: in seconds."""
    folder = tmp_path_factory.mktemp("cuda")
    library = folder / "libcuda.so.1"
    flags = ("-shared", "-fPIC", "-Wall", "-Werror", f'-DSAY="{folder}/say"')
    subprocess.run(["gcc", *flags, "-o", library, Path(__file__).with_name("libcuda.c")], check=True)
    for name in ("ctl", "uvm"):
        (folder / name).touch()

    def run(*lines: str, smi: str = SMI, user: str = ME, patience: float = 30, uvm: str = "uvm") -> Runs:
        (folder / "say").write_text("".join(f"{line}\n" for line in lines))
        (folder / "nvidia-smi").write_text(smi)
        (folder / "nvidia-smi").chmod(0o755)
        text = READER.replace("/dev/nvidiactl", f"{folder}/ctl").replace("/dev/nvidia-uvm", f"{folder}/{uvm}")
        text = text.replace("PATIENCE = 30.0", f"PATIENCE = {patience}")
        environment = {"PATH": f"{folder}:/usr/bin:/bin", "LD_LIBRARY_PATH": str(folder)}
        done = subprocess.run(
            [sys.executable, "-", user], input=text, env=environment, capture_output=True, text=True, check=False
        )
        return parse(Output(done.stdout, done.returncode, done.stderr))

    return run


def test_every_mig_device_and_every_other_gpu_is_tried(ask: Ask) -> None:
    seen = ask()
    assert seen.runs == (
        *(Run(device=device, address="0000:18:00.0", mode="Default") for device in MIG),
        Run(device=A100, address="0000:2a:00.0", mode="Exclusive_Process"),
    )


@pytest.mark.install
@pytest.mark.parametrize(
    ("said", "step", "code"),
    [
        ("cuInit 802", "cuInit", 802),
        ("cuDevicePrimaryCtxRetain 46", "cuDevicePrimaryCtxRetain", 46),
        ("cuMemAlloc 2", "cuMemAlloc", 2),
        ("cuMemcpyHtoD 719", "cuMemcpyHtoD", 719),
        ("cuMemcpyDtoH 214", "cuMemcpyDtoH", 214),
        ("spoil 1", "compare", 0),
        ("cuInit -1", "crash", 0),
        ("cuMemAlloc -2", "hang", 0),
    ],
)
def test_a_device_that_fails_is_told_with_its_step_and_the_others_go_on(
    ask: Ask, said: str, step: str, code: int
) -> None:
    first, second, third = ask(f"{MIG[1]} {said}", patience=1.5).runs
    assert (second.step, second.code) == (step, code)
    assert (first.step, third.step) == ("", "")


@pytest.mark.install
def test_what_keeps_it_from_running_is_told_and_nothing_is_made(ask: Ask) -> None:
    assert ask(user="nobody-has-this-name").obstacle == "no-user"
    assert ask(uvm="gone").obstacle == "no-uvm"
    nothing = ask(smi="#!/bin/sh\necho No devices were found\n")
    assert (nothing.obstacle, nothing.text) == ("no-device", "No devices were found")
    assert ask(smi="").text == "nvidia-smi: Exec format error"
