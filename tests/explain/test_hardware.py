"""Names of hardware: instance types, GPUs as labels write them, MIG profiles; and words that only look like them."""

from __future__ import annotations

import pytest

from gpuprov.catalog.instances import index_by_type
from gpuprov.core.errors import GpuprovError
from gpuprov.explain import Explanation, explain
from tests.rows import run_each


def explain_one(word: str) -> Explanation:
    (answer,) = explain(word)
    return answer


def test_an_instance_type_is_its_gpus_its_fabric_and_how_to_begin() -> None:
    answer = explain_one("p5.48xlarge")
    lines = dict(answer.lines)
    assert (answer.kind, answer.name) == ("instance type", "p5.48xlarge")
    assert lines["GPUs"] == "8 x H100-SXM5-80GB (gpuprov catalog gpus H100-SXM5-80GB)"
    assert lines["fabric"] == "efa"
    assert lines["init"] == "gpuprov init --hosts HOST,... --gpu H100-SXM5-80GB --count 8"
    assert lines["or"] == "gpuprov init --recipe aws-p5 --hosts HOST,..."
    assert lines["source"].startswith("https://")
    assert dict(explain_one("ml.p5.48xlarge").lines) == lines
    assert dict(explain_one("g7.2xlarge").lines)["certainty"] == "inferred"
    assert dict(explain_one("a4-highgpu-8g").lines)["fabric"] == "none, or not known"


def test_every_instance_type_is_known() -> None:
    assert {name for name in index_by_type() if explain_one(name).kind != "instance type"} == set()


@run_each(
    ("word", "kind", "name"),
    [
        ("NVIDIA-H100-80GB-HBM3", "GPU", "H100-SXM5-80GB"),
        ("NVIDIA H100 80GB HBM3", "GPU", "H100-SXM5-80GB"),
        ("10de:2330", "GPU", "H100-SXM5-80GB"),
        ("T4", "GPU", "T4"),
        ("H100", "GPUs", "H100"),
        ("DGX H100", "GPUs", "H100"),
        ("1g.10gb", "MIG profile", "1g.10gb"),
        ("MIG 3g.40gb", "MIG profile", "3g.40gb"),
        ("nvidia.com/mig-1g.10gb", "MIG profile", "1g.10gb"),
        ("Xid", "term", "Xid"),
        ("NVL72", "term", "NVL72"),
    ],
)
def test_a_name_as_it_is_written_elsewhere(word: str, kind: str, name: str) -> None:
    answer = explain_one(word)
    assert (answer.kind, answer.name) == (kind, name)


def test_a_pci_id_without_a_model_is_its_chip() -> None:
    rubin, kepler = dict(explain_one("10de:3041").lines), dict(explain_one("10DE:102D").lines)
    assert rubin["is"] == "10de:3041 (GR100, Rubin)"
    assert rubin["spec"] == "leave gpu out; its driver: open kernel modules only, from branch 615 on"
    assert kepler["is"] == "10de:102d (GK210, Kepler)"
    assert kepler["spec"].endswith("branch 470 is its last")


def test_a_card_older_than_all_drivers_has_its_last_branch() -> None:
    for word in ("Tesla K80", "k80", "NVIDIA Tesla K40m"):
        assert dict(explain_one(word).lines)["is"].endswith("(Kepler), and branch 470 is its last"), word
    with pytest.raises(GpuprovError, match="nothing is known of"):
        explain_one("k8000")


def test_each_answer_says_where_to_go_on() -> None:
    profile = explain_one("1g.10gb").lines
    assert any(text.startswith("H100-SXM5-80GB, ") and "up to 7 on a GPU" in text for _, text in profile), profile
    assert profile[-1] == ("see", "gpuprov catalog mig 1g.10gb; gpuprov mig fit --gpu MODEL 1g.10gb=2")
    assert dict(explain_one("NVIDIA-H100-80GB-HBM3").lines)["init"].endswith("--gpu H100-SXM5-80GB")
    assert 'gpuprov explain "Xid 79"' in dict(explain_one("xid").lines)["means"]


@run_each(
    ("word", "fix"),
    [
        ("p4d.24xlarg", "did you mean p4d.24xlarge"),
        ("H10", "did you mean H100-SXM5-94GB?"),
        ("MI300X", "it is AMD hardware; gpuprov manages NVIDIA GPUs"),
        ("Standard_ND96isr_MI300X_v5", "it is AMD hardware; gpuprov manages NVIDIA GPUs"),
        ("2330", "capabilities: "),
    ],
)
def test_what_only_looks_like_hardware(word: str, fix: str) -> None:
    with pytest.raises(GpuprovError) as caught:
        explain(word)
    assert caught.value.fix.startswith(fix), caught.value.fix
