"""What labels of GPU feature discovery say of nodes -> groups of hosts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpuprov.core.errors import GpuprovError
from gpuprov.init import Draft, Group, judged, kubernetes
from tests.rows import run_each

NODES = Path(__file__).parent / "samples" / "nodes.json"


def group(draft: Draft, host: str) -> Group:
    (found,) = (one for one in draft.groups if host in one.hosts)
    return found


def test_a_product_is_a_model_and_the_operators_driver_is_left_alone() -> None:
    found = group(kubernetes.draft(NODES), "node-h100-2")
    assert found.spec == {
        "gpu": {"model": "H100-SXM5-80GB", "count": 8},
        "nvidia_driver": False,
        "persistence": False,
    }
    assert found.hosts == {"node-h100-1": {"ansible_host": "192.0.2.11"}, "node-h100-2": {"ansible_host": "192.0.2.12"}}
    assert any("nvidia.com/gpu.deploy.driver=true" in note for note in found.notes)


def test_the_hosts_own_driver_is_taken_over() -> None:
    found = group(kubernetes.draft(NODES), "lke529760-766837-0a634ab30000")
    assert found.spec == {"gpu": {"model": "RTX-4000-ADA", "count": 1}, "nvidia_driver": {"version": "580.95.05"}}
    assert found.notes == []


def test_counts_of_instances_are_no_counts_of_gpus() -> None:
    found = group(kubernetes.draft(NODES), "ipp1-0552")
    assert found.spec["gpu"] == {"model": "A100-PCIE-40GB"}
    assert found.spec["nvidia_driver"] == {"version": "460.73.01"}, "the labels of old versions"
    assert any("count (7) is of devices 1g.5gb" in note for note in found.notes)
    shared = group(kubernetes.draft(NODES), "node-t4")
    assert shared.spec == {"gpu": {"model": "T4", "count": 1}}
    assert any(note.startswith("SHARED:") for note in shared.notes)


def test_nodes_without_labels_and_without_gpus() -> None:
    draft = kubernetes.draft(NODES)
    assert group(draft, "nvidia1").spec == {}
    assert "1 node without GPUs" in draft.notes
    assert "1 node has nvidia.com/gpu and no labels of GPU feature discovery" in draft.notes
    assert not any("node-cpu" in one.hosts for one in draft.groups)


def test_check_accepts_it_and_what_it_refuses_is_left_out(tmp_path: Path) -> None:
    text, fleet = judged(kubernetes.draft(NODES))
    assert len(fleet.pairs) == 7
    assert "The NVIDIA driver" in text or "the NVIDIA driver" in text
    nodes = json.loads(NODES.read_text())
    labels = nodes["items"][4]["metadata"]["labels"]
    labels["nvidia.com/gpu.product"], labels["nvidia.com/cuda.driver-version.full"] = "NVIDIA-B200", "535.104.05"
    file = tmp_path / "nodes.json"
    file.write_text(json.dumps({**nodes, "items": nodes["items"][4:5]}))
    draft = kubernetes.draft(file)
    text, fleet = judged(draft)
    assert len(fleet.pairs) == 1
    assert "gpuprov check refuses it, and it is left out" in " ".join(text.replace("#", "").split())


@run_each(
    ("text", "why"),
    [
        ("{}", "not a list of nodes"),
        ('{"items": [{"kind": "Pod"}]}', "not a list of nodes"),
        ("[", "not JSON"),
        ('{"items": [{"kind": "Node", "metadata": {"name": "a"}}]}', "no node with a GPU"),
        ('{"items": [{"kind": "Node", "metadata": {"name": "{{ x }}"}}]}', "no node with a GPU"),
    ],
)
def test_what_is_no_list_of_gpu_nodes(text: str, why: str, tmp_path: Path) -> None:
    file = tmp_path / "nodes.json"
    file.write_text(text)
    with pytest.raises(GpuprovError, match=why):
        kubernetes.draft(file)


def node(name: str, labels: dict[str, str]) -> dict[str, object]:
    return {"kind": "Node", "metadata": {"name": name, "labels": labels}, "status": {"capacity": {}}}


def test_the_instance_type_says_the_gpus_where_no_label_of_feature_discovery_does(tmp_path: Path) -> None:
    file = tmp_path / "nodes.json"
    kind = "node.kubernetes.io/instance-type"
    items = [
        node("a", {kind: "p5.48xlarge"}),
        node("b", {"beta.kubernetes.io/instance-type": "Standard_ND96isr_H100_v5"}),
        node("c", {kind: "m5.large"}),
        node("d", {kind: "p4d.24xlarge", "nvidia.com/gpu.product": "Some-Card", "nvidia.com/gpu.count": "7"}),
        node("e", {kind: "g5.xlarge", "nvidia.com/gpu.product": "NVIDIA-L4", "nvidia.com/gpu.count": "2"}),
    ]
    file.write_text(json.dumps({"items": items}))
    draft = kubernetes.draft(file)
    joined = {"gpu": {"model": "H100-SXM5-80GB", "count": 8}, "fabric_manager": {}}
    assert group(draft, "a").spec == group(draft, "b").spec == joined
    assert group(draft, "a").notes == ["instance type p5.48xlarge: 8 x H100-SXM5-80GB; its fabric: rdma: {fabric: efa}"]
    assert group(draft, "d").spec["gpu"] == {"model": "A100-SXM4-40GB", "count": 8}
    assert group(draft, "e").spec == {"gpu": {"model": "L4", "count": 2}}, "what runs there says more"
    assert draft.notes == ["1 node without GPUs"]
