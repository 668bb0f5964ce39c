"""The comparison of a real host's own words with each other and with the catalogue (tests/real_host.py), on a simulated
one's."""

from __future__ import annotations

import json
from typing import Any

from gpuprov.facts.captures import Record, RecordedFacts
from gpuprov.facts.probes.base import Output
from tests import real_host
from tests.rows import run_each

GPU = {
    "index": 0,
    "number": 0,
    "minor": 0,
    "address": "0000:19:00.0",
    "uuid": "GPU-00000001-0000-0000-0000-000000000000",
    "name": "NVIDIA H100 80GB HBM3",
    "pci": "10de:2330",
    "subsystem": "10de:16c1",
    "capable": True,
    "profiles": [{"name": "1g.10gb", "id": 19, "slices": 1, "count": 7, "size": 1, "starts": [0, 1, 2, 3, 4, 5, 6]}],
}
SMI = "00000000:19:00.0, NVIDIA H100 80GB HBM3, GPU-00000001-0000-0000-0000-000000000000, 580.95.05, Enabled\n"


def found(smi: str = SMI, **changed: Any) -> list[str]:
    gpus = json.dumps({"gpus": [{**GPU, **changed}]})
    outputs = {"mig": Output(gpus), "nvidia_smi": Output(smi)}
    record = Record(host="gpu017", path="", kind="capture", outputs=outputs)
    return list(real_host.disagreements(RecordedFacts(record)))


def test_a_host_that_agrees_with_itself_and_with_the_catalogue() -> None:
    assert found() == []


@run_each(
    ("changed", "said"),
    [
        ({"uuid": "GPU-2"}, "NVML says NVIDIA H100 80GB HBM3 GPU-2, nvidia-smi"),
        ({"address": "0000:3b:00.0"}, "nvidia-smi does not list it"),
        ({"pci": "10de:ffff"}, "the catalogue does not know 10de:ffff"),
        ({"capable": False}, "MIG capable by the catalogue: True, by NVML: False"),
        ({"profiles": [{**GPU["profiles"][0], "name": "1g.99gb"}]}, "has no profile 1g.99gb"),  # type: ignore[index]
        ({"profiles": [{**GPU["profiles"][0], "count": 6}]}, "1g.10gb: instances 6 by NVML, 7 in the catalogue"),  # type: ignore[index]
        ({"profiles": [{**GPU["profiles"][0], "starts": [0]}]}, "starts (0,) by NVML, (0, 1, 2, 3, 4, 5, 6)"),  # type: ignore[index]
    ],
)
def test_each_disagreement_is_told(changed: dict[str, Any], said: str) -> None:
    assert any(said in line for line in found(**changed))


def test_a_gpu_that_only_nvidia_smi_lists() -> None:
    more = SMI.replace("19:00.0", "3b:00.0").replace("GPU-00000001", "GPU-00000002")
    assert found(SMI + more) == ["0000:3b:00.0: NVML's reader does not list it"]
