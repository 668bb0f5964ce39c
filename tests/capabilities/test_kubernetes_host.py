"""kubernetes on a host: its files, the MIG strategy, kubelet and runtime, who else manages the GPUs; and what the
cluster says of the node."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gpuprov.capabilities.kubernetes.fragment import Kubernetes
from gpuprov.capabilities.kubernetes.reading import export
from gpuprov.facts.probes.base import Output
from tests.capabilities import kubernetes_host, toolkit_host
from tests.capabilities.asking import H100, facts
from tests.capabilities.kubernetes_host import node, slices
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
    managed,
    told,
)  # fmt: skip  # fmt: skip
from tests.capabilities.toolkit_host import FILLED, containerd, crio, docker, k3s, microk8s
from tests.rows import run_each

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
        files(runtimeclass='{"handler": nvidia, metadata: {name: nvidia}, kind: RuntimeClass, apiVersion: '
                           'node.k8s.io/v1}'),
        "pass"),
    Row("no files", FILES, {}, {}, {"kubernetes_files": ""}, "fail", "device-plugin.yaml: is absent", "gpuprov apply",
        f"file {PLACE}/device-plugin.yaml: is absent -> written"),
    Row("another setting", FILES, SLICED, {}, files(), "fail", "device-plugin.yaml: differs in sharing",
        change=f"file {PLACE}/device-plugin.yaml: differs in sharing -> written"),
    Row("a spec that counts the GPUs, as an export does", FILES, {}, EIGHT, files(), "pass"),
    Row("other counts", FILES, {}, EIGHT,
        files(allocatable="migStrategy: none\nsharing: none\nallocatable: {nvidia.com/gpu: 4}"),
        "fail", "allocatable.yaml: differs in allocatable"),
    Row("no longer asked for", FILES, OPERATOR, {}, files(), "fail", "runtimeclass.yaml: is left over",
        change=f"file {PLACE}/runtimeclass.yaml: is left over -> removed"),
    Row("cut off", FILES, {}, {}, files(device_plugin="version: [v1"), "fail", "device-plugin.yaml: is not YAML"),
    Row("no mapping", FILES, {}, {}, files(device_plugin="v1"), "fail", "device-plugin.yaml: is not a mapping"),
    Row("the labels", LABELS, {}, {}, {}, "pass", "nvidia.com/device-plugin.config=default"),
    Row("no credentials", LABELS, {}, {}, told(asked=UNASKED), "skip", "no credentials of a kubelet"),
    Row("no kubectl", LABELS, {}, {}, told(asked=NO_KUBECTL), "skip", "kubectl is not installed"),
    Row("no such node", LABELS, {}, {}, {"kubernetes_node": NOT_FOUND}, "fail", 'nodes "gpu1" not found', "joined"),
    Row("a label is missing", LABELS, MPS, {}, {}, "fail", "no nvidia.com/mps.capable",
        "kubectl patch node gpu1 --patch-file"),
    Row("a label is another", LABELS, {"label_node": True}, {},
        {"kubernetes_node": node().replace('"default"', '"old"')},
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
    Row("something of before", COUNT, {}, ONE, told(allocatable={GPU: 1, "nvidia.com/mig-1g.10gb": 2}), "fail",
        "mig-1g.10gb: 2"),
    Row("gone to none", COUNT, {}, ONE, told(allocatable={GPU: 1, "nvidia.com/mig-1g.10gb": 0}), "pass"),
    Row("MIG devices, single", COUNT, SINGLE, MIG, {"mig": gpus(SEVEN), **told(allocatable={GPU: 7})}, "pass",
        "nvidia.com/gpu: 7"),
    Row("MIG devices, mixed", COUNT, MIXED, MIG, {"mig": gpus(SEVEN),
                                                  **told(allocatable={"nvidia.com/mig-1g.10gb": 7})},
        "pass", "mig-1g.10gb: 7"),
    Row("compute instances", COUNT, MIXED, {}, {"mig": gpus(("3g.40gb", "1g.10gb+me"), compute=1),
        **told(allocatable={"nvidia.com/mig-1c.3g.40gb": 1, "nvidia.com/mig-1g.10gb.me": 1})}, "pass"),
    Row("less than the spec", COUNT, {}, EIGHT, {}, "fail", "the host's GPUs amount to nvidia.com/gpu: 1",
        "allocatable.yaml"),
    Row("nobody to ask", COUNT, {}, ONE, told(asked=UNASKED), "skip",
        "the GPUs amount to nvidia.com/gpu: 1; the cluster was not queried"),
    Row("no answer", COUNT, {}, ONE, {"kubernetes_node": NOT_FOUND}, "fail", "not found", "API server"),
    Row("no GPU", COUNT, {}, {}, {"nvidia_functions": ""}, "skip", "no NVIDIA GPU"),
    Row("no driver in a container", COUNT, {}, {}, {"container": "podman\n", "mig": '{"complaint": "no libnvidia-ml"}'},
        "skip",
        "podman container"),
    Row("no driver", COUNT, {}, {}, {"mig": '{"complaint": "no libnvidia-ml"}'}, "fail", "no libnvidia-ml",
        "nvidia_driver.loaded"),
    Row("a GPU that does not answer", COUNT, {}, {}, {"mig": '{"unread": ["GPU 3: lost"]}'}, "fail", "GPU 3: lost"),
    Row("HAMi's shares", COUNT, {"plugin": "hami"}, {}, told(allocatable={GPU: 10}), "pass", "nvidia.com/gpu: 10"),
    Row("HAMi with other values", COUNT, {"plugin": "hami", "hami": {"split_count": 4}}, {},
        told(allocatable={GPU: 10}),
        "fail", "nvidia.com/gpu: 10"),
    Row("gpushare's count", COUNT, {"plugin": "gpushare"}, {}, told(allocatable={"aliyun.com/gpu-count": 1}), "pass"),
    Row("no MIG", STRATEGY, {}, {}, {}, "pass", "1 GPU, 0 in MIG mode"),
    Row("MIG on a node for whole GPUs", STRATEGY, {}, {}, {"mig": gpus(None, SEVEN)}, "fail", "GPU 1 is in MIG mode",
        "single or mixed"),
    Row("single", STRATEGY, SINGLE, {}, {"mig": gpus(SEVEN, SEVEN)}, "pass", "2 in MIG mode"),
    Row("single after a reboot that lost one", STRATEGY, SINGLE, {}, {"mig": gpus(SEVEN, None)}, "fail", "GPU 1 is not",
        "mixed"),
    Row("single, instances lost", STRATEGY, SINGLE, {}, {"mig": gpus(SEVEN, ())}, "fail",
        "GPU 1 is in MIG mode without MIG devices"),
    Row("single, two profiles", STRATEGY, SINGLE, {}, {"mig": gpus(SEVEN, ("2g.20gb",))}, "fail", "1g.10gb, 2g.20gb",
        "mixed"),
    Row("mixed", STRATEGY, MIXED, {}, {"mig": gpus(None, SEVEN, ("2g.20gb",))}, "pass"),
    Row("MPS on MIG", STRATEGY, MPS, {}, {"mig": gpus(SEVEN)}, "fail", "MPS does not work", "time_slicing"),
]  # fmt: skip


@run_each(
    "block",
    [
        {},
        SINGLE,
        MPS,
        {"configs": {"a": MPS["device_plugin"], "b": {"mig_strategy": "mixed"}}, "device_plugin": {"config": "a"}},
        {"configs": {"a": {}, "b": {}}, "device_plugin": {"config": "b"}, "gpu_operator": {"enabled": True}},
        {"dra": {"compute_domains": True, "feature_gates": {"DynamicMIG": False}}, "labels": {"team": "vision"}},
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


@run_each(
    "text",
    [
        "",
        "@file node-labels.yaml\n metadata: [\n",
        "@file node-labels.yaml\n a: b\n",
        f"{LABELLED}@file hami-values.yaml\n devicePlugin: {{nodeConfiguration: {{config: 'no table'}}}}\n",
        f'{LABELLED}@file hami-values.yaml\n devicePlugin: {{nodeConfiguration: {{config: \'{{"nodeconfig": '
        f"[]}}'}}}}\n",
        f"{LABELLED}@file device-plugin.yaml\n flags: [migStrategy]\n",
    ],
)
def test_nothing_to_export(text: str) -> None:
    assert export(facts(kubernetes_files=text)) is None


DRA, SLICES, ALLOCATABLE = {"allocation": "dra"}, "kubernetes.resource_slices", "kubernetes.allocatable"
PARTS = tuple((f"gpu-1-mig-1g.10gb-{n}", "mig", f"MIG-1-{n}") for n in range(7))
TWO = (("gpu-0", "gpu", "GPU-0"), ("gpu-1", "gpu", "GPU-1"))


def sliced(text: str, kubelet: str = "v1.34.2+k3s1") -> dict[str, Output | str]:
    """A host with two GPUs, whose cluster says this of its ResourceSlices."""
    told_node = kubernetes_host.node(slices=text, kubelet=kubelet, gpu_present="true")
    return {"kubernetes_node": told_node, "mig": gpus(None, None)}


KUBELET, ONE_MANAGER = "kubernetes.kubelet", "kubernetes.one_manager"
REPLICAS, KUBECTL, RUNTIME = "kubernetes.replicas", "kubernetes.kubectl", "kubernetes.runtime"
BY_CDI = {"device_plugin": {"device_list_strategy": ["cdi-cri"]}}
BY_MOUNTS = {"device_plugin": {"device_list_strategy": ["volume-mounts"]}}
V100 = H100.replace("0x2330", "0x1db1")
CDI_2 = (
    "version = 3\n[plugins.'io.containerd.grpc.v1.cri']\nstream_server_port = '0'\n"
    "[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.nvidia.options]\n"
    "BinaryName = '/usr/bin/nvidia-container-runtime'\n"
)
ACCEPT = "accept-nvidia-visible-devices"


def engines(*texts: str) -> dict[str, Output | str]:
    """These engines and no other."""
    return {"container_engines": toolkit_host.CLOCK + "".join(texts)}


def config(*lines: str) -> dict[str, Output | str]:
    """These settings of the runtime."""
    return {"container_toolkit": toolkit_host.toolkit(config="\n".join(f" {line}" for line in lines))}


RUNTIMES = [
    Row("the kubelet", KUBELET, {}, {}, {}, "pass", "kubelet.service active"),
    Row("no kubelet", KUBELET, {}, {}, told(unit=""), "skip", "no kubelet on this host"),
    Row("a dead kubelet", KUBELET, {}, {}, told(unit="unit|kubelet.service|failed|enabled\n"), "fail", "failed",
        "journalctl -u kubelet.service", "service kubelet.service: failed -> active"),
    Row("not joined", KUBELET, {}, {}, told(unit="unit|kubelet.service|activating|enabled\n", asked=UNASKED), "skip",
        "kubelet.service is activating: the node has not joined"),
    Row("only until the next boot", KUBELET, {}, {}, told(unit="unit|kubelet.service|active|disabled\n"), "fail",
        "is disabled",
        "systemctl enable"),
    Row("k3s", KUBELET, {}, {}, told(unit="unit|k3s-agent.service|active|enabled\n"), "pass", "k3s-agent.service"),
    Row("nobody else", ONE_MANAGER, {}, {}, managed("nvidia-device-p"), "pass"),
    Row("the operator's driver", ONE_MANAGER, {}, {}, managed("driver"), "fail", "/run/nvidia/driver",
        "driver.enabled=false"),
    Row("as asked for", ONE_MANAGER, {"gpu_operator": {"enabled": True, "driver": True}}, {}, managed("driver"),
        "pass"),
    Row("the operator's toolkit", ONE_MANAGER, OPERATOR, {}, managed("toolkit"), "fail",
        "/usr/local/nvidia/toolkit", "toolkit.enabled=false"),
    Row("the operator's MIG manager", ONE_MANAGER, SINGLE, MIG, managed("nvidia-mig-mana"), "fail",
        "nvidia-mig-manager", "migManager.enabled=false"),
    Row("a MIG manager on a host without mig", ONE_MANAGER, {}, {}, managed("nvidia-mig-mana"), "pass"),
    Row("DRA's driver beside a plugin", ONE_MANAGER, {}, {}, managed("gpu-kubelet-plu"), "fail", "gpu-kubelet-plu",
        "DaemonSet"),
    Row("a plugin beside DRA's driver", ONE_MANAGER, DRA, {}, managed("gpu-kubelet-plu", "nvidia-device-p"), "fail",
        "another device plugin or DRA driver runs: nvidia-device-p"),
    Row("DRA's driver", ONE_MANAGER, DRA, {}, managed("gpu-kubelet-plu"), "pass"),
    Row("volcano's plugin", ONE_MANAGER, {"plugin": "hami"}, {}, managed("volcano-vgpu-de"), "fail", "volcano-vgpu-de"),
    Row("DRA by CDI alone", RUNTIME, DRA, {}, engines(k3s(runtime="")), "pass", "GPUs by cdi-cri"),
    Row("DRA without CDI", RUNTIME, DRA, {}, engines(k3s(version="1.31.5")), "fail",
        "CDI is off in the containerd of k3s"),
    Row("no DRA", SLICES, {}, {}, {}, "n/a", "by a device plugin"),
    Row("counted nowhere", ALLOCATABLE, DRA, {}, {}, "n/a", "in ResourceSlices"),
    Row("MIG devices", SLICES, DRA, {}, {**sliced(slices(TWO[0], *PARTS)), "mig": gpus(None, SEVEN)}, "pass",
        "8 devices"),
    Row("MIG devices that were made later", SLICES, DRA, {}, {**sliced(slices(*TWO)), "mig": gpus(None, SEVEN[:1])},
        "fail",
        "not published: 1g.10gb of GPU 1 (MIG-1-0); published, and missing: gpu-1 (GPU-1)",
        "it reads GPUs and MIG devices when"),
    Row("no cluster", SLICES, DRA, {}, told(asked=UNASKED), "skip", "ResourceSlices of gpu.nvidia.com with 1 device"),
    Row("both GPUs", SLICES, DRA, {}, sliced(slices(*TWO)), "pass", "2 devices of node gpu1"),
    Row("an older kubelet", SLICES, DRA, {}, sliced(slices(*TWO), kubelet="v1.33.5+rke2r1"), "fail",
        "v1.33.5+rke2r1", "upgrade Kubernetes"),
    Row("one GPU is lost", SLICES, DRA, {}, sliced(slices(TWO[0])), "fail", "not published: GPU 1 (GPU-1)",
        "restart the DRA driver's"),
    Row("a GPU that was replaced", SLICES, DRA, {}, sliced(slices(*TWO, ("gpu-2", "gpu", "GPU-9"))), "fail",
        "published, and missing: gpu-2 (GPU-9)"),
    Row("half of the pool", SLICES, DRA, {}, sliced(slices(*TWO, count=2)), "fail",
        "1 of 2 slices of its pool are there"),
    Row("another driver's", SLICES, DRA, {}, sliced(slices(*TWO, driver="tpu.example")), "fail",
        "not published: GPU 0 (GPU-0), GPU 1"),
    Row("no DRA in the cluster", SLICES, DRA, {},
        sliced("Error from server (NotFound): the server could not find it"), "fail",
        "Error from server (NotFound)", "resource.k8s.io/v1 served?"),
    Row("not yet asked", SLICES, DRA, {}, sliced(""), "fail", "the cluster was not queried",
        "dra-driver-values.yaml on the host"),
    Row("MIG that the driver makes, half of the pool", SLICES, {"dra": {"feature_gates": {"DynamicMIG": True}}}, {},
        sliced(slices(*TWO, count=2)), "fail", "1 of 2 slices of its pool are there"),
    Row("MIG that the driver makes", SLICES, {"dra": {"feature_gates": {"DynamicMIG": True}}}, {},
        sliced(slices(*TWO)), "pass",
        "all that could be made"),
    Row("gpushare's plugin too", ONE_MANAGER, {}, {}, managed("gpushare-device"), "fail",
        "gpushare-device", "DaemonSet"),
    Row("NVIDIA's beside gpushare", ONE_MANAGER, {"plugin": "gpushare"}, {}, managed("nvidia-device-p"), "fail",
        "nvidia-device-p"),
    Row("HAMi's", ONE_MANAGER, {"plugin": "hami"}, {}, managed("nvidia-device-p", "vGPUmonitor"), "pass"),
    Row("the runtime", RUNTIME, {}, {}, {}, "pass", "runtime nvidia in containerd, crio"),
    Row("cri-o", RUNTIME, BY_CDI, {}, engines(crio()), "pass", "in crio, GPUs by cdi-cri"),
    Row("no kubelet, no engine", RUNTIME, {}, {}, told(unit=""), "skip", "no kubelet on this host"),
    Row("docker only", RUNTIME, {}, {}, engines(docker()), "skip", "no containerd, cri-o, k3s, RKE2 or MicroK8s"),
    Row("containerd lost it", RUNTIME, {}, {}, engines(containerd(drop_in="")), "fail",
        "containerd has no runtime nvidia", "container_toolkit: {runtimes: [containerd]}"),
    Row("containerd is broken", RUNTIME, {}, {}, engines(containerd(dump=None)), "fail",
        "does not understand its configuration"),
    Row("a stopped one beside a live one", RUNTIME, {}, {}, engines(containerd(drop_in="", active="inactive"),
        crio()), "pass", "in crio"),
    Row("CDI with an old containerd", RUNTIME, BY_CDI, {}, engines(containerd()), "fail",
        "containerd 1.6.20 knows no CDI", "[envvar]"),
    Row("CDI off", RUNTIME, BY_CDI, {}, engines(containerd(version="1.7.27", drop_in=CDI_2, dump=CDI_2)), "fail",
        "CDI is off in containerd"),
    Row("k3s'", RUNTIME, {}, {}, engines(k3s(), containerd(drop_in="")), "pass", "runtime nvidia in k3s"),
    Row("k3s' lacks it", RUNTIME, {}, {}, engines(k3s(runtime="")), "fail", "k3s has no runtime nvidia",
        "container_toolkit: {runtimes: [k3s]}"),
    Row("k3s with docker", RUNTIME, {}, {}, engines(k3s().partition("@file")[0]), "fail", "runs pods in docker"),
    Row("CDI in an old k3s", RUNTIME, BY_CDI, {}, engines(k3s(version="1.31.5")), "fail",
        "CDI is off in the containerd of k3s 1.31.5, which has it from 1.31.6 and 1.32.2 on",
        "upgrade k3s; or [envvar]"),
    Row("CDI in a newer one", RUNTIME, BY_CDI, {}, engines(k3s(version="1.31.6")), "pass"),
    Row("CDI in MicroK8s", RUNTIME, BY_CDI, {}, engines(microk8s()), "pass", "in microk8s, GPUs by cdi-cri"),
    Row("CDI in an old MicroK8s", RUNTIME, BY_CDI, {}, engines(microk8s(FILLED.replace("enable_cdi = true", ""),
                                                                        version="1.7.27")),
        "fail", "CDI is off in the containerd of microk8s 1.7.27", "container_toolkit: {runtimes: [microk8s]}"),
    Row("CDI by itself", RUNTIME, BY_CDI, {}, engines(containerd(version="2.1.4", drop_in=CDI_2, dump=CDI_2)),
        "pass"),
    Row("volume mounts off", RUNTIME, BY_MOUNTS, {}, {}, "fail", f"{ACCEPT}-as-volume-mounts is not true", "cdi-cri"),
    Row("volume mounts", RUNTIME, BY_MOUNTS, {}, config(f"{ACCEPT}-as-volume-mounts = true"), "pass"),
    Row("environment off", RUNTIME, {}, {}, config(f"{ACCEPT}-envvar-when-unprivileged = false"), "fail",
        "is false in /etc/nvidia-container", "volume-mounts"),
    Row("the operator's toolkit registers", RUNTIME, {"gpu_operator": {"enabled": True, "toolkit": True}}, {},
        engines(),
        "n/a", "the operator"),
    Row("no MPS", REPLICAS, {}, {}, {}, "n/a"),
    Row("MPS", REPLICAS, MPS, {}, {}, "pass", "20 of at most 48"),
    Row("MPS on a V100", REPLICAS, MPS, {}, {"nvidia_functions": H100 + V100}, "fail",
        "20: the device plugin's limit for V100-SXM2", "16 or fewer"),
    Row("the site labels", KUBECTL, {}, {}, told(asked=UNASKED), "n/a", "the site"),
    Row("can label", KUBECTL, {"label_node": True}, {}, {}, "pass", "/usr/bin/kubectl, as gpu1"),
    Row("cannot label", KUBECTL, {"label_node": True}, {}, told(asked=UNASKED), "fail", "no credentials",
        "label_node: false"),
    Row("may not ask", KUBECTL, {"label_node": True}, {}, {"kubernetes_node": NOT_FOUND}, "fail", "not found",
        "kubectl --kubeconfig=/etc/"),
]  # fmt: skip


@run_each("row", [pytest.param(row, id=f"{row.check}: {row.name}") for row in (*ROWS, *RUNTIMES)])
def test_kubernetes(row: Row) -> None:
    judge(row)
