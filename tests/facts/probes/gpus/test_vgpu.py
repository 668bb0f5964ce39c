"""nvidia-gridd and the licence: what is printed on a host, as facts; and that no token's content is."""

from __future__ import annotations

import hashlib
from pathlib import Path

from gpuprov.facts.probes.base import Output
from gpuprov.facts.probes.gpus import vgpu
from tests.capabilities.vgpu_host import token_text
from tests.facts.probes import run_script
from tests.rows import run_each

CONF = """# Description: Set Feature to be enabled
FeatureType=1
 EnableUI = TRUE   # shown
#LicenseInterval=1440
"""


def read(root: Path, **programs: str) -> tuple[vgpu.Gridd, str]:
    script = vgpu.GRIDD.script.replace("/etc/nvidia", str(root)).replace(
        "/usr/bin/nvidia-gridd", f"{root}/bin/nvidia-gridd"
    )
    output = run_script(script, root, programs)
    return vgpu.parse_gridd(output), output.text


SYSTEMCTL = "printf 'LoadState=loaded\\nActiveState=active\\nUnitFileState=enabled\\n'"


def test_a_licensed_guest(tmp_path: Path) -> None:
    (tmp_path / "gridd.conf").write_text(CONF, encoding="utf-8")
    folder = tmp_path / "ClientConfigToken"
    folder.mkdir()
    token = folder / "client_configuration_token_1.tok"
    text = token_text(exp=1_900_000_000, nested={"exp": 65537})
    token.write_text(text, encoding="utf-8")
    token.chmod(0o744)
    (folder / "readme.tok").write_text("no token", encoding="utf-8")
    journal = f'echo "Failed to read {text}"'
    found, printed = read(tmp_path, systemctl=SYSTEMCTL, journalctl=journal, **{"nvidia-gridd": ""})
    assert found.installed
    assert found.settings == {"FeatureType": "1", "EnableUI": "TRUE"}
    assert (found.load, found.active, found.file) == ("loaded", "active", "enabled")
    assert found.configured
    assert [(one.path, one.mode, one.expires) for one in found.tokens] == [(str(token), "0744", 1_900_000_000)]
    assert found.tokens[0].sha256 == hashlib.sha256(text.encode()).hexdigest()
    assert found.log == ("Failed to read (token)",)
    assert not [part for part in text.split(".") if part in printed], "a token's content leaves the host"


@run_each("content", ["", "no token", "a.b.c", f"x.{'A' * 5}.y"])
def test_what_is_no_token_has_no_expiry(tmp_path: Path, content: str) -> None:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    (folder / "client_configuration_token_1.tok").write_text(content, encoding="utf-8")
    (tmp_path / "gridd.conf").write_text(f'ClientConfigTokenPath="{folder}"\n', encoding="utf-8")
    found, _ = read(tmp_path, systemctl="exit 1", journalctl="exit 1")
    assert [one.expires for one in found.tokens] == [0]
    assert not found.installed
    assert (found.load, found.log) == ("not-found", ())


def test_a_host_without(tmp_path: Path) -> None:
    found, _ = read(tmp_path, systemctl="exit 1", journalctl="exit 1")
    assert found == vgpu.Gridd()


SMI = """
==============NVSMI LOG==============

Driver Version                            : 570.133.20

Attached GPUs                             : 2
GPU 00000000:02:00.0
    Product Name                          : GRID V100D-8C
    GPU Virtualization Mode
        Virtualization Mode               : VGPU
        Host VGPU Mode                    : N/A
    vGPU Software Licensed Product
        Product Name                      : NVIDIA Virtual Compute Server
        License Status                    : Licensed (Expiry: 2025-3-19 7:29:4 GMT)
    GPU Reset Status
        Reset Required                    : N/A
GPU 00000000:03:00.0
    Product Name                          : NVIDIA H100
    GPU Virtualization Mode
        Virtualization Mode               : Pass-Through
"""


def test_licences_of_nvidia_smi(tmp_path: Path) -> None:
    (tmp_path / "smi.txt").write_text(SMI, encoding="utf-8")
    found = vgpu.parse_licences(run_script(vgpu.LICENCES.script, tmp_path, {"nvidia-smi": f"cat {tmp_path}/smi.txt"}))
    assert found.complaint == ""
    assert [(one.bus, one.mode, one.product, one.status) for one in found.gpus] == [
        ("0000:02:00.0", "VGPU", "NVIDIA Virtual Compute Server", "Licensed (Expiry: 2025-3-19 7:29:4 GMT)"),
        ("0000:03:00.0", "Pass-Through", "", ""),
    ]
    assert (found.gpus[0].expires, found.gpus[1].expires) == (1_742_369_344, 0)


def test_nvidia_smi_that_cannot() -> None:
    assert vgpu.parse_licences(Output("", 127)).complaint == "nvidia-smi is not installed"
    assert vgpu.parse_licences(Output("No devices were found\n")).complaint == "No devices were found"
    assert vgpu.parse_licences(Output("")).complaint == "nvidia-smi shows no GPU"
