"""The stand-in gdscheck prints what the reader of the real one understands, and says that it is a stand-in."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from gpuprov.facts.probes.base import Output
from gpuprov.facts.probes.driver import gds as probe
from gpuprov.host_code import json_members
from gpuprov.simulate.standins import extras_gds
from tests.rows import run_each

GPUS = "GPU 0: NVIDIA L40S (UUID: GPU-1)\nGPU 1: NVIDIA L40S (UUID: GPU-2)\n"


def said(
    tmp_path: Path, *, gpus: str = GPUS, module: str = "2.24.2", configuration: str = "", fault: bool = False
) -> probe.GdsCheck:
    programs = tmp_path / "bin"
    programs.mkdir()
    (tmp_path / "gpus").write_text(gpus)
    (programs / "nvidia-smi").write_text(f"#!/bin/sh\ncat {tmp_path}/gpus\n")
    (programs / "modinfo").write_text(f"#!/bin/sh\n[ -z '{module}' ] || echo {module}\n")
    for program in programs.iterdir():
        program.chmod(0o755)
    (tmp_path / "cufile.json").write_text(configuration or extras_gds.asset("cufile.json").content.decode())  # type: ignore[union-attr]
    if fault:
        (tmp_path / "gds-through-cpu").touch()
    script = extras_gds.asset("gdscheck", "1.13.1.3").content
    assert isinstance(script, bytes)
    text = (
        script.decode()
        .replace("/var/lib/gpuprov-sim/faults", str(tmp_path))
        .replace("/etc/cufile.json", f"{tmp_path}/cufile.json")
    )
    environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["sh", "-s", "--", "-p"], input=text, capture_output=True, text=True, check=True, env=environment
    )
    return probe.parse_check(Output("".join(f"said|{line}\n" for line in done.stdout.splitlines())))


def test_a_host_with_nvidia_fs(tmp_path: Path) -> None:
    found = said(tmp_path)
    assert found.release == "1.13.1.3 (gpuprov stand-in)"
    assert (found.module, found.verified, len(found.gpus)) == ("2.24", True, 2)
    assert found.direct("NVMe") == ("supported",)
    assert found.direct("NVMe P2PDMA") == ()
    assert found.settings["properties.use_compat_mode"] == "true"
    assert all(gpu.supported for gpu in found.gpus)


@run_each("name", ["properties.use_pci_p2pdma", "properties.allow_compat_mode"])
def test_it_reads_what_apply_writes(tmp_path: Path, name: str) -> None:
    text = extras_gds.asset("cufile.json").content
    assert isinstance(text, bytes)
    value = "true" if name.endswith("p2pdma") else "false"
    found = said(tmp_path, module="", configuration=json_members.with_keys(text.decode(), {name: value}))
    if name.endswith("p2pdma"):
        assert found.direct("NVMe P2PDMA") == ("supported",)
    else:
        assert found.settings["properties.use_compat_mode"] == "false"
