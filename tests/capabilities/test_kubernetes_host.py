"""kubernetes on a host: its files, the MIG strategy, and what the cluster says of the node."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gpuprov.capabilities.kubernetes.fragment import Kubernetes
from gpuprov.capabilities.kubernetes.reading import export
from gpuprov.facts.probes.base import Output
from tests.capabilities import kubernetes_host
from tests.capabilities.asking import facts
from tests.capabilities.kubernetes_host import node
from tests.capabilities.kubernetes_rows import (
    EIGHT,
    MIG,
    MIXED,
    MPS,
    NO_KUBECTL,
    NOT_FOUND,
    ONE,
    OPERATOR,
    SEVEN,
    SINGLE,
    SLICED,
    UNASKED,
    Row,
    gpus,
    host_of,
    judge,
    told,
)  # fmt: skip

GPU, PLACE = "nvidia.com/gpu", "/etc/gpuprov/kubernetes"
FILES, LABELS, COUNT = "kubernetes.files", "kubernetes.labels", "kubernetes.allocatable"
STRATEGY = "kubernetes.mig_strategy"


def files(**changed: str | None) -> dict[str, Output | str]:
    """Files of the default spec, with these changed."""
    return {"kubernetes_files": kubernetes_host.files(None, None, **changed)}


ROWS = [
    Row("the files", FILES, {}, {}, {}, "pass", "device-plugin.yaml"),
    Row("the files with all of it", FILES, {**SLICED, **OPERATOR}, EIGHT, {}, "pass", "gpu-operator-values.yaml"),
    Row("written in another way", FILES, {}, {},
        files(runtimeclass='{"handler": nvidia, metadata: {name: nvidia}, kind: RuntimeClass, apiVersion: node.k8s.io/v1}'),
        "pass"),
    Row("no files", FILES, {}, {}, {"kubernetes_files": ""}, "fail", "device-plugin.yaml: is absent", "gpuprov apply",
        f"file {PLACE}/device-plugin.yaml: is absent -> written"),
    Row("another setting", FILES, SLICED, {}, files(), "fail", "device-plugin.yaml: differs in sharing",
        change=f"file {PLACE}/device-plugin.yaml: differs in sharing -> written"),
    Row("a spec that counts the GPUs, as an export does", FILES, {}, EIGHT, files(), "pass"),
    Row("other counts", FILES, {}, EIGHT, files(allocatable="migStrategy: none\nsharing: none\nallocatable: {nvidia.com/gpu: 4}"),
        "fail", "allocatable.yaml: differs in allocatable"),
    Row("no longer asked for", FILES, OPERATOR, {}, files(), "fail", "runtimeclass.yaml: is left over",
        change=f"file {PLACE}/runtimeclass.yaml: is left over -> removed"),
    Row("cut off", FILES, {}, {}, files(device_plugin="version: [v1"), "fail", "device-plugin.yaml: is not YAML"),
    Row("no mapping", FILES, {}, {}, files(device_plugin="v1"), "fail", "device-plugin.yaml: is no mapping"),
    Row("the labels", LABELS, {}, {}, {}, "pass", "nvidia.com/device-plugin.config=default"),
    Row("no credentials", LABELS, {}, {}, told(asked=UNASKED), "skip", "no credentials of a kubelet"),
    Row("no kubectl", LABELS, {}, {}, told(asked=NO_KUBECTL), "skip", "kubectl is not installed"),
    Row("no such node", LABELS, {}, {}, {"kubernetes_node": NOT_FOUND}, "fail", 'nodes "gpu1" not found', "joined"),
    Row("a label is missing", LABELS, MPS, {}, {}, "fail", "no nvidia.com/mps.capable", "kubectl patch node gpu1 --patch-file"),
    Row("a label is another", LABELS, {"label_node": True}, {}, {"kubernetes_node": node().replace('"default"', '"old"')},
        "fail", "nvidia.com/device-plugin.config=old", "gpuprov apply",
        "setting label nvidia.com/device-plugin.config: old -> default"),
    Row("a label of MPS that is no more", LABELS, {}, {}, {"kubernetes_node": node(mps_capable="true")}, "fail",
        "nvidia.com/mps.capable=true", "kubectl label node gpu1 nvidia.com/mps.capable-"),
    Row("as feature discovery sets it", LABELS, {}, {}, {"kubernetes_node": node(mps_capable="false")}, "pass"),
    Row("a label to take away", LABELS, {"label_node": True}, {}, {"kubernetes_node": node(mps_capable="true")}, "fail",
        "nvidia.com/mps.capable=true", "gpuprov apply", "setting label nvidia.com/mps.capable: true -> removed"),
    Row("another node", LABELS, {"node": "gpu2"}, {}, {}, "fail", "the kubelet calls it gpu1", "kubernetes.node"),
    Row("the count", COUNT, {}, ONE, {}, "pass", "nvidia.com/gpu: 1"),
    Row("shares", COUNT, SLICED, ONE, told(allocatable={GPU: 4}), "pass", "nvidia.com/gpu: 4"),
    Row("the plugin has another configuration", COUNT, SLICED, ONE, {}, "fail", "node gpu1 has nvidia.com/gpu: 1",
        "is the plugin's pod"),
    Row("no plugin", COUNT, {}, ONE, told(allocatable={"memory": 1}), "fail", "node gpu1 has nvidia.com/gpu: 0"),
    Row("something of before", COUNT, {}, ONE, told(allocatable={GPU: 1, "nvidia.com/mig-1g.10gb": 2}), "fail", "mig-1g.10gb: 2"),
    Row("gone to none", COUNT, {}, ONE, told(allocatable={GPU: 1, "nvidia.com/mig-1g.10gb": 0}), "pass"),
    Row("MIG devices, single", COUNT, SINGLE, MIG, {"mig": gpus(SEVEN), **told(allocatable={GPU: 7})}, "pass",
        "nvidia.com/gpu: 7"),
    Row("MIG devices, mixed", COUNT, MIXED, MIG, {"mig": gpus(SEVEN), **told(allocatable={"nvidia.com/mig-1g.10gb": 7})},
        "pass", "mig-1g.10gb: 7"),
    Row("compute instances", COUNT, MIXED, {}, {"mig": gpus(("3g.40gb", "1g.10gb+me"), compute=1),
        **told(allocatable={"nvidia.com/mig-1c.3g.40gb": 1, "nvidia.com/mig-1g.10gb.me": 1})}, "pass"),
    Row("less than the spec", COUNT, {}, EIGHT, {}, "fail", "the host's GPUs amount to nvidia.com/gpu: 1", "allocatable.yaml"),
    Row("nobody to ask", COUNT, {}, ONE, told(asked=UNASKED), "skip",
        "the GPUs amount to nvidia.com/gpu: 1; the cluster was not asked"),
    Row("no answer", COUNT, {}, ONE, {"kubernetes_node": NOT_FOUND}, "fail", "not found", "API server"),
    Row("no GPU", COUNT, {}, {}, {"nvidia_functions": ""}, "skip", "no NVIDIA GPU"),
    Row("no driver in a container", COUNT, {}, {}, {"container": "podman\n", "mig": '{"complaint": "no libnvidia-ml"}'}, "skip",
        "podman container"),
    Row("no driver", COUNT, {}, {}, {"mig": '{"complaint": "no libnvidia-ml"}'}, "fail", "no libnvidia-ml",
        "nvidia_driver.loaded"),
    Row("a GPU that does not answer", COUNT, {}, {}, {"mig": '{"unread": ["GPU 3: lost"]}'}, "fail", "GPU 3: lost"),
    Row("HAMi's shares", COUNT, {"plugin": "hami"}, {}, told(allocatable={GPU: 10}), "pass", "nvidia.com/gpu: 10"),
    Row("HAMi with other values", COUNT, {"plugin": "hami", "hami": {"split_count": 4}}, {}, told(allocatable={GPU: 10}),
        "fail", "nvidia.com/gpu: 10"),
    Row("gpushare's count", COUNT, {"plugin": "gpushare"}, {}, told(allocatable={"aliyun.com/gpu-count": 1}), "pass"),
    Row("no MIG", STRATEGY, {}, {}, {}, "pass", "1 GPU, 0 in MIG mode"),
    Row("MIG on a node for whole GPUs", STRATEGY, {}, {}, {"mig": gpus(None, SEVEN)}, "fail", "GPU 1 is in MIG mode",
        "single or mixed"),
    Row("single", STRATEGY, SINGLE, {}, {"mig": gpus(SEVEN, SEVEN)}, "pass", "2 in MIG mode"),
    Row("single after a reboot that lost one", STRATEGY, SINGLE, {}, {"mig": gpus(SEVEN, None)}, "fail", "GPU 1 is not", "mixed"),
    Row("single, instances lost", STRATEGY, SINGLE, {}, {"mig": gpus(SEVEN, ())}, "fail",
        "GPU 1 is in MIG mode without MIG devices"),
    Row("single, two profiles", STRATEGY, SINGLE, {}, {"mig": gpus(SEVEN, ("2g.20gb",))}, "fail", "1g.10gb, 2g.20gb", "mixed"),
    Row("mixed", STRATEGY, MIXED, {}, {"mig": gpus(None, SEVEN, ("2g.20gb",))}, "pass"),
    Row("MPS on MIG", STRATEGY, MPS, {}, {"mig": gpus(SEVEN)}, "fail", "MPS does not work", "time_slicing"),
]  # fmt: skip


@pytest.mark.parametrize("row", [pytest.param(row, id=f"{row.check}: {row.name}") for row in ROWS])
def test_kubernetes(row: Row) -> None:
    judge(row)


@pytest.mark.parametrize(
    "block",
    [
        {},
        SINGLE,
        MPS,
        {"plugin": "gpushare", "gpushare": {"master_count": 5}},
        {"plugin": "hami", "hami": {"split_count": 4, "memory_scaling": 1.5}, "labels": {"team": "vision"}},
        {"plugin": "hami", "node": "n1", "hami": {"mode": "mig"}},
        {
            "device_plugin": {
                "config": "sliced",
                "mig_strategy": "mixed",
                "device_list_strategy": ["cdi-annotations", "cdi-cri"],
                "device_id_strategy": "index",
                "pass_device_specs": True,
                "fail_on_init_error": False,
                "sharing": {
                    "time_slicing": {
                        "rename_by_default": True,
                        "fail_requests_greater_than_one": True,
                        "resources": [{"name": "nvidia.com/mig-1g.10gb", "replicas": 3}],
                    }
                },
            },
            "gpu_operator": {"enabled": True, "toolkit": True, "mig_manager": True},
        },
    ],
)
def test_export_is_the_spec_again(block: dict[str, Any]) -> None:
    spec = host_of(block, {})
    mine = spec.capabilities["kubernetes"]
    assert export(facts(kubernetes_files=kubernetes_host.files(mine, spec))) == mine
    assert msgspec.json.decode(msgspec.json.encode(mine), type=Kubernetes) == mine


LABELLED = "@file node-labels.yaml\n metadata: {labels: {gpu: 'on'}}\n"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "@file node-labels.yaml\n metadata: [\n",
        "@file node-labels.yaml\n a: b\n",
        f"{LABELLED}@file hami-values.yaml\n devicePlugin: {{nodeConfiguration: {{config: 'no table'}}}}\n",
        f"{LABELLED}@file hami-values.yaml\n devicePlugin: {{nodeConfiguration: {{config: '{{\"nodeconfig\": []}}'}}}}\n",
        f"{LABELLED}@file device-plugin.yaml\n flags: [migStrategy]\n",
    ],
)
def test_nothing_to_export(text: str) -> None:
    assert export(facts(kubernetes_files=text)) is None
