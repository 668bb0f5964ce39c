"""What the XML of nvidia-smi says of GPUs, by the names of old drivers too."""

from __future__ import annotations

from pathlib import Path

from gpuprov.facts.captures import smi_xml
from gpuprov.facts.probes.base import Output
from gpuprov.facts.probes.gpus import gpu_health
from tests.facts.captures.test_plain import XML, found
from tests.rows import run_each

OLD = (
    XML.replace("nvsmi_device_v13", "nvsmi_device_v10")
    .replace("pending_blacklist", "pending_retirement")
    .replace("<retired_count>N/A", "<retired_count>3")
)
"""As a driver of the 418 names the page that waits for its retirement."""


@run_each(
    ("pending", "status"),
    [
        ("<pending_retirement>Yes</pending_retirement>", "fail"),
        ("<pending_retirement>No</pending_retirement>", "pass"),
        ("<pending_retirement>N/A</pending_retirement>", "skip"),
        ("", "skip"),
        ("<pending_blacklist>No</pending_blacklist><pending_retirement>Yes</pending_retirement>", "fail"),
        ("<pending_blacklist>Yes</pending_blacklist><pending_retirement>No</pending_retirement>", "fail"),
    ],
)
def test_a_page_that_waits_for_retirement_is_read_by_either_name(tmp_path: Path, pending: str, status: str) -> None:
    path = tmp_path / "smi.xml"
    path.write_text(OLD.replace("<pending_retirement>N/A</pending_retirement>", pending))
    assert found(path)["health.retired_pages"].status == status


def test_the_serial_number_of_a_gpu_is_read_from_the_xml() -> None:
    text = XML.replace("<uuid>", "<serial>1320220012345</serial><uuid>")
    assert gpu_health.parse(Output(f"@smi\n{smi_xml.convert(text)}")).gpus[0].serial == "1320220012345"


def test_no_gpu_in_nvidia_smi_says_nothing_of_a_bus_that_nobody_has_read(tmp_path: Path) -> None:
    none = f"{XML.partition('<gpu id')[0].replace('gpus>1', 'gpus>0')}</nvidia_smi_log>"
    (tmp_path / "smi.xml").write_text(none)
    results = found(tmp_path / "smi.xml")
    assert {results[f"health.{name}"].status for name in ("gpus", "ecc_mode", "clocks", "firmware")} == {"skip"}
    assert results["health.gpus"].found == "nvidia-smi -q shows no GPU; the record does not hold the PCI bus"
    (tmp_path / "lspci.txt").write_text(
        "61:00.0 3D controller [0302]: NVIDIA Corporation Device [10de:2bb4] (rev a1)\n"
    )
    result = found(tmp_path)["health.gpus"]
    assert (result.status, result.found) == ("fail", "it says that no GPU is attached")
